// Short words about what was done, told to eyes and ears alike, and gone after a while.

import { h } from "./dom.js";

const SHOWN_MS = 6000;

export function tell(words, { isBad = false } = {}) {
  const notice = h("div", { class: `notice ${isBad ? "is-bad" : ""}` }, words);
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), SHOWN_MS);
}
