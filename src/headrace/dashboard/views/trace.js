// Where is my message? Its state in every group now, and what happened to it so far.

import { get, path, query } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, count, moment, plural, zonedClock } from "../format.js";
import { badge, button, empty, exactly, facts, field, head, kindBadge, link, messageLink, panel, place, stateBadge, when } from "../parts.js";
import { table } from "../table.js";
import { showValue } from "../value.js";

const TONES = {
  acked: "good", nacked: "warn", "lease-expired": "warn", "dead-lettered": "bad",
  expired: "warn", cancelled: "warn", purged: "bad", "ack-aborted": "warn",
};
const RELATIONS = {
  origin: "It is the dead letter of", "dead-letter": "Its dead letter is",
  "redriven-to": "It was redriven to", "redriven-from": "It was redriven from",
};
// Of these it matters what became of them: a dead letter was perhaps redriven, and what it
// was redriven to is perhaps done.
const FATES = new Set(["dead-letter", "redriven-to"]);
const OUTCOMES = ["", "pending", "delayed", "leased", "retrying", "acked", "dead-lettered", "expired", "cancelled", "redriven", "purged"];
const PAGE = 30;

export async function trace(stage) {
  const about = "By its id, as in orders:0:42, or by the receipt of a lease; or look for it by what you know.";
  const id = h("input", { value: stage.query.id ?? "", placeholder: "orders:0:42, or a receipt", autocomplete: "off", spellcheck: "false", required: true });
  const found = h("div", { class: "stack", "aria-live": "polite" });
  const form = h("form", { class: "filters" }, field("Id or receipt", id), button("Show", () => {}, { tone: "primary", type: "submit" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    stage.remember({ id: id.value.trim() });
    show(stage, found, id.value.trim());
  });
  stage.show(head("Find a message", { about }), h("div", { class: "stack" }, h("section", { class: "panel", "aria-label": "Which message" }, form), found));
  if (stage.query.id) await show(stage, found, stage.query.id);
  else replace(found, finder(stage));
}

async function show(stage, element, id) {
  let life;
  try {
    life = await get(path("trace", id), stage.signal);
  } catch (error) {
    if (error.status === undefined || error.name === "AbortError") throw error;
    replace(element, h("section", { class: "panel" }, empty("It was not found", error.message)));
    return;
  }
  replace(
    element,
    h("div", { class: "wide-narrow" },
      h("div", { class: "stack" }, panel("What happened", timeline(life)), panel("Where it stands", standing(life))),
      h("div", { class: "stack" }, panel("Message", about(stage, life)), await content(stage, life))),
  );
}

function about(stage, life) {
  return h("div", { class: "panel-body" }, facts([
    ["Id", h("code", {}, life.id)],
    ["Topic", link(`/topics${place(life.topic)}?partition=${life.partition}`, life.topic)],
    ["Published", life.published_at ? exactly(life.published_at) : "its record is not retained any more"],
    ["Key", life.key === null ? "none" : h("code", {}, life.key)],
    ["Size", life.value_bytes === null ? undefined : bytes(life.value_bytes)],
    ["Producer", life.producer],
    ["Transaction", life.transaction],
    ["Trace context", life.traceparent && h("code", {}, life.traceparent)],
    ...life.links.map((each) => [RELATIONS[each.relation], [messageLink(each.id), FATES.has(each.relation) && fate(stage, each.id)]]),
    ...Object.entries(life.headers).map(([name, value]) => [h("code", {}, name), h("code", {}, value ?? "null")]),
  ]));
}

// Where a message that this one became stands now, filled in when it is known.
function fate(stage, id) {
  const shown = h("span", {});
  get(path("trace", id), stage.signal).then(
    ({ groups }) => replace(shown, groups.filter((each) => each.kind === "queue").map((each) => [" ", stateBadge(each.state), each.group === "__dead-letters" ? "" : ` in ${each.group}`])),
    () => {},
  );
  return shown;
}

async function content(stage, life) {
  if (!life.published_at) return null;
  try {
    const message = await get(path("topics", life.topic, "messages", String(life.partition), String(life.offset)), stage.signal);
    return panel("Value", h("div", { class: "panel-body" }, showValue(message)));
  } catch {
    // Part of a transaction that is open or was aborted: nobody may read it.
    return null;
  }
}

function timeline(life) {
  const words = life.cut && !life.sampled ? "Older history of messages that did not fail may be gone: this one is not sampled." : null;
  return h("div", { class: "panel-body" },
    h("ol", { class: "timeline" }, life.events.map((each) =>
      h("li", { class: TONES[each.event] ?? "" }, exactly(each.at), h("div", {}, told(each))))),
    words && h("p", { class: "muted" }, words));
}

function told(each) {
  const parts = [badge(each.event, TONES[each.event] ?? "accent"), " "];
  if (each.group) parts.push("in ", h("b", {}, each.group), " ");
  if (each.consumer) parts.push("by ", h("code", {}, each.consumer), " ");
  if (each.attempt !== undefined) parts.push(`attempt ${each.attempt} `);
  if (each.until) parts.push("until ", h("time", { datetime: each.until, title: moment(each.until) }, zonedClock(each.until)), " ");
  if (each.to) parts.push("to ", /:\d+$/.test(each.to) ? messageLink(each.to) : h("code", {}, each.to), " ");
  if (each.reason) parts.push(each.reason, " ");
  if (each.error) parts.push(h("div", { class: "muted" }, each.error));
  return parts;
}

function standing(life) {
  const rows = table({
    caption: `${life.id} in each group`,
    key: (row) => row.group,
    empty: ["No group reads this topic", ""],
    columns: [
      { label: "Group", fill: true, cell: (row) => link(`/groups${place(row.group)}`, row.group) },
      { label: "Kind", cell: (row) => kindBadge(row.kind) },
      { label: "State", cell: (row) => stateBadge(row.state) },
      { label: "Attempts", number: true, cell: (row) => (row.kind === "queue" ? count(row.attempts) : "–") },
      { label: "Held by", cell: (row) => row.consumer ?? "–" },
      { label: "Until", number: true, cell: (row) => (row.due ? when(row.due) : "–") },
    ],
  });
  rows.update(life.groups);
  return rows.element;
}

// Looking for messages over all topics by what happened to them.
function finder(stage) {
  const inputs = {
    topic: h("input", { placeholder: "any" }), key: h("input", { placeholder: "the whole key" }),
    header: h("input", { placeholder: "name or name=value" }), group: h("input", { placeholder: "any" }),
    outcome: h("select", {}, OUTCOMES.map((each) => h("option", { value: each }, each || "any"))),
  };
  const words = h("span", { class: "muted", "aria-live": "polite" });
  const rows = table({
    caption: "Messages that fit",
    key: (row) => row.id,
    empty: ["Nothing to show yet", "Say what you know of the message and search."],
    columns: [
      { label: "Message", cell: (row) => messageLink(row.id) },
      { label: "Published", cell: (row) => exactly(row.published_at) },
      { label: "Key", cell: (row) => h("code", {}, row.key ?? "") },
      { label: "States", fill: true, cell: (row) => row.groups.map((each) => [stateBadge(each.state), ` ${each.group} `]) },
    ],
  });
  let next = null;
  let known = [];
  // The search that is under way: another one, or Stop, ends it.
  let running = null;
  const more = button("Look further", () => (running ? stop() : load(true)), { tone: "small" });
  more.hidden = true;

  // One request looks at so much and no more, and may find nothing: it goes on until there
  // is a page to show, or the end.
  async function load(further) {
    stop();
    const mine = (running = new AbortController());
    const signal = AbortSignal.any([stage.signal, mine.signal]);
    const wanted = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
    if (!further) [next, known] = [null, []];
    const enough = known.length + PAGE;
    show();
    try {
      do {
        const page = await get(`/trace${query({ ...wanted, limit: PAGE, after: next })}`, signal);
        known = [...known, ...page.traces];
        next = page.next;
        show();
      } while (next && known.length < enough);
    } catch (error) {
      if (mine.signal.aborted && !stage.signal.aborted) return;
      if (error.status === undefined) throw error;
      replace(words, error.message);
      return;
    } finally {
      if (running === mine) running = null;
    }
    show();
  }

  function stop() {
    running?.abort();
    running = null;
    show();
  }

  function show() {
    rows.update(known);
    more.hidden = !next && !running;
    more.lastChild.textContent = running ? "Stop" : "Look further";
    const found = `${plural(known.length, "message")}${next || running ? " so far" : ""}`;
    replace(words, running && next ? `${found}, looking at ${next}` : found);
  }

  const form = h("form", { class: "filters" },
    field("Topic", inputs.topic), field("Key", inputs.key), field("Header", inputs.header), field("Group", inputs.group),
    field("State", inputs.outcome), button("Search", () => {}, { tone: "primary", type: "submit" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load(false);
  });
  rows.update([]);
  return panel("Search", [form, rows.element, h("div", { class: "pager" }, words, h("span", { class: "push" }), more)]);
}
