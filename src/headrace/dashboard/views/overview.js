// The node at a glance: what it does now, what it did in the last minutes, and what
// somebody should look at.

import { get } from "../api.js";
import { chart, spark } from "../chart.js";
import { h, replace } from "../dom.js";
import { bytes, count, duration, plural, rate, short, waited } from "../format.js";
import { icon } from "../icons.js";
import { liveSamples } from "../live.js";
import { badge, head, kindBadge, link, panel, place, tiles } from "../parts.js";
import { table } from "../table.js";

const EVERY_MS = 2000;
const TONES = { critical: "bad", warning: "warn" };

export async function overview(stage) {
  const about = h("p", { class: "muted" });
  const numbers = tiles([
    { label: "Published" }, { label: "Delivered" }, { label: "Ready" }, { label: "In work" },
    { label: "Streams behind" }, { label: "Dead letters" },
  ]);
  const throughput = chart({
    title: "Throughput", format: rate,
    series: [{ name: "published", key: "messages_in" }, { name: "delivered", key: "messages_out" }],
  });
  const depth = chart({
    title: "Queues", format: short,
    series: [{ name: "ready", key: "ready" }, { name: "in work", key: "leased" }, { name: "delayed", key: "delayed" }, { name: "waiting", key: "waiting", color: "s-5" }],
  });
  const latency = chart({
    title: "Publish latency", format: duration,
    series: [{ name: "half within", key: "publish_p50_ms" }, { name: "99% within", key: "publish_p99_ms", color: "s-3" }],
  });
  const machine = chart({
    title: "Disk and event loop", format: duration,
    series: [{ name: "99% of syncs within", key: "sync_p99_ms" }, { name: "loop late by", key: "loop_lag_p99_ms", color: "s-3" }],
  });
  const failures = chart({ title: "Failures", format: rate, series: [{ name: "nacked, expired or given up", key: "failures", color: "s-4" }] });
  const attention = h("div", { "aria-live": "polite" });
  const topics = topicTable();
  const groups = groupTable();
  const titles = head("Overview");
  titles.querySelector(".titles").append(about);
  stage.show(
    titles,
    h(
      "div",
      { class: "stack" },
      numbers.element,
      h("div", { class: "wide-narrow" },
        h("section", { class: "panel" }, throughput.element),
        panel("Needs attention", attention)),
      h("div", { class: "charts" },
        h("section", { class: "panel" }, latency.element),
        h("section", { class: "panel" }, depth.element),
        h("section", { class: "panel" }, failures.element),
        h("section", { class: "panel" }, machine.element)),
      h("div", { class: "columns" },
        panel("Busiest topics", topics.element, link("/topics", "All topics")),
        panel("Furthest behind", groups.element, link("/groups", "All groups"))),
    ),
  );

  await stage.every(EVERY_MS, async () => {
    const [now, samples] = await Promise.all([get("/overview", stage.signal), liveSamples(stage.signal)]);
    const words = [
      plural(now.topics, "topic"), plural(now.partitions, "partition"), plural(now.groups, "group"),
      plural(now.messages, "message"), bytes(now.size_bytes),
    ];
    replace(about, words.join(" · "));
    showNumbers(numbers, now, samples);
    for (const each of [throughput, latency, depth, failures, machine]) each.update(samples);
    showAttention(attention, now.attention);
    topics.update(now.busiest_topics);
    groups.update(now.groups_behind);
  });
}

function showNumbers(numbers, now, samples) {
  const last = samples.at(-1);
  if (!last) return;
  const recent = samples.slice(-60);
  const drawn = (key, tone) => ({ drawn: spark(recent.map((each) => each[key]), tone) });
  numbers.set(0, rate(last.messages_in), drawn("messages_in"));
  numbers.set(1, rate(last.messages_out), drawn("messages_out", "violet"));
  numbers.set(2, count(last.ready), drawn("ready"));
  numbers.set(3, count(last.leased), drawn("leased", "violet"));
  numbers.set(4, count(last.lag), drawn("lag", "warn"));
  numbers.set(5, count(now.dead_letters), { ...drawn("dead_letters", "bad"), isBad: now.dead_letters > 0 });
}

const PLACES = {
  topic: (name) => `/topics${place(name)}`,
  group: (name) => `/groups${place(name)}`,
  letters: (name) => `/letters${place(name)}`,
  transaction: () => "/transactions",
  node: () => "/node",
};

let told = "";

function showAttention(element, words) {
  const now = JSON.stringify(words);
  if (element.hasChildNodes() && told === now) return;
  told = now;
  if (!words.length) {
    replace(element, h("p", { class: "calm" }, icon("check"), "Nothing does. All is well."));
    return;
  }
  replace(
    element,
    h("ul", { class: "attention" }, words.map((each) =>
      h("li", {},
        badge(each.level, TONES[each.level]),
        h("div", { class: "text" }, link(PLACES[each.kind](each.name), each.name || "the node"), h("p", {}, each.text))))),
  );
}

function topicTable() {
  return table({
    caption: "The topics with the most published now",
    key: (row) => row.name,
    empty: ["No topics yet", "Publishing to one makes it."],
    columns: [
      { label: "Topic", fill: true, cell: (row) => link(`/topics${place(row.name)}`, row.name) },
      { label: "Published", number: true, cell: (row) => rate(row.rate_in) },
      { label: "Messages", number: true, cell: (row) => count(row.messages) },
      { label: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
    ],
  });
}

function groupTable() {
  return table({
    caption: "The groups with the most left to do",
    key: (row) => row.name,
    empty: ["No groups yet", "A group is made by its first consumer."],
    columns: [
      { label: "Group", fill: true, cell: (row) => link(row.kind === "queue" ? `/queues${place(row.name)}` : `/groups${place(row.name)}`, row.name) },
      { label: "Kind", cell: (row) => kindBadge(row.kind) },
      { label: "Behind", number: true, cell: (row) => count(row.lag) },
      { label: "Waiting", number: true, cell: (row) => waited(row.waited_seconds) },
      { label: "Out", number: true, cell: (row) => rate(row.rate_out) },
      { label: "Members", number: true, cell: (row) => count(row.members) },
    ],
  });
}
