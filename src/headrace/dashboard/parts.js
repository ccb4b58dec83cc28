// The parts that views are made of.

import { h, replace } from "./dom.js";
import { moment, relative, setting, utc } from "./format.js";
import { icon } from "./icons.js";

export function link(where, ...words) {
  return h("a", { class: "link", href: `/dashboard${where}` }, ...words);
}

export function place(...parts) {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

// A message's id is its place, `topic:partition:offset`, and leads to its timeline.
export function messageLink(id) {
  return h("a", { class: "link mono", href: `/dashboard/trace?id=${encodeURIComponent(id)}` }, id);
}

export function head(title, { crumbs, about, actions = [] } = {}) {
  return h(
    "div",
    { class: "head" },
    h(
      "div",
      { class: "titles" },
      crumbs && h("p", { class: "crumbs" }, crumbs),
      h("h1", {}, title),
      about && h("p", {}, about),
    ),
    h("div", { class: "actions" }, actions),
  );
}

export function panel(title, body, ...besides) {
  return h(
    "section",
    { class: "panel", "aria-label": title },
    h("div", { class: "panel-head" }, h("h2", {}, title), h("div", { class: "push" }, besides)),
    body,
  );
}

export function tabs(label, items, current) {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    items.map(([key, words, where]) =>
      h("a", { href: `/dashboard${where}`, "aria-current": key === current ? "page" : null }, words),
    ),
  );
}

export function badge(words, tone = "") {
  return h("span", { class: `badge ${tone}` }, words);
}

export function kindBadge(kind) {
  return badge(kind, kind === "queue" ? "violet" : "accent");
}

const STATE_TONES = {
  acked: "good", pending: "accent", leased: "violet", delayed: "", retrying: "warn",
  "dead-lettered": "bad", expired: "warn", cancelled: "", redriven: "accent", purged: "bad", read: "good", unread: "accent",
};

export function stateBadge(state) {
  return badge(state, STATE_TONES[state] ?? "");
}

export function button(words, onclick, { tone = "", symbol = null, label = null, type = "button" } = {}) {
  return h("button", { class: `button ${tone}`, type, onclick, "aria-label": label }, symbol && icon(symbol), words);
}

export function segments(label, options, chosen, onchange) {
  const buttons = options.map(([key, words]) =>
    h("button", { type: "button", "aria-pressed": String(key === chosen), onclick: () => choose(key) }, words),
  );
  function choose(key) {
    options.forEach(([each], index) => buttons[index].setAttribute("aria-pressed", String(each === key)));
    onchange(key);
  }
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

export function empty(strong, words) {
  return h("div", { class: "empty" }, h("strong", {}, strong), words);
}

export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(([, value]) => value !== undefined).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

export function settingsFacts(settings, defaults = {}) {
  return facts(
    Object.entries(settings).map(([name, value]) => [
      h("code", {}, name),
      name in defaults && JSON.stringify(defaults[name]) !== JSON.stringify(value)
        ? h("b", {}, setting(name, value))
        : setting(name, value),
    ]),
  );
}

// A moment, told as "3 min ago" and in full on hover.
export function when(text) {
  return h("time", { datetime: text ?? "", title: text ? `${moment(text)}\n${utc(text)}` : null }, relative(text));
}

// A moment in full, with its zone, and in UTC on hover.
export function exactly(text) {
  return h("time", { datetime: text ?? "", title: utc(text) || null }, moment(text));
}

const SHARES = ["ready", "waiting", "leased", "retrying", "delayed"];

// Shares of a whole, drawn as one bar; said in full for who cannot see it.
export function bar(counts) {
  const total = SHARES.reduce((sum, name) => sum + (counts[name] || 0), 0);
  const words = SHARES.map((name) => `${counts[name] || 0} ${name}`).join(", ");
  return h(
    "div",
    { class: "bar", role: "img", "aria-label": words, title: words },
    SHARES.filter((name) => counts[name]).map((name) => {
      const part = h("span", { class: `c-${name}` });
      part.style.width = `${(counts[name] / total) * 100}%`;
      return part;
    }),
  );
}

export function barLegend() {
  return h("ul", { class: "legend" }, SHARES.map((name) => h("li", {}, h("span", { class: `dot c-${name}` }), name)));
}

export function field(words, input) {
  return h("label", {}, words, input);
}

// Tiles: one number each. Their texts are changed in place as the numbers move.
export function tiles(items) {
  const values = items.map(() => h("dd", {}, "–"));
  const sparks = items.map(() => h("div", {}));
  const element = h(
    "dl",
    { class: "tiles" },
    items.map(({ label }, index) => h("div", { class: "tile" }, h("dt", {}, label), values[index], sparks[index])),
  );
  return {
    element,
    set(index, text, { drawn = null, isBad = false } = {}) {
      if (values[index].textContent !== text) values[index].textContent = text;
      values[index].parentElement.classList.toggle("is-bad", isBad);
      if (drawn) replace(sparks[index], drawn);
    },
  };
}
