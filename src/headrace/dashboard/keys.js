// The keyboard: / to find, g and a letter to go, ? for this list.

import { openSheet } from "./dialog.js";
import { h } from "./dom.js";

const WAIT_MS = 1200;

export function startKeys(routes, { go, find }) {
  let since = 0;
  const places = new Map(routes.filter((each) => each.letter).map((each) => [each.letter, each]));

  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest?.("input, textarea, select, dialog")) return;
    if (event.key === "/") {
      event.preventDefault();
      find();
    } else if (event.key === "?") {
      showKeys(places);
    } else if (event.key === "g") {
      since = event.timeStamp;
    } else if (since && event.timeStamp - since < WAIT_MS && places.has(event.key)) {
      since = 0;
      event.preventDefault();
      go(`/dashboard${places.get(event.key).path}`);
    } else {
      since = 0;
    }
  });
}

export function showKeys(places) {
  const row = (keys, words) => [h("span", {}, keys.map((key) => [h("kbd", {}, key), " "])), h("span", {}, words)];
  openSheet(
    "Keyboard",
    h(
      "div",
      { class: "keys" },
      row(["/"], "find a topic, a group or a message"),
      [...places.values()].map((each) => row(["g", each.letter], each.label)),
      row(["←", "→"], "read a chart that has the focus"),
      row(["?"], "show this list"),
    ),
  );
}
