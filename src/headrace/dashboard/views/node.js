// The node itself: what runs, since when, how it is set up, and its limits.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, duration, plural } from "../format.js";
import { badge, exactly, facts, head, panel, settingsFacts, tiles } from "../parts.js";

const EVERY_MS = 5000;

export async function node(stage) {
  const numbers = tiles([{ label: "Running for" }, { label: "Memory" }, { label: "CPU time" }, { label: "Disk free" }]);
  const about = h("div", { class: "panel-body" });
  const settings = h("div", { class: "panel-body" });
  const topics = h("div", { class: "panel-body" });
  const groups = h("div", { class: "panel-body" });
  const most = h("div", { class: "panel-body" });
  stage.show(
    head("Node", { about: "What runs here, how it is set up, and what it will not go beyond." }),
    h(
      "div",
      { class: "stack" },
      numbers.element,
      h("div", { class: "columns" }, panel("About", about), panel("Settings", settings)),
      h("div", { class: "columns" }, panel("Defaults of topics", topics), panel("Defaults of queues", groups)),
      panel("Limits", most),
    ),
  );
  let isDrawn = false;
  await stage.every(EVERY_MS, async () => {
    const known = await get("/node", stage.signal);
    numbers.set(0, duration(known.uptime_seconds * 1000));
    numbers.set(1, known.memory_bytes === null ? "–" : bytes(known.memory_bytes));
    numbers.set(2, duration(known.cpu_seconds * 1000));
    numbers.set(3, bytes(known.disk_free_bytes));
    if (isDrawn) return;
    isDrawn = true;
    replace(about, facts([
      ["Version", known.version],
      ["Node", String(known.node_id)],
      ["Cluster", h("code", {}, known.cluster_id)],
      ["Python", known.python],
      ["Hot paths", known.compiled ? badge("compiled", "good") : badge("plain Python")],
      ["Started", exactly(known.started_at)],
    ]));
    replace(settings, settingsFacts(known.settings));
    replace(topics, settingsFacts(known.topic_defaults));
    replace(groups, settingsFacts(known.group_defaults));
    replace(most, h("p", { class: "muted" }, `${plural(Object.keys(known.limits).length, "limit")}; none of them can be set.`), h("div", { class: "columns" }, halves(known.limits)));
  });
}

function halves(limits) {
  const all = Object.entries(limits);
  const middle = Math.ceil(all.length / 2);
  return [all.slice(0, middle), all.slice(middle)].map((part) => settingsFacts(Object.fromEntries(part)));
}
