// Groups of both kinds, with how far each is behind.

import { get, query } from "../api.js";
import { h } from "../dom.js";
import { count, rate, waited } from "../format.js";
import { bar, barLegend, head, kindBadge, link, panel, place, segments } from "../parts.js";
import { pager, table } from "../table.js";

const LIMIT = 50;
const EVERY_MS = 2000;

export function groupPlace(row) {
  return row.kind === "queue" ? `/queues${place(row.name)}` : `/groups${place(row.name)}`;
}

export function groupColumns() {
  return [
    { label: "Group", sort: "name", fill: true, cell: (row) => link(groupPlace(row), row.name) },
    { label: "Kind", cell: (row) => kindBadge(row.kind) },
    { label: "Behind", sort: "lag", number: true, cell: (row) => count(row.lag) },
    { label: "Waiting", sort: "waited_seconds", number: true, cell: (row) => waited(row.waited_seconds) },
    { label: "Of that", cell: (row) => (row.kind === "queue" ? bar(row) : "") },
    { label: "Out", sort: "rate_out", number: true, cell: (row) => rate(row.rate_out) },
    { label: "Members", sort: "members", number: true, cell: (row) => count(row.members) },
    { label: "Given up", sort: "dead_lettered", number: true, cell: (row) => (row.kind === "queue" ? count(row.dead_lettered) : "–") },
  ];
}

export async function groups(stage) {
  const state = { match: "", kind: stage.query.kind ?? "", sort: "name", descending: false, page: 0 };
  const match = h("input", { type: "search", placeholder: "Part of a name", "aria-label": "Show groups whose name has this in it" });
  const rows = table({
    caption: "Groups",
    key: (row) => row.name,
    sorted: state,
    columns: groupColumns(),
    empty: ["No groups", "A group is made by its first consumer."],
    onsort(sort) {
      state.descending = state.sort === sort ? !state.descending : sort !== "name";
      state.sort = sort;
      change();
    },
  });
  const pages = pager((step) => {
    state.page += step;
    refresh();
  });
  match.addEventListener("input", () => {
    state.match = match.value;
    change();
  });
  const kinds = segments("Kind of group", [["", "Both"], ["stream", "Streams"], ["queue", "Queues"]], state.kind, (kind) => {
    state.kind = kind;
    stage.remember({ kind });
    change();
  });

  function change() {
    state.page = 0;
    rows.showSort(state);
    refresh();
  }

  async function refresh() {
    const answer = await get(`/overview/groups${query({ ...state, limit: LIMIT })}`, stage.signal);
    rows.update(answer.groups);
    pages.update(state.page, LIMIT, answer.groups.length, answer.total);
  }

  const about = "Consumers that share work under one name. A stream has a cursor in each partition; a queue has a lease on each message.";
  stage.show(
    head("Groups", { about, actions: [kinds] }),
    panel("All groups", [rows.element, pages.element], h("div", { class: "inline" }, barLegend(), match)),
  );
  await stage.every(EVERY_MS, refresh);
}
