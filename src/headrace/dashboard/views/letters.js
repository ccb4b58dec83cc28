// Dead letters: what was given up, by topic and by reason, and what to do about it.

import { get, path, post, query, rule } from "../api.js";
import { confirm } from "../dialog.js";
import { h, replace } from "../dom.js";
import { count, moment, plural } from "../format.js";
import { tell } from "../notices.js";
import { badge, button, empty, facts, head, link, messageLink, panel, place, tabs, when } from "../parts.js";
import { table } from "../table.js";
import { preview, showValue } from "../value.js";

const EVERY_MS = 4000;
const PAGE = 50;

export async function letters(stage) {
  const [{ actions }, counted] = await Promise.all([rule(), get("/dead-letters", stage.signal)]);
  const known = counted.topics;
  const topic = stage.params.topic ?? known[0]?.topic;
  const about = "Messages that were rejected, or failed as often as they may. They wait here until somebody sends them back or deletes them.";
  if (!topic) {
    stage.show(head("Dead letters", { about }), h("section", { class: "panel" }, empty("No dead letters", "Nothing was given up.")));
    return;
  }
  const names = known.some((each) => each.topic === topic) ? known : [...known, { topic, count: 0 }];
  const reasons = h("div", { class: "stack" });
  const latest = letterTable(actions, topic, () => refresh());
  stage.show(
    head("Dead letters", { about, actions: actions ? [button("Redrive all", () => redrive(topic, { all: true }, `every dead letter of ${topic}`).then(refresh)), button("Purge all", () => purge(topic, { all: true }, `every dead letter of ${topic}`, topic).then(refresh), { tone: "danger" })] : [] }),
    tabs("Topics with dead letters", names.map((each) => [each.topic, [each.topic, " ", badge(count(each.count), each.count ? "bad" : "")], `/letters${place(each.topic)}`]), topic),
    h("div", { class: "stack" }, reasons, panel("One by one", latest.element)),
  );
  let shown = "";

  async function refresh() {
    const [grouped, page] = await Promise.all([
      get(path("topics", topic, "dead-letters", "reasons"), stage.signal),
      get(`${path("topics", topic, "dead-letters")}${query({ limit: PAGE })}`, stage.signal),
    ]);
    latest.update(page.messages);
    const now = JSON.stringify(grouped);
    if (now !== shown) replace(reasons, showReasons(topic, grouped, actions, refresh));
    shown = now;
  }

  await stage.every(EVERY_MS, refresh);
}

function showReasons(topic, grouped, actions, refresh) {
  const rows = table({
    caption: `Dead letters of ${topic} by reason`,
    key: (row) => `${row.group} ${row.reason} ${row.error}`,
    empty: ["No dead letters", "Nothing of this topic was given up."],
    columns: [
      { label: "Reason", cell: (row) => badge(row.reason, "bad") },
      { label: "What the consumer said", fill: true, cell: (row) => row.error ?? "–" },
      { label: "Group", cell: (row) => link(`/queues${place(row.group)}`, row.group) },
      { label: "For example", cell: (row) => messageLink(row.samples[0]) },
      { label: "Messages", number: true, cell: (row) => count(row.count) },
      { label: "Last", number: true, cell: (row) => when(row.last_failed_at) },
      ...(actions ? [{ label: "Actions", hidden: true, cell: (row) => h("div", { class: "inline" },
        button("Redrive", () => redrive(topic, choiceOf(row), wordsOf(row)).then(refresh), { tone: "small", label: `Redrive ${wordsOf(row)}` }),
        button("Purge", () => purge(topic, choiceOf(row), wordsOf(row), topic).then(refresh), { tone: "small danger", label: `Purge ${wordsOf(row)}` })) }] : []),
    ],
  });
  rows.update(grouped.reasons);
  const words = grouped.more ? `of the first ${count(grouped.counted)}` : plural(grouped.counted, "message");
  return panel("By reason", rows.element, h("span", { class: "muted" }, words));
}

function choiceOf(row) {
  return { group: row.group, reason: row.error ?? row.reason };
}

function wordsOf(row) {
  return `dead letters of ${row.group} with “${row.error ?? row.reason}”`;
}

function letterTable(actions, topic, refresh) {
  return table({
    caption: "Dead letters",
    key: (row) => row.id,
    empty: ["No dead letters", ""],
    columns: [
      { label: "Was", cell: (row) => messageLink(row.source) },
      { label: "Failed", cell: (row) => when(row.failed_at) },
      { label: "Reason", cell: (row) => row.reason },
      { label: "Attempts", number: true, cell: (row) => count(row.attempts) },
      { label: "Redriven", number: true, cell: (row) => count(row.redrives) },
      { label: "Value", fill: true, cell: (row) => h("code", {}, preview(row)) },
      { label: "Actions", hidden: true, cell: (row) => h("div", { class: "inline" },
        button("Look", () => look(row), { tone: "small", label: `Look at ${row.source}` }),
        actions && button("Redrive", () => redrive(topic, { ids: [row.id] }, row.source).then(refresh), { tone: "small", label: `Redrive ${row.source}` })) },
    ],
  });
}

async function look(row) {
  const { openSheet } = await import("../dialog.js");
  openSheet(`Dead letter of ${row.source}`, h("div", { class: "stack" }, facts([
    ["Group", row.group], ["Reason", row.reason], ["Error", row.error ?? "–"], ["Attempts", count(row.attempts)],
    ["Published", moment(row.created_at)], ["Failed", moment(row.failed_at)], ["Key", row.key ?? "none"],
  ]), showValue(row)));
}

// A dry run first: what it would do is in the question.
async function redrive(topic, choice, words) {
  const where = path("topics", topic, "dead-letters", "redrive");
  let dry;
  try {
    dry = await post(where, { ...choice, dry_run: true });
  } catch (error) {
    tell(error.message, { isBad: true });
    return;
  }
  const stays = [
    dry.looping && `${plural(dry.looping, "message")} came back too often already and would stay`,
    dry.orphaned && `${plural(dry.orphaned, "message")} would stay because the group is gone`,
  ].filter(Boolean);
  const going = dry.matched - dry.looping - dry.orphaned;
  await confirm({
    title: `Redrive ${plural(going, "message")}?`,
    words: h("div", {},
      h("p", {}, "A dry run says: of ", h("b", {}, words), ", ", h("b", {}, plural(going, "message")), " would go back to ", h("b", {}, topic), ", for the queue group in which they failed and no other. Streams see the copies."),
      stays.map((each) => h("p", {}, `${each}.`))),
    action: `Redrive ${count(going)}`,
    tone: "primary",
    async submit() {
      const done = await post(where, choice);
      tell(done.stopped ? `${plural(done.redriven, "message")} went back, then it stopped: ${done.stopped}.` : `${plural(done.redriven, "message")} went back to ${topic}.`);
      return true;
    },
  });
}

async function purge(topic, choice, words, typed) {
  await confirm({
    title: "Purge dead letters?",
    words: h("p", {}, "This deletes ", h("b", {}, words), " for good. They can be neither redriven nor looked at afterwards."),
    action: "Purge them",
    typed,
    async submit() {
      const done = await post(path("topics", topic, "dead-letters", "purge"), choice);
      tell(`${plural(done.purged, "dead letter")} of ${topic} deleted.`);
      return true;
    },
  });
}
