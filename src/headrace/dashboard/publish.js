// Publishing by hand: value, key, headers, and what a queue makes of it.

import { path, post } from "./api.js";
import { openForm } from "./dialog.js";
import { h } from "./dom.js";
import { tell } from "./notices.js";
import { button, field } from "./parts.js";

const PRIORITIES = ["critical", "high", "normal", "low", "background"];

export async function publish(topic) {
  const form = h("select", {}, ["JSON", "text", "base64"].map((each) => h("option", {}, each)));
  const value = h("textarea", { spellcheck: "false", placeholder: '{"id": 7}' });
  const key = h("input", { autocomplete: "off" });
  const priority = h("select", {}, PRIORITIES.map((each) => h("option", {}, each)));
  priority.value = "normal";
  const delay = seconds("none");
  const ttl = seconds("none");
  const attempts = h("input", { type: "number", min: "1", max: "255", placeholder: "the group's" });
  const partition = h("input", { type: "number", min: "0", placeholder: "by key" });
  const headers = h("div", { class: "stack" });

  function addHeader() {
    const row = h("div", { class: "fields" },
      h("input", { placeholder: "name", "aria-label": "Header name", "data-part": "name" }),
      h("input", { placeholder: "value", "aria-label": "Header value", "data-part": "value" }));
    headers.append(row);
    row.firstChild.focus();
  }

  return openForm({
    title: `Publish to ${topic}`,
    body: [
      h("div", { class: "fields" }, field("Key", key), field("The value is", form)),
      field("Value", value),
      h("div", { class: "fields" }, field("Priority", priority), field("Delay, in seconds", delay), field("Expires after, in seconds", ttl)),
      h("div", { class: "fields" }, field("Attempts at most", attempts), field("Partition", partition)),
      headers,
      h("div", {}, button("Add a header", addHeader, { tone: "small", symbol: "plus" })),
    ],
    action: "Publish",
    async submit() {
      const message = {
        ...valueOf(form.value, value.value),
        key: key.value || undefined,
        priority: priority.value,
        delay: numberOf(delay),
        ttl: numberOf(ttl),
        max_attempts: numberOf(attempts),
        partition: numberOf(partition),
        headers: headersOf(headers),
      };
      const placed = await post(path("topics", topic, "messages"), message);
      const id = `${topic}:${placed.partition}:${placed.offset}`;
      tell(placed.duplicate ? `It was there already: ${id}.` : `Published as ${id}.`);
      return id;
    },
  });
}

function seconds(placeholder) {
  return h("input", { type: "number", min: "0", step: "any", placeholder });
}

function numberOf(input) {
  return input.value === "" ? undefined : Number(input.value);
}

export function valueOf(form, text) {
  if (form === "base64") return { value: text.trim(), encoding: "base64" };
  if (form === "text") return { value: text };
  if (text.trim() === "") return { value: null };
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}. Choose text if it is not meant to be.`);
  }
}

function headersOf(rows) {
  const found = {};
  for (const row of rows.children) {
    const name = row.querySelector("[data-part=name]").value;
    if (name) found[name] = row.querySelector("[data-part=value]").value;
  }
  return Object.keys(found).length ? found : undefined;
}
