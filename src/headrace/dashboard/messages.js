// The messages of a topic: looked for by key, value, header and time, or followed live.

import { events, get, path, query } from "./api.js";
import { h, replace } from "./dom.js";
import { count, zone } from "./format.js";
import { badge, button, empty, exactly, facts, field, link, messageLink } from "./parts.js";
import { preview, showValue } from "./value.js";

const PAGE = 50;
const FOLLOWED_MAX = 200;

export function messageList({ topic, partitions, stage }) {
  const inputs = {
    partition: h("input", { type: "number", min: "0", max: String(partitions - 1), placeholder: "all", value: stage.query.partition ?? (partitions > 64 ? "0" : "") }),
    key: h("input", { placeholder: "part of a key", value: stage.query.key ?? "" }),
    value: h("input", { placeholder: "part of a value", value: stage.query.value ?? "" }),
    header: h("input", { placeholder: "name=text", value: stage.query.header ?? "" }),
    since: h("input", { type: "datetime-local", step: "1", value: stage.query.since ?? "" }),
    until: h("input", { type: "datetime-local", step: "1", value: stage.query.until ?? "" }),
  };
  const list = h("ol", { class: "message-list" });
  const words = h("span", { class: "muted", "aria-live": "polite" });
  const more = button("Look further", () => load(true), { tone: "small" });
  const follow = button("Follow live", () => (source ? stop() : start()), { symbol: "play" });
  const form = h(
    "form",
    { class: "filters" },
    field("Partition", inputs.partition), field("Key", inputs.key), field("Value", inputs.value),
    field("Header", inputs.header), field(`From, ${zone()}`, inputs.since), field(`Until, ${zone()}`, inputs.until),
    button("Search", () => {}, { tone: "primary", type: "submit" }), follow,
  );
  const element = h("div", {}, form, headings(), list, h("div", { class: "pager" }, words, h("span", { class: "push" }), more));
  let next = null;
  let shown = 0;
  let scanned = 0;
  let source = null;

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    stop();
    load(false);
  });

  const filters = () => Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));

  async function load(further) {
    const wanted = filters();
    if (!further) {
      stage.remember(wanted);
      [next, shown, scanned] = [null, 0, 0];
    }
    more.disabled = true;
    const moments = { since: instant(wanted.since), until: instant(wanted.until) };
    const page = await get(`${path("topics", topic, "search")}${query({ ...wanted, ...moments, limit: PAGE, after: next })}`, stage.signal)
      .catch((error) => {
        replace(words, error.message);
        return null;
      })
      .finally(() => {
        more.disabled = false;
      });
    if (!page) return;
    if (!further) replace(list);
    list.append(...page.messages.map(item));
    next = page.next;
    shown += page.messages.length;
    scanned += page.scanned;
    more.hidden = !next;
    const isEnd = next ? "" : ", to the end";
    replace(words, `${count(shown)} shown of ${count(scanned)} looked through${isEnd}`);
    if (!shown && !next) replace(list, h("li", {}, empty("No messages", "Nothing here fits what you look for.")));
  }

  // What comes in from now on, on top; only so many are kept.
  function start() {
    const { partition, key, value, header } = filters();
    source = events(`${path("topics", topic, "events")}${query({ partition, key, value, header })}`);
    replace(list);
    let seen = 0;
    source.addEventListener("message", (event) => {
      list.prepend(item(JSON.parse(event.data)));
      seen += 1;
      while (list.children.length > FOLLOWED_MAX) list.lastElementChild.remove();
      replace(words, `${count(seen)} came in since you follow`);
    });
    // A connection that broke is made again by the browser; what the node ended stays so.
    source.addEventListener("error", (event) => {
      if (!event.data && source.readyState !== EventSource.CLOSED) return;
      stop();
      replace(words, event.data ? JSON.parse(event.data).detail : "The node does not let this topic be followed any more. Is it still there?");
    });
    // Only then does the node know from where on it is followed.
    source.addEventListener("open", () => {
      if (!seen) replace(words, key || value || header ? "Following. What is published now and fits appears here." : "Following. What is published now appears here.");
    });
    replace(words, "Connecting …");
    follow.lastChild.textContent = "Stop following";
    follow.setAttribute("aria-pressed", "true");
    more.hidden = true;
  }

  function stop() {
    if (!source) return;
    source.close();
    source = null;
    follow.lastChild.textContent = "Follow live";
    follow.setAttribute("aria-pressed", "false");
  }

  stage.onleave(stop);
  return { element, load: () => load(false) };
}

function instant(text) {
  return text ? new Date(text).toISOString() : "";
}

function headings() {
  return h(
    "div",
    { class: "message-list", "aria-hidden": "true" },
    h("div", { class: "message-head" }, h("span", {}, "Published"), h("span", {}, "Place"), h("span", {}, "Key"), h("span", {}, "Value"), h("span", {})),
  );
}

// One message: a line, and all of it once it is opened.
export function item(message) {
  const line = h(
    "summary",
    {},
    h("span", { class: "muted" }, exactly(message.timestamp)),
    h("span", { class: "mono" }, `${message.partition}:${message.offset}`),
    h("span", { class: "mono" }, message.key ?? ""),
    h("span", { class: "mono" }, preview(message)),
    message.priority && message.priority !== "normal" ? badge(message.priority, "violet") : h("span", {}),
  );
  const details = h("details", {}, line);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(opened(message));
  });
  return h("li", {}, details);
}

export function opened(message, besides = []) {
  const headers = Object.entries(message.headers ?? {});
  return h(
    "div",
    { class: "open" },
    showValue(message),
    facts([
      ["Id", messageLink(message.id)],
      ["Published", exactly(message.timestamp)],
      ["Key", message.key === null ? "none" : h("code", {}, message.key, message.key_encoding ? " (base64)" : "")],
      ["Priority", message.priority],
      ...headers.map(([name, value]) => [h("code", {}, name), h("code", {}, value ?? "null")]),
    ]),
    h("div", { class: "inline" }, link(`/trace?id=${encodeURIComponent(message.id)}`, "What became of it"), besides),
  );
}
