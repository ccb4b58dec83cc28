// What a schema means in words, and what a value of it may look like.

import { h } from "../dom.js";

const DEPTH_MAX = 5;

// Values by the names of their fields, where a type alone says too little.
const SAMPLES = {
  topic: "orders", topics: ["orders"], group: "billing", consumer: "worker-1", member: "member-1",
  member_id: "member-1", id: "orders:0:42", ids: ["orders:0:42"], key: "customer-7", value: { id: 7 },
  source: "orders:0:42", client_id: "report", receipt: "the receipt of the lease", partition: 0,
  offset: 42, code: "unknown-topic", next: null, encoding: null, reason: "rejected",
};
const MOMENT = "2026-01-31T09:30:00.000Z";

export function resolve(document, schema) {
  if (!schema?.$ref) return schema ?? {};
  return document.components.schemas[schema.$ref.split("/").at(-1)];
}

export function nameOf(schema) {
  return schema?.$ref?.split("/").at(-1) ?? null;
}

// "list of text", "whole number, 1 to 1000", "Place or null".
export function typeOf(schema) {
  if (!schema) return "any";
  if (schema.$ref) return nameOf(schema);
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items)}`;
  if (schema.type === "object") return schema.additionalProperties && schema.additionalProperties !== true ? `map of ${typeOf(schema.additionalProperties)}` : "object";
  const words = { integer: "whole number", number: "number", string: "text", boolean: "true or false", null: "null" }[schema.type] ?? "any JSON";
  const { minimum: low, maximum: high } = schema;
  if (low !== undefined && high !== undefined) return `${words}, ${low} to ${high}`;
  if (low !== undefined) return `${words}, from ${low}`;
  return high !== undefined ? `${words}, up to ${high}` : words;
}

// Something that a schema allows. Values are made up, shapes are not.
export function example(document, schema, name = "", depth = 0) {
  const known = resolve(document, schema);
  if (known.example !== undefined) return known.example;
  if (name in SAMPLES && !schema?.$ref) return SAMPLES[name];
  if (known.anyOf) return example(document, known.anyOf[0], name, depth);
  if (known.enum) return known.enum[0];
  if (known.type === "array") return depth > DEPTH_MAX ? [] : [example(document, known.items, "", depth + 1)];
  if (known.type === "object") {
    if (depth > DEPTH_MAX) return {};
    return Object.fromEntries(Object.entries(known.properties ?? {}).map(([field, each]) => [field, example(document, each, field, depth + 1)]));
  }
  if (known.type === "integer" || known.type === "number") return known.minimum ?? 0;
  if (known.type === "boolean") return false;
  if (known.type === "string") return /(^|_)(at|time|deadline|timestamp)$|^(since|until|oldest)$/.test(name) ? MOMENT : "text";
  return null;
}

// The fields of an object, each with those of what it holds behind a fold.
export function properties(document, schema, depth = 0) {
  const known = resolve(document, schema);
  const required = new Set(known.required ?? []);
  return h("ul", { class: "properties" }, Object.entries(known.properties ?? {}).map(([name, each]) =>
    property(document, { name, schema: each, isRequired: required.has(name), depth })));
}

export function property(document, { name, schema, isRequired, depth = 0, description = schema.description }) {
  const inner = innerOf(schema);
  const fixed = schema.default !== undefined && schema.default !== null && JSON.stringify(schema.default) !== "{}";
  const item = h("li", {},
    h("div", { class: "line" }, h("b", {}, name), h("span", { class: "type" }, typeOf(schema)),
      isRequired && h("span", { class: "badge warn" }, "required"),
      fixed && h("span", { class: "faint" }, `default ${JSON.stringify(schema.default)}`)),
    description && h("p", {}, described(description)));
  if (inner && depth < DEPTH_MAX) item.append(fold(document, inner, depth + 1));
  return item;
}

// Made when it is opened: a page of sixty operations would be thousands of rows.
export function fold(document, schema, depth = 0) {
  const details = h("details", {}, h("summary", { class: "small" }, `Fields of ${nameOf(schema)}`));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(properties(document, schema, depth));
  });
  return details;
}

function innerOf(schema) {
  if (schema.$ref) return schema;
  const parts = schema.anyOf ?? [schema.items, schema.additionalProperties].filter((each) => each && each !== true);
  return parts.map((each) => (each.$ref ? each : innerOf(each))).find(Boolean) ?? null;
}

// Words in `back quotes` are code.
export function described(text) {
  return text.replace(/\s+/g, " ").split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}
