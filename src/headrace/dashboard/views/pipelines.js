// Pipelines on Spark: how far each reader is, by what its connector commits, and what
// each exactly-once sink wrote last.

import { get } from "../api.js";
import { h } from "../dom.js";
import { count, rate } from "../format.js";
import { head, link, panel, place, when } from "../parts.js";
import { table } from "../table.js";

const EVERY_MS = 2000;

export async function pipelines(stage) {
  const sources = table({
    caption: "Pipelines that read topics",
    key: (row) => row.name,
    empty: ["No pipeline reads from this node", "Give a query the option progressGroup, and it appears here with its progress."],
    columns: [
      { label: "Pipeline", fill: true, cell: (row) => link(`/groups${place(row.name)}`, row.name) },
      { label: "Reads", cell: (row) => row.topics.map((each, index) => [index ? ", " : "", link(`/topics${place(each)}`, each)]) },
      { label: "Read so far", number: true, cell: (row) => count(row.read) },
      { label: "Behind", number: true, cell: (row) => count(row.lag) },
      { label: "Reads now", number: true, cell: (row) => rate(row.rate) },
      { label: "Last batch", number: true, cell: (row) => when(row.committed_at) },
    ],
  });
  const sinks = table({
    caption: "Exactly-once sinks",
    key: (row) => row.name,
    empty: ["No sink writes to this node exactly once", ""],
    columns: [
      { label: "Sink", fill: true, cell: (row) => h("code", {}, row.name) },
      { label: "Writes to", cell: (row) => row.topics.map((each, index) => [index ? ", " : "", link(`/topics${place(each)}`, each)]) },
      { label: "Tasks", number: true, cell: (row) => count(row.tasks) },
      { label: "Rows written", number: true, cell: (row) => count(row.rows) },
      { label: "Last batch", number: true, cell: (row) => count(row.batch) },
      { label: "Written", number: true, cell: (row) => when(row.committed_at) },
    ],
  });
  const about = "Jobs on Spark that turn topics into tables and back. Rows and late data are in each pipeline's own ledger: headrace pipeline status.";
  stage.show(head("Pipelines", { about }), h("div", { class: "stack" }, panel("Reading", sources.element), panel("Writing exactly once", sinks.element)));
  let before = new Map();
  await stage.every(EVERY_MS, async () => {
    const now = await get("/pipelines", stage.signal);
    const at = performance.now();
    sources.update(now.sources.map((row) => {
      const earlier = before.get(row.name);
      return { ...row, rate: earlier ? Math.max(0, row.read - earlier.read) / ((at - earlier.at) / 1000) : 0 };
    }));
    before = new Map(now.sources.map((row) => [row.name, { read: row.read, at }]));
    sinks.update(now.sinks);
  });
}
