// Transactions that are open: whose, since when, who waits for them, and a way out.

import { get, post, query, rule } from "../api.js";
import { confirm } from "../dialog.js";
import { h } from "../dom.js";
import { count, duration, plural } from "../format.js";
import { tell } from "../notices.js";
import { badge, button, head, link, panel, place, segments, when } from "../parts.js";
import { table } from "../table.js";

const EVERY_MS = 2000;
const STUCK_MS = 60_000;

export async function transactions(stage) {
  const { actions } = await rule();
  const state = { all: stage.query.all === "true" };
  const rows = table({
    caption: "Transactions",
    key: (row) => row.id,
    empty: ["No transaction is open", "What a producer has begun and not ended appears here."],
    columns: [
      { label: "Id", cell: (row) => h("code", {}, row.id) },
      { label: "State", cell: (row) => stateOf(row) },
      { label: "Since", number: true, cell: (row) => (row.is_open && row.started_at ? when(row.started_at) : "–") },
      { label: "Aborted after", number: true, cell: (row) => duration(row.timeout_ms) },
      { label: "Producer", number: true, cell: (row) => `${row.producer_id}/${row.epoch}` },
      { label: "Waited for in", fill: true, cell: (row) => placesOf(row) },
      ...(actions ? [{ label: "Actions", hidden: true, cell: (row) => row.is_open && button("Abort", () => abort(row).then(refresh), { tone: "small danger", label: `Abort ${row.id}` }) }] : []),
    ],
  });

  async function refresh() {
    const { transactions: found } = await get(`/transactions${query({ all: state.all || "", limit: 200 })}`, stage.signal);
    found.sort((a, b) => Number(b.is_open) - Number(a.is_open) || (a.started_at ?? "").localeCompare(b.started_at ?? ""));
    rows.update(found);
  }

  const which = segments("Which", [["open", "Open"], ["all", "All ids"]], state.all ? "all" : "open", (chosen) => {
    state.all = chosen === "all";
    stage.remember({ all: state.all || "" });
    refresh();
  });
  const about = "Until a transaction ends, nobody who reads committed messages sees anything behind its first message.";
  stage.show(head("Transactions", { about, actions: [which] }), panel("Transactions", rows.element));
  await stage.every(EVERY_MS, refresh);
}

function stateOf(row) {
  if (!row.is_open) return badge(row.state, row.state === "CompleteCommit" ? "good" : "");
  const isStuck = row.started_at && Date.now() - Date.parse(row.started_at) > STUCK_MS;
  return isStuck ? badge(`${row.state}, stuck`, "bad") : badge(row.state, "violet");
}

function placesOf(row) {
  const topics = Map.groupBy(row.partitions, (each) => each.topic);
  if (!topics.size) return "–";
  return [...topics].slice(0, 4).map(([topic, places], index) => [
    index ? ", " : "",
    link(`/topics${place(topic)}?tab=partitions`, topic),
    places.length > 1 ? ` (${plural(places.length, "partition")})` : `:${places[0].partition} from ${count(places[0].first_offset)}`,
  ]);
}

function abort(row) {
  return confirm({
    title: `Abort the transaction of ${row.id}?`,
    words: h("p", {}, "What it has written in ", h("b", {}, plural(row.partitions.length, "partition")), " is never seen by readers of committed messages. Its producer is shut out and has to begin anew."),
    action: "Abort the transaction",
    typed: row.id,
    async submit() {
      const now = await post("/transactions/abort", { id: row.id });
      tell(`${row.id}: ${now.state}.`);
      return true;
    },
  });
}
