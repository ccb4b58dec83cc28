// Topics as a table: found by a part of their name, sorted by any column, made here.

import { get, post, query, rule } from "../api.js";
import { openForm } from "../dialog.js";
import { h } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { tell } from "../notices.js";
import { button, field, head, link, panel, place } from "../parts.js";
import { pager, table } from "../table.js";

const LIMIT = 50;
const EVERY_MS = 2000;

export async function topics(stage) {
  const { actions } = await rule();
  const state = { match: stage.query.match ?? "", sort: stage.query.sort ?? "name", descending: stage.query.descending === "true", page: 0 };
  const match = h("input", { type: "search", placeholder: "Part of a name", value: state.match, "aria-label": "Show topics whose name has this in it" });
  const rows = table({
    caption: "Topics",
    key: (row) => row.name,
    sorted: state,
    empty: ["No topics", "Publishing to a topic makes it, and so does New topic."],
    onsort(sort) {
      state.descending = state.sort === sort ? !state.descending : sort !== "name";
      state.sort = sort;
      change();
    },
    columns: [
      { label: "Name", sort: "name", fill: true, cell: (row) => link(`/topics${place(row.name)}`, row.name) },
      { label: "Partitions", sort: "partitions", number: true, cell: (row) => count(row.partitions) },
      { label: "Messages", sort: "messages", number: true, cell: (row) => count(row.messages) },
      { label: "Size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
      { label: "Published", sort: "rate_in", number: true, cell: (row) => rate(row.rate_in) },
    ],
  });
  const pages = pager((step) => {
    state.page += step;
    refresh();
  });
  match.addEventListener("input", () => {
    state.match = match.value;
    change();
  });

  function change() {
    state.page = 0;
    stage.remember({ match: state.match, sort: state.sort === "name" ? "" : state.sort, descending: state.descending || "" });
    rows.showSort(state);
    refresh();
  }

  async function refresh() {
    const answer = await get(`/overview/topics${query({ ...state, limit: LIMIT })}`, stage.signal);
    rows.update(answer.topics);
    pages.update(state.page, LIMIT, answer.topics.length, answer.total);
  }

  const about = "A topic is a log. Groups read it as a stream, or as a queue.";
  const add = actions && button("New topic", () => makeTopic().then((made) => made && refresh()), { tone: "primary", symbol: "plus" });
  stage.show(head("Topics", { about, actions: [add] }), panel("All topics", [rows.element, pages.element], match));
  await stage.every(EVERY_MS, refresh);
}

async function makeTopic() {
  const name = h("input", { required: true, pattern: "[a-zA-Z0-9._\\-]+", maxlength: "249", autocomplete: "off" });
  const partitions = h("input", { type: "number", min: "1", max: "10000", value: "3", required: true });
  return openForm({
    title: "New topic",
    body: h("div", { class: "fields" }, field("Name", name), field("Partitions", partitions)),
    action: "Make it",
    async submit() {
      await post("/topics", { name: name.value, partitions: Number(partitions.value) });
      tell(`${name.value} was made.`);
      return true;
    },
  });
}
