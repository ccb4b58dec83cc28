// One topic: its messages, partitions, groups and settings.

import { get, patch, path, query, remove, rule } from "../api.js";
import { confirm, openForm } from "../dialog.js";
import { h, replace } from "../dom.js";
import { bytes, count, plural, rate } from "../format.js";
import { spark } from "../chart.js";
import { messageList } from "../messages.js";
import { tell } from "../notices.js";
import { button, field, head, link, panel, place, settingsFacts, tabs, tiles } from "../parts.js";
import { publish } from "../publish.js";
import { changeSetting } from "../settings.js";
import { table } from "../table.js";
import { groupColumns } from "./groups.js";

const EVERY_MS = 2000;
const PAGE = 100;

export async function topic(stage) {
  const name = stage.params.topic;
  const tab = stage.query.tab ?? "messages";
  const [{ actions }, first, node] = await Promise.all([
    rule(), get(`${path("topics", name, "partitions")}${query({ limit: PAGE })}`, stage.signal), get("/node", stage.signal),
  ]);
  const numbers = tiles([{ label: "Messages" }, { label: "Size" }, { label: "Published" }, { label: "Partitions" }, { label: "Dead letters" }]);
  const rates = [];
  const body = h("div", {});
  const here = `/topics${place(name)}`;
  stage.show(
    head(name, { crumbs: link("/topics", "Topics"), actions: actions ? actionsOf(name) : [] }),
    h("div", { class: "stack" }, numbers.element, h("div", {}, tabs("Parts of this topic", [
      ["messages", "Messages", here],
      ["partitions", "Partitions", `${here}?tab=partitions`],
      ["groups", "Groups", `${here}?tab=groups`],
      ["settings", "Settings", `${here}?tab=settings`],
    ], tab), body)),
  );

  const part = { messages, partitions, groups, settings }[tab] ?? messages;
  const update = part(body, { name, first, stage, actions, defaults: node.topic_defaults });

  function show(now) {
    rates.push(now.rate_in);
    numbers.set(0, count(now.messages));
    numbers.set(1, bytes(now.size_bytes));
    numbers.set(2, rate(now.rate_in), { drawn: spark(rates.slice(-60)) });
    numbers.set(3, count(now.partition_count));
    numbers.set(4, count(now.dead_letters), { isBad: now.dead_letters > 0 });
    update?.(now);
  }

  show(first);
  await stage.every(EVERY_MS, async () => show(await get(`${path("topics", name, "partitions")}${query({ limit: PAGE })}`, stage.signal)));
}

function actionsOf(name) {
  return [
    button("Publish", () => publish(name), { tone: "primary", symbol: "plus" }),
    button("Delete", () => deleteTopic(name), { tone: "danger" }),
  ];
}

async function deleteTopic(name) {
  const gone = await confirm({
    title: `Delete ${name}?`,
    words: h("p", {}, "Every message of ", h("b", {}, name), ", its dead letters, and the positions and leases that groups have there are deleted. This cannot be undone."),
    action: "Delete the topic",
    typed: name,
    async submit() {
      await remove(path("topics", name));
      return true;
    },
  });
  if (!gone) return;
  tell(`${name} was deleted.`);
  document.querySelector('#nav a[data-name="topics"]').click();
}

function messages(body, { name, first, stage }) {
  const list = messageList({ topic: name, partitions: first.partition_count, stage });
  replace(body, panel("Messages", list.element));
  list.load();
}

function partitions(body, { name, first, stage, actions }) {
  const rows = table({
    caption: `Partitions of ${name}`,
    key: (row) => row.partition,
    columns: [
      { label: "Partition", cell: (row) => link(`/topics${place(name)}?partition=${row.partition}`, String(row.partition)) },
      { label: "First offset", number: true, cell: (row) => count(row.start_offset) },
      { label: "Next offset", number: true, cell: (row) => count(row.high_watermark) },
      { label: "Messages", number: true, cell: (row) => count(row.high_watermark - row.start_offset) },
      { label: "Undecided", number: true, cell: (row) => count(row.high_watermark - row.last_stable_offset) },
      { label: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
      { label: "Segments", number: true, cell: (row) => count(row.segments) },
    ],
  });
  const extra = [];
  let next = first.next;
  const more = button("Show more", async () => {
    const page = await get(`${path("topics", name, "partitions")}${query({ limit: PAGE, after: next })}`, stage.signal);
    extra.push(...page.partitions);
    next = page.next;
    more.hidden = next === null;
    rows.update([...first.partitions, ...extra]);
  }, { tone: "small" });
  more.hidden = next === null;
  let known = first.partition_count;
  const growing = actions && button("More partitions", () => grow(name, known), { tone: "small" });
  replace(body, panel("Partitions", [rows.element, h("div", { class: "pager" }, more)], growing));
  return (now) => {
    known = now.partition_count;
    rows.update([...now.partitions, ...extra]);
  };
}

function groups(body) {
  const rows = table({ caption: "Groups that read this topic", key: (row) => row.name, columns: groupColumns(), empty: ["Nobody reads this topic", "A group appears with its first consumer."] });
  replace(body, panel("Groups", rows.element));
  return (now) => rows.update(now.groups);
}

function settings(body, { name, first, actions, defaults }) {
  const shown = h("div", { class: "panel-body" }, settingsFacts(first.settings, defaults));
  const change = actions && button("Change a setting", () => changeSetting({ name, where: path("topics", name), settings: first.settings }), { tone: "small" });
  replace(body, panel("Settings", shown, h("span", { class: "muted" }, "what differs from the default is bold "), change));
  return (now) => {
    if (JSON.stringify(now.settings) !== JSON.stringify(first.settings)) {
      first.settings = now.settings;
      replace(shown, settingsFacts(now.settings, defaults));
    }
  };
}

function grow(name, partitions) {
  const number = h("input", { type: "number", min: String(partitions + 1), value: String(partitions * 2), required: true });
  const agreed = h("input", { type: "checkbox" });
  return openForm({
    title: `More partitions for ${name}`,
    body: [
      h("p", { class: "prose" }, "A topic grows and never shrinks. What has a key may go to another partition from then on: messages of one key that are there already are not moved, and can be read beside the new ones."),
      field("Partitions", number),
      h("label", { class: "check" }, agreed, "also where that breaks the order of keys or deduplication"),
    ],
    action: "Let it grow",
    async submit() {
      const now = await patch(path("topics", name), { partitions: Number(number.value), break_key_order: agreed.checked });
      tell(`${name} has ${plural(now.partitions.length, "partition")} now.`);
      return true;
    },
  });
}
