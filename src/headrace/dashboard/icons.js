// Small line drawings, 24 by 24, in the colour of the text around them.

import { s } from "./dom.js";

const DRAWN = {
  overview: "M4 19V10M10 19V5M16 19v-7M22 19H2",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM3 19c0-3 2.7-5 6-5s6 2 6 5M16 5.2a3 3 0 0 1 0 5.6M18 14.4c1.9.7 3 2.4 3 4.6",
  queues: "M4 5h16v4H4zM4 12h12v3H4zM4 18h8",
  delayed: "M12 21a8 8 0 1 0 0-16 8 8 0 0 0 0 16ZM12 9v4l3 2M9 2h6",
  letters: "M4 6h16v12H4zM4 7l8 6 8-6",
  trace: "M5 6a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM5 6v6c0 2 1 3 3 3h5M15 17a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM17 15h4",
  transactions: "M7 7h12l-3-3M17 17H5l3 3",
  pipelines: "M3 7h6v4h6v6h6M6 4v6M18 14v6",
  node: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8ZM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5Z",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM20 20l-4-4",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6 6 18",
  play: "M8 5v14l11-7z",
  pause: "M8 5v14M16 5v14",
  check: "M5 13l4 4L19 7",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
};

export function icon(name) {
  return s(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    s("path", { d: DRAWN[name] }),
  );
}
