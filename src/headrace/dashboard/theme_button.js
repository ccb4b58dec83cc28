// The button that chooses between light and dark, remembered for the next page.

import { replace } from "./dom.js";
import { icon } from "./icons.js";
import { button } from "./parts.js";

export function themeButton() {
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const draw = () => replace(toggle, icon(isDark() ? "sun" : "moon"));
  const toggle = button("", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("headrace-theme", root.dataset.theme);
    } catch {
      // It holds for this page then.
    }
    toggle.setAttribute("aria-pressed", String(isDark()));
    draw();
  }, { tone: "quiet", label: "Dark theme" });
  toggle.setAttribute("aria-pressed", String(isDark()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
  return toggle;
}
