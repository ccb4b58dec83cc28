// Messages that wait for their time, the next one first, and how to call one off.

import { get, path, query, remove, rule } from "../api.js";
import { confirm } from "../dialog.js";
import { h, replace } from "../dom.js";
import { moment, plural } from "../format.js";
import { tell } from "../notices.js";
import { button, empty, exactly, head, link, messageLink, panel, place, when } from "../parts.js";
import { table } from "../table.js";
import { preview } from "../value.js";

const PAGE = 100;
const EVERY_MS = 3000;
const SUGGESTED_MAX = 200;

export async function delayed(stage) {
  const { actions } = await rule();
  const topics = (await get(`/overview/topics${query({ limit: SUGGESTED_MAX })}`, stage.signal)).topics;
  const suggested = await withDelays(stage);
  let topic = stage.query.topic ?? suggested[0] ?? topics[0]?.name ?? "";
  const list = h("datalist", { id: "delayed-topics" }, topics.map(({ name }) => h("option", { value: name })));
  const choice = h("input", { list: "delayed-topics", value: topic, "aria-label": "Topic", placeholder: "Topic" });
  const words = h("span", { class: "muted" });
  const rows = table({
    caption: "Delayed messages, the next one first",
    key: (row) => row.id,
    empty: ["Nothing is delayed here", "Messages published with a delay wait here for their time."],
    columns: [
      { label: "Message", cell: (row) => messageLink(row.id) },
      { label: "Delivered", cell: (row) => when(row.deliver_at) },
      { label: "At", cell: (row) => exactly(row.deliver_at) },
      { label: "Key", cell: (row) => h("code", {}, row.key ?? "") },
      { label: "Value", fill: true, cell: (row) => h("code", {}, preview(row)) },
      ...(actions ? [{ label: "Actions", hidden: true, cell: (row) => button("Cancel it", () => cancel(topic, row).then(refresh), { tone: "small danger", label: `Cancel ${row.id}` }) }] : []),
    ],
  });

  async function refresh() {
    if (!topic) return;
    const page = await get(`${path("topics", topic, "delayed")}${query({ limit: PAGE })}`, stage.signal);
    rows.update(page.messages);
    replace(words, page.next ? `the next ${PAGE}` : plural(page.messages.length, "message"));
  }

  choice.addEventListener("change", () => {
    topic = choice.value.trim();
    stage.remember({ topic });
    refresh().catch((error) => tell(error.message, { isBad: true }));
  });
  const about = suggested.length
    ? ["Delayed messages wait in ", suggested.slice(0, 6).map((name, index) => [index ? ", " : "", link(`/delayed?topic=${encodeURIComponent(name)}`, name)]), "."]
    : "Messages that are published with a delay wait here, whichever groups will get them.";
  stage.show(
    head("Delayed", { about }),
    topic ? panel("Waiting for their time", rows.element, h("div", { class: "inline" }, words, choice, list)) : h("section", { class: "panel" }, empty("No topics yet", "")),
  );
  await stage.every(EVERY_MS, refresh);
}

async function withDelays(stage) {
  const { groups } = await get(`/overview/groups${query({ kind: "queue", limit: 1000 })}`, stage.signal);
  return [...new Set(groups.filter((each) => each.delayed).flatMap((each) => each.topics))];
}

function cancel(topic, row) {
  return confirm({
    title: `Cancel ${row.id}?`,
    words: h("p", {}, "It was to be delivered at ", h("b", {}, moment(row.deliver_at)), ". No queue will get it. The record stays in ", link(`/topics${place(topic)}`, topic), "."),
    action: "Cancel the message",
    async submit() {
      await remove(path("topics", topic, "delayed", String(row.partition), String(row.offset)));
      tell(`${row.id} was cancelled.`);
      return true;
    },
  });
}
