// A stream group: where its cursors are, who its members are, and how to move it.

import { get, path, post, query, remove, rule } from "../api.js";
import { confirm, openForm } from "../dialog.js";
import { h, replace } from "../dom.js";
import { count, plural, rate, zone } from "../format.js";
import { spark } from "../chart.js";
import { tell } from "../notices.js";
import { button, field, head, link, panel, place, tiles } from "../parts.js";
import { table } from "../table.js";

const EVERY_MS = 2000;
// A topic may have ten thousand partitions, and nobody reads as many rows.
const SHOWN = 200;
// Names that have this one in them.
const MATCHES_MAX = 1000;

export async function group(stage) {
  const name = stage.params.group;
  const [{ actions }, described, jobs] = await Promise.all([rule(), get(path("groups", name), stage.signal), get("/pipelines", stage.signal)]);
  if (described.kind === "queue") {
    location.replace(`/dashboard/queues${place(name)}`);
    return;
  }
  // A query on Spark goes on from its checkpoint, wherever its cursors are moved to.
  const isJob = jobs.sources.some((each) => each.name === name);
  const numbers = tiles([{ label: "Behind" }, { label: "Reads" }, { label: "Members" }, { label: "Partitions" }]);
  const cursors = cursorTable(name);
  const members = memberTable(name);
  const most = h("span", { class: "muted" });
  stage.show(
    head(name, {
      crumbs: link("/groups", "Groups"),
      about: described.topics.length ? ["Reads ", described.topics.map((each, index) => [index ? ", " : "", link(`/topics${place(each)}`, each)])] : "Has read nothing yet.",
      actions: actions ? [!isJob && button("Move the cursors", () => move(name, described.topics)), button("Delete", () => deleteGroup(name), { tone: "danger" })] : [],
    }),
    h("div", { class: "stack" }, numbers.element, panel("Cursors", cursors.element, most), isJob
      ? panel("Members", h("p", { class: "panel-body muted" }, "A query on Spark is no member. It commits how far it has come, and goes on from its own checkpoint."))
      : panel("Members", members.element)),
  );
  const behind = [];
  await stage.every(EVERY_MS, async () => {
    const [lag, now, rows] = await Promise.all([
      get(`${path("groups", name, "lag")}${query({ limit: SHOWN })}`, stage.signal), get(path("groups", name, "members"), stage.signal),
      get(`/overview/groups${query({ match: name, kind: "stream", limit: MATCHES_MAX })}`, stage.signal),
    ]);
    behind.push(lag.lag);
    const row = rows.groups.find((each) => each.name === name);
    numbers.set(0, count(lag.lag), { drawn: spark(behind.slice(-60), "warn") });
    if (row) numbers.set(1, rate(row.rate_out));
    numbers.set(2, isJob ? "–" : count(now.members.length));
    numbers.set(3, count(lag.partition_count));
    replace(most, lag.partition_count > SHOWN ? `the ${SHOWN} furthest behind of ${count(lag.partition_count)}` : "");
    cursors.update(lag.partitions);
    members.update(now.members);
  });
}

function cursorTable(name) {
  return table({
    caption: `Cursors of ${name}`,
    key: (row) => `${row.topic}:${row.partition}`,
    empty: ["No cursors", "Nothing was committed yet."],
    columns: [
      { label: "Partition", fill: true, cell: (row) => link(`/topics${place(row.topic)}?partition=${row.partition}`, `${row.topic}:${row.partition}`) },
      { label: "Cursor", number: true, cell: (row) => count(row.offset) },
      { label: "End", number: true, cell: (row) => count(row.end_offset) },
      { label: "Behind", number: true, cell: (row) => count(row.lag) },
    ],
  });
}

export function memberTable(name) {
  return table({
    caption: `Members of ${name}`,
    key: (row) => row.id,
    empty: ["Nobody reads as this group now", ""],
    columns: [
      { label: "Member", cell: (row) => h("code", {}, row.id) },
      { label: "Client", cell: (row) => row.client_id || "–" },
      { label: "Host", cell: (row) => row.host || "–" },
      { label: "Has", fill: true, cell: (row) => row.assigned.join(", ") || "–" },
    ],
  });
}

function move(name, topics) {
  const topic = h("select", {}, topics.map((each) => h("option", {}, each)));
  const where = h("select", {},
    h("option", { value: "earliest" }, "the start"), h("option", { value: "latest" }, "the end"),
    h("option", { value: "time" }, "a moment"), h("option", { value: "offset" }, "an offset"));
  const time = h("input", { type: "datetime-local", step: "1" });
  const offset = h("input", { type: "number", min: "0" });
  const partition = h("input", { type: "number", min: "0", placeholder: "all" });
  const [timeField, offsetField] = [field(`Moment, ${zone()}`, time), field("Offset", offset)];
  const show = () => {
    timeField.hidden = where.value !== "time";
    offsetField.hidden = where.value !== "offset";
  };
  where.addEventListener("change", show);
  show();
  return openForm({
    title: `Move the cursors of ${name}`,
    body: [
      h("p", { class: "prose" }, "The group goes on from there: what lies behind is read again, what lies before is skipped. It must have no members meanwhile."),
      h("div", { class: "fields" }, field("Topic", topic), field("Partition", partition), field("To", where), timeField, offsetField),
    ],
    action: "Move the cursors",
    async submit() {
      const wanted = { topic: topic.value };
      if (partition.value !== "") wanted.partition = Number(partition.value);
      if (where.value === "time") wanted.time = new Date(time.value).toISOString();
      else if (where.value === "offset") wanted.offset = Number(offset.value);
      else wanted.to = where.value;
      const lag = await post(path("groups", name, "reset"), wanted);
      tell(`${name} was moved: ${plural(lag.lag, "message")} behind now.`);
      return true;
    },
  });
}

export async function deleteGroup(name) {
  const gone = await confirm({
    title: `Delete the group ${name}?`,
    words: h("p", {}, "How far ", h("b", {}, name), " is, and which messages it has done, is forgotten. The messages themselves stay. A consumer of this name begins anew."),
    action: "Delete the group",
    typed: name,
    async submit() {
      await remove(path("groups", name));
      return true;
    },
  });
  if (!gone) return;
  tell(`${name} was deleted.`);
  document.querySelector('#nav a[data-name="groups"]').click();
}
