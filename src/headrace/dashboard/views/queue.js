// One queue: its lanes, what is out with whom, and an operator's say in it.

import { get, path, post, query, rule } from "../api.js";
import { openForm } from "../dialog.js";
import { h, replace } from "../dom.js";
import { count, duration, plural, rate, relative } from "../format.js";
import { spark } from "../chart.js";
import { tell } from "../notices.js";
import { badge, bar, barLegend, button, field, head, link, messageLink, panel, place, settingsFacts, tiles, when } from "../parts.js";
import { changeSetting } from "../settings.js";
import { table } from "../table.js";
import { deleteGroup, memberTable } from "./group.js";

const EVERY_MS = 2000;
const SHOWN = 100;

export async function queue(stage) {
  const name = stage.params.group;
  const [{ actions }, described, node] = await Promise.all([rule(), get(path("groups", name), stage.signal), get("/node", stage.signal)]);
  const numbers = tiles([{ label: "Ready" }, { label: "Waiting" }, { label: "In work" }, { label: "Delivered" }, { label: "Oldest ready" }, { label: "Nacked" }, { label: "Leases ended" }, { label: "Given up" }]);
  const lanes = laneTable();
  const waits = waitTable();
  const holders = h("div", { class: "panel-body inline" });
  const leases = leaseTable(name, actions, () => refresh());
  const members = memberTable(name);
  const words = h("span", { class: "muted" });
  const settings = h("div", { class: "panel-body" }, settingsFacts(described.settings, node.group_defaults));
  async function change() {
    const now = await changeSetting({ name, where: path("groups", name), settings: described.settings });
    if (!now) return;
    described.settings = now.settings;
    replace(settings, settingsFacts(now.settings, node.group_defaults));
  }
  stage.show(
    head(name, {
      crumbs: link("/queues", "Queues"),
      about: ["Works through ", described.topics.map((each, index) => [index ? ", " : "", link(`/topics${place(each)}`, each)])],
      actions: actions ? [button("Delete", () => deleteGroup(name), { tone: "danger" })] : [],
    }),
    h("div", { class: "stack" },
      numbers.element,
      panel("Lanes", lanes.element, barLegend()),
      panel("How long messages take", waits.element, h("span", { class: "muted" }, "in the last minutes")),
      panel("In work", [holders, leases.element], words),
      h("div", { class: "columns" },
        panel("Members", members.element),
        panel("Settings", settings, actions && button("Change a setting", change, { tone: "small" })))),
  );
  const delivered = [];

  async function refresh() {
    const where = query({ group: name });
    const [{ groups: [now] }, { groups: [lanesNow] }, held, people] = await Promise.all([
      get(`/reliability/stats${where}`, stage.signal), get(`/priority/stats${where}`, stage.signal),
      get(`${path("queues", name, "leases")}${query({ limit: SHOWN })}`, stage.signal),
      get(path("groups", name, "members"), stage.signal),
    ]);
    delivered.push(now.rate_out);
    numbers.set(0, count(now.ready));
    numbers.set(1, count(now.waiting));
    numbers.set(2, count(now.leased));
    numbers.set(3, rate(now.rate_out), { drawn: spark(delivered.slice(-60), "violet") });
    numbers.set(4, now.oldest ? relative(now.oldest).replace(" ago", "") : "–");
    numbers.set(5, count(now.nacked));
    numbers.set(6, count(now.lease_expired));
    numbers.set(7, count(now.dead_lettered), { isBad: now.dead_lettered > 0 });
    lanes.update(lanesNow.lanes);
    waits.update([{ label: "From publish to lease", ...now.publish_to_lease }, { label: "From publish to ack", ...now.publish_to_ack }]);
    leases.update(held.leases);
    showHolders(holders, held.leases);
    replace(words, held.total > held.leases.length ? `the ${SHOWN} that end first, of ${count(held.total)}` : plural(held.total, "message"));
    members.update(people.members);
  }

  await stage.every(EVERY_MS, refresh);
}

