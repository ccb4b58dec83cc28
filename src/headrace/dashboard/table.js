// A table that can be listened to and that changes in place.
//
//     const topics = table({ caption: "Topics", key: (row) => row.name, columns: [
//         { label: "Name", cell: (row) => link(...) },
//         { label: "Selected", head: checkbox, cell: (row) => h("input", ...) },
//         { label: "Messages", number: true, sort: "messages", cell: (row) => count(row.messages) } ] });
//     topics.update(rows);
//
// Rows are known by their key: a row that is still there keeps its elements, so that a
// refresh takes away neither the focus nor a selection.

import { h, replace } from "./dom.js";
import { empty as nothing } from "./parts.js";

export function table({ caption, columns, key, empty = ["Nothing here", ""], sorted = null, onsort = null }) {
  const headers = columns.map((column) => headerOf(column, onsort));
  const body = h("tbody");
  const words = nothing(...empty);
  const grid = h(
    "table",
    {},
    h("caption", { class: "hidden-visually" }, caption),
    h("thead", {}, h("tr", {}, headers)),
    body,
  );
  const element = h("div", { class: "scroll" }, grid, words);
  let rows = new Map();
  words.hidden = true;
  if (sorted) showSort(sorted);

  function showSort({ sort, descending }) {
    columns.forEach((column, index) => {
      if (column.sort === sort) headers[index].setAttribute("aria-sort", descending ? "descending" : "ascending");
      else headers[index].removeAttribute("aria-sort");
    });
  }

  function update(data) {
    const next = new Map();
    for (const datum of data) {
      const name = key(datum);
      const row = rows.get(name) ?? h("tr", {}, columns.map((column) => h("td", { class: classOf(column) })));
      columns.forEach((column, index) => refresh(row.children[index], column.cell(datum)));
      next.set(name, row);
    }
    const wanted = [...next.values()];
    const isSame = wanted.length === body.children.length && wanted.every((row, index) => body.children[index] === row);
    if (!isSame) body.replaceChildren(...wanted);
    rows = next;
    words.hidden = data.length > 0;
    grid.hidden = data.length === 0;
  }

  return { element, update, showSort };
}

// A cell whose words are the same stays as it is, unless it is a drawing.
function refresh(cell, content) {
  const fresh = h("td", {}, content);
  const isDrawn = fresh.querySelector("[role=img]") !== null;
  if (isDrawn || fresh.textContent !== cell.textContent || !cell.hasChildNodes()) {
    cell.replaceChildren(...fresh.childNodes);
  }
}

function classOf(column) {
  return [column.number && "number", column.fill && "fill"].filter(Boolean).join(" ");
}

function headerOf(column, onsort) {
  const words = column.sort && onsort
    ? h("button", { class: "sort", type: "button", onclick: () => onsort(column.sort) }, column.label)
    : column.head ? column.head : column.hidden ? h("span", { class: "hidden-visually" }, column.label) : column.label;
  return h("th", { scope: "col", class: classOf(column) }, words);
}

// "51 to 100 of 1,204", and the way to the neighbours.
export function pager(onmove) {
  const words = h("span", { "aria-live": "polite" });
  const before = h("button", { class: "button small", type: "button", onclick: () => onmove(-1) }, "Previous");
  const after = h("button", { class: "button small", type: "button", onclick: () => onmove(1) }, "Next");
  const element = h("div", { class: "pager" }, words, h("span", { class: "push" }), before, after);
  return {
    element,
    update(page, limit, shown, total) {
      element.hidden = total <= limit && page === 0;
      const first = page * limit;
      replace(words, total ? `${(first + 1).toLocaleString("en")} to ${(first + shown).toLocaleString("en")} of ${total.toLocaleString("en")}` : "none");
      before.disabled = page === 0;
      after.disabled = first + shown >= total;
    },
  };
}
