// The search box: a part of a name finds topics and groups, an id its message.

import { get, query } from "./api.js";
import { h, replace } from "./dom.js";
import { icon } from "./icons.js";
import { place } from "./parts.js";

const ID = /^[a-zA-Z0-9._-]+:\d+:\d+$/;
const WAIT_MS = 120;

export function makeFinder(go) {
  const input = h("input", {
    type: "search", role: "combobox", placeholder: "Find a topic, group or message id", autocomplete: "off",
    spellcheck: "false", "aria-label": "Find a topic, a group or a message", "aria-expanded": "false",
    "aria-controls": "found", "aria-autocomplete": "list",
  });
  const list = h("ul", { class: "found", id: "found", role: "listbox", "aria-label": "Found" });
  list.hidden = true;
  let choices = [];
  let chosen = 0;
  let asked = 0;
  let timer = null;

  async function look() {
    const text = input.value.trim();
    const mine = ++asked;
    if (!text) return show([]);
    const found = ID.test(text) ? [{ name: text, kind: "message", where: `/trace?id=${encodeURIComponent(text)}` }] : [];
    const part = { match: text, limit: 6 };
    const [topics, groups] = await Promise.all([
      get(`/overview/topics${query(part)}`), get(`/overview/groups${query(part)}`),
    ]);
    if (mine !== asked) return;
    found.push(...topics.topics.map(({ name }) => ({ name, kind: "topic", where: `/topics${place(name)}` })));
    found.push(...groups.groups.map(({ name, kind }) => ({
      name, kind: `${kind} group`, where: kind === "queue" ? `/queues${place(name)}` : `/groups${place(name)}`,
    })));
    show(found);
  }

  function show(found) {
    choices = found;
    chosen = 0;
    const isOpen = input.value.trim() !== "";
    list.hidden = !isOpen;
    input.setAttribute("aria-expanded", String(isOpen));
    replace(
      list,
      found.length
        ? found.map((each, index) =>
            h("li", { role: "option", id: `found-${index}`, "aria-selected": "false", onmousedown: () => open(index) },
              h("span", {}, each.name), h("span", { class: "faint" }, each.kind)))
        : h("li", { role: "option", "aria-disabled": "true", class: "muted" }, "Nothing has this in its name"),
    );
    mark();
  }

  function mark() {
    [...list.children].forEach((item, index) => item.setAttribute("aria-selected", String(choices.length > 0 && index === chosen)));
    if (choices.length) input.setAttribute("aria-activedescendant", `found-${chosen}`);
    else input.removeAttribute("aria-activedescendant");
  }

  function open(index) {
    if (!choices[index]) return;
    const { where } = choices[index];
    input.value = "";
    show([]);
    input.blur();
    go(`/dashboard${where}`);
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => look().catch(() => show([])), WAIT_MS);
  });
  input.addEventListener("blur", () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen = Math.max(0, Math.min(choices.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(chosen);
    } else if (event.key === "Escape") {
      input.value = "";
      show([]);
      input.blur();
    }
  });
  return {
    element: h("div", { class: "finder" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/"), list),
    focus: () => input.focus(),
  };
}