function laneTable() {
  return table({
    caption: "Lanes by priority",
    key: (row) => row.priority,
    columns: [
      { label: "Lane", cell: (row) => row.priority },
      { label: "Shares", fill: true, cell: (row) => bar(row) },
      { label: "Ready", number: true, cell: (row) => count(row.ready) },
      { label: "In work", number: true, cell: (row) => count(row.leased) },
      { label: "Retrying", number: true, cell: (row) => count(row.retrying) },
      { label: "Delayed", number: true, cell: (row) => count(row.delayed) },
      { label: "Delivered", number: true, cell: (row) => count(row.delivered) },
      { label: "Out", number: true, cell: (row) => rate(row.rate_out) },
      { label: "Oldest", number: true, cell: (row) => (row.oldest ? when(row.oldest) : "–") },
    ],
  });
}

function waitTable() {
  return table({
    caption: "How long messages wait for a consumer, and take until they are done",
    key: (row) => row.label,
    columns: [
      { label: "Way", fill: true, cell: (row) => row.label },
      { label: "Messages", number: true, cell: (row) => count(row.count) },
      { label: "p50", number: true, cell: (row) => duration(row.p50_ms) },
      { label: "p95", number: true, cell: (row) => duration(row.p95_ms) },
      { label: "p99", number: true, cell: (row) => duration(row.p99_ms) },
    ],
  });
}

function leaseTable(group, actions, refresh) {
  const columns = [
    { label: "Message", cell: (row) => messageLink(row.id) },
    { label: "Held by", fill: true, cell: (row) => h("code", {}, row.consumer) },
    { label: "Attempt", number: true, cell: (row) => count(row.attempt) },
    { label: "Since", number: true, cell: (row) => when(row.leased_at) },
    { label: "Ends", number: true, cell: (row) => when(row.deadline) },
  ];
  if (actions) {
    columns.push({
      label: "Actions", hidden: true, cell: (row) => h("div", { class: "inline" },
        button("Extend", () => extend(group, row).then(refresh), { tone: "small", label: `Extend the lease on ${row.id}` }),
        button("Release", () => release(group, row).then(refresh), { tone: "small", label: `Release ${row.id}` })),
    });
  }
  return table({ caption: "Messages under lease, those that end first on top", key: (row) => `${row.id} ${row.attempt}`, columns, empty: ["Nothing is out", "Leased messages appear here with who holds them."] });
}

function showHolders(element, leases) {
  const counted = new Map();
  for (const { consumer } of leases) counted.set(consumer, (counted.get(consumer) ?? 0) + 1);
  element.hidden = counted.size === 0;
  replace(element, [...counted].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([consumer, number]) =>
    badge(`${consumer} holds ${number}`)));
}

function extend(group, row) {
  const seconds = h("input", { type: "number", min: "1", value: "60", required: true });
  return openForm({
    title: `Extend the lease on ${row.id}`,
    body: [h("p", { class: "prose" }, "It ends so many seconds from now. ", h("b", {}, row.consumer), " keeps it until then."), field("Seconds", seconds)],
    action: "Extend",
    async submit() {
      const answer = await post(path("queues", group, "leases", "extend"), { ids: [row.id], visibility: Number(seconds.value) });
      tell(answer.changed ? `${row.id} is held for ${duration(seconds.value * 1000)} more.` : `${row.id} is not under lease any more.`);
      return true;
    },
  });
}

function release(group, row) {
  return openForm({
    title: `Release ${row.id}?`,
    body: h("p", { class: "prose" }, "It goes back to the queue at once and does not count as an attempt. ", h("b", {}, row.consumer), " may still be at work on it: then it is done twice."),
    action: "Release it",
    async submit() {
      const answer = await post(path("queues", group, "leases", "release"), { ids: [row.id] });
      tell(answer.changed ? `${row.id} is back in the queue.` : `${row.id} was not under lease any more.`);
      return true;
    },
  });
}
