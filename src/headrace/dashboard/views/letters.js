// Dead letters: what was given up, by topic and by reason, and what to do about it.

import { get, path, post, query, rule } from "../api.js";
import { confirm } from "../dialog.js";
import { h, replace } from "../dom.js";
import { count, plural } from "../format.js";
import { tell } from "../notices.js";
import { badge, button, empty, exactly, facts, head, link, messageLink, panel, place, tabs, when } from "../parts.js";
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
  const chosen = actions ? selection(topic, latest.chosen, () => refresh()) : null;
  stage.show(
    head("Dead letters", { about, actions: actions ? [button("Redrive all", () => redrive(topic, { all: true }, `every dead letter of ${topic}`).then(refresh)), button("Purge all", () => purge(topic, { all: true }, `every dead letter of ${topic}`, topic).then(refresh), { tone: "danger" })] : [] }),
    tabs("Topics with dead letters", names.map((each) => [each.topic, [each.topic, " ", badge(count(each.count), each.count ? "bad" : "")], `/letters${place(each.topic)}`]), topic),
    h("div", { class: "stack" }, reasons, panel("One by one", latest.element, chosen?.element)),
  );
  let shown = "";

  async function refresh() {
    const [grouped, page] = await Promise.all([
      get(path("topics", topic, "dead-letters", "reasons"), stage.signal),
      get(`${path("topics", topic, "dead-letters")}${query({ limit: PAGE })}`, stage.signal),
    ]);
    latest.update(page.messages);
    chosen?.update();
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

// What is ticked, and what to do with all of it.
function selection(topic, chosen, refresh) {
  const words = h("span", { class: "muted", "aria-live": "polite" });
  const choice = () => ({ ids: [...chosen] });
  const said = () => `${plural(chosen.size, "selected dead letter")} of ${topic}`;
  const buttons = [
    button("Redrive selected", () => redrive(topic, choice(), said()).then(refresh), { tone: "small" }),
    button("Purge selected", () => purge(topic, choice(), said(), topic).then(refresh), { tone: "small danger" }),
  ];
  function update() {
    replace(words, chosen.size ? `${count(chosen.size)} selected` : "none selected");
    for (const each of buttons) each.disabled = chosen.size === 0;
  }
  chosen.onchange = update;
  update();
  return { element: h("div", { class: "inline" }, words, buttons), update };
}

// A set of what is ticked in a table; the box in its head stands for all rows of the page.
class Chosen extends Set {
  onchange = () => {};
  boxes = new Map();
  all = h("input", { type: "checkbox", "aria-label": "Select all on this page", onchange: () => this.tick([...this.boxes.keys()], this.all.checked) });

  box(id, label) {
    const made = h("input", { type: "checkbox", "aria-label": label, checked: this.has(id), onchange: () => this.tick([id], made.checked) });
    return made;
  }

  tick(ids, isTicked) {
    for (const id of ids) {
      if (isTicked) this.add(id);
      else this.delete(id);
    }
    this.show();
  }

  // What is not on the page any more cannot be seen to be ticked, so it is not.
  keep(element, ids) {
    const boxes = element.querySelectorAll("tbody input[type=checkbox]");
    this.boxes = new Map(ids.map((id, index) => [id, boxes[index]]));
    for (const id of [...this]) if (!this.boxes.has(id)) this.delete(id);
    this.show();
  }

  show() {
    for (const [id, box] of this.boxes) box.checked = this.has(id);
    this.all.checked = this.size > 0 && this.size === this.boxes.size;
    this.all.indeterminate = this.size > 0 && this.size < this.boxes.size;
    this.onchange();
  }
}

function letterTable(actions, topic, refresh) {
  const chosen = new Chosen();
  const rows = table({
    caption: "Dead letters",
    key: (row) => row.id,
    empty: ["No dead letters", ""],
    columns: [
      ...(actions ? [{ label: "Selected", head: chosen.all, cell: (row) => chosen.box(row.id, `Select ${row.source}`) }] : []),
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
  return {
    element: rows.element,
    chosen,
    update(letters) {
      rows.update(letters);
      if (actions) chosen.keep(rows.element, letters.map((each) => each.id));
    },
  };
}

async function look(row) {
  const { openSheet } = await import("../dialog.js");
  openSheet(`Dead letter of ${row.source}`, h("div", { class: "stack" }, facts([
    ["Group", row.group], ["Reason", row.reason], ["Error", row.error ?? "–"], ["Attempts", count(row.attempts)],
    ["Published", exactly(row.created_at)], ["Failed", exactly(row.failed_at)], ["Key", row.key ?? "none"],
  ]), showValue(row)));
}

// What a choice comes to, before anything happens; null when the node refuses it.
async function dryRun(topic, choice) {
  try {
    return await post(path("topics", topic, "dead-letters", "redrive"), { ...choice, dry_run: true });
  } catch (error) {
    tell(error.message, { isBad: true });
    return null;
  }
}

// A dry run first: what it would do is in the question.
async function redrive(topic, choice, words) {
  const where = path("topics", topic, "dead-letters", "redrive");
  const dry = await dryRun(topic, choice);
  if (!dry) return;
  const stays = [
    dry.looping && `${plural(dry.looping, "message")} came back too often already and would stay`,
    dry.orphaned && `${plural(dry.orphaned, "message")} would stay because the group is gone or reads a stream`,
  ].filter(Boolean);
  const going = dry.redriven;
  const ways = [
    dry.in_place && `${plural(dry.in_place, "message")} would be ready again in place, and nothing is published`,
    dry.copied && `${plural(dry.copied, "message")} would be published to ${topic} as a copy, which streams see, since the group cannot have the original again`,
  ].filter(Boolean);
  await confirm({
    title: `Redrive ${plural(going, "message")}?`,
    words: h("div", {},
      h("p", {}, "A dry run says: of ", h("b", {}, words), ", ", h("b", {}, plural(going, "message")), " would go back to the queue group in which they failed, and to no other."),
      ways.map((each) => h("p", {}, `${each}.`)),
      stays.map((each) => h("p", {}, `${each}.`))),
    action: `Redrive ${count(going)}`,
    tone: "primary",
    async submit() {
      const done = await post(where, choice);
      const back = `${plural(done.redriven, "message")} went back (${count(done.in_place)} in place, ${count(done.copied)} as copies)`;
      tell(done.stopped ? `${back}, then it stopped: ${done.stopped}.` : `${back}.`);
      return true;
    },
  });
}

async function purge(topic, choice, words, typed) {
  const found = await dryRun(topic, choice);
  if (!found) return;
  await confirm({
    title: `Purge ${plural(found.matched, "dead letter")}?`,
    words: h("p", {}, "A dry run says: of ", h("b", {}, words), ", this deletes ", h("b", {}, plural(found.matched, "message")), " for good. They can be neither redriven nor looked at afterwards."),
    action: "Purge them",
    typed,
    async submit() {
      const done = await post(path("topics", topic, "dead-letters", "purge"), choice);
      tell(`${plural(done.purged, "dead letter")} of ${topic} deleted.`);
      return true;
    },
  });
}
