// One operation: what it takes, what it answers, how to ask for it, and asking for it.

import { h, replace } from "../dom.js";
import { button, field, segments } from "../parts.js";
import { described, example, fold, nameOf, properties, property, resolve, typeOf } from "./schema.js";

const PATH_SAMPLES = { topic: "orders", group: "billing", member: "member-1", partition: "0", offset: "42", id: "orders:0:42", message: "orders:0:42" };
const EVENTS = "text/event-stream";
// What has members, a lag and a position to reset is a group that reads a stream; "billing" is a queue.
const STREAM_GROUP = "report";

// "#post-topics-topic-messages": good for links, and the same in every version.
export function slugOf(method, path) {
  return `${method}${path}`.toLowerCase().replace(/[{}]/g, "").replace(/[^a-z0-9]+/g, "-").replace(/-$/, "");
}

export function operations(document) {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ ...operation, method, path, slug: slugOf(method, path) })));
}

export function showOperation(document, operation) {
  const { method, path, slug } = operation;
  const body = operation.requestBody?.content["application/json"];
  const [status, done] = Object.entries(operation.responses).find(([each]) => each < 300);
  const answer = Object.entries(done.content ?? {})[0];
  return h("article", { class: "operation", id: slug },
    h("header", {}, h("span", { class: `method ${method}` }, method.toUpperCase()), h("h3", {}, path),
      h("span", { class: "muted" }, operation.summary),
      h("a", { class: "push link", href: `#${slug}`, "aria-label": `Link to ${method.toUpperCase()} ${path}` }, "#")),
    h("div", { class: "halves" },
      h("div", { class: "half" },
        operation.description && h("p", {}, described(operation.description)),
        parameters(document, operation, "path", "In the path"), parameters(document, operation, "query", "In the query"),
        body && bodyOf(document, body.schema, operation), answers(document, operation, status, answer)),
      h("div", { class: "half" },
        snippets(operation, body && sampleBody(document, body), answer?.[0]),
        answer && sampleAnswer(document, status, answer),
        method === "get" && answer?.[0] !== EVENTS && tryIt(operation))));
}

function parameters(document, operation, where, title) {
  const found = (operation.parameters ?? []).filter((each) => each.in === where);
  if (!found.length) return null;
  return h("section", {}, h("h4", {}, title), h("ul", { class: "properties" },
    found.map((each) => property(document, { name: each.name, schema: each.schema, isRequired: each.required }))));
}

function bodyOf(document, schema, operation) {
  const known = resolve(document, schema);
  const raw = operation.requestBody.content["application/octet-stream"];
  return h("section", {}, h("h4", {}, "Body, JSON"),
    known.description && h("p", { class: "muted" }, described(known.description)),
    raw && h("p", { class: "muted" }, "Or the bytes of one message, as any other content type; its attributes are then in the query."),
    properties(document, schema));
}

function answers(document, operation, status, answer) {
  const schemas = answer ? answer[1].schema.anyOf ?? [answer[1].schema] : [];
  const problems = Object.entries(operation.responses).filter(([each]) => each >= 300);
  return h("section", {}, h("h4", {}, "Answers"),
    h("ul", { class: "statuses" },
      h("li", {}, h("code", {}, status), h("div", {},
        schemas.length ? `${answer[0]}: ${schemas.map(typeOf).join(" or ")}` : "nothing",
        schemas.filter(nameOf).map((each) => fold(document, each))))),
    h("details", {}, h("summary", { class: "small" }, "Problems"),
      h("ul", { class: "statuses" }, problems.map(([each, { description }]) => h("li", {}, h("code", {}, each), h("span", { class: "muted" }, described(description))))),
      fold(document, { $ref: "#/components/schemas/Problem" })));
}

function sampleBody(document, body) {
  return body.example ?? example(document, body.schema);
}

function filled({ path, parameters: given = [] }) {
  const samples = path.startsWith("/groups/{group}/") ? { ...PATH_SAMPLES, group: STREAM_GROUP } : PATH_SAMPLES;
  const asked = new URLSearchParams(given.filter((each) => each.in === "query" && each.example !== undefined).map((each) => [each.name, each.example]));
  return path.replace(/{(\w+)}/g, (_, name) => samples[name] ?? name) + (asked.size ? `?${asked}` : "");
}

function snippets(operation, body, type) {
  const { method } = operation;
  const url = `${location.origin}${filled(operation)}`;
  const made = { curl: () => curl(method, url, body, type), Python: () => python(method, url, body, type) };
  const shown = h("pre", { class: "value" });
  const show = (name) => replace(shown, made[name]());
  show("curl");
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(shown.textContent);
    copy.textContent = "Copied";
  }, { tone: "small" });
  return h("section", {}, h("div", { class: "inline" }, h("h4", {}, "Request"), segments("Language", [["curl", "curl"], ["Python", "Python"]], "curl", (name) => {
    copy.textContent = "Copy";
    show(name);
  }), navigator.clipboard && copy), h("div", { class: "snippet" }, shown));
}

// `type` is that of the answer; without one there is nothing to read.
export function curl(method, url, body, type) {
  const options = type === EVENTS ? "-N " : method === "get" ? "" : `-X ${method.toUpperCase()} `;
  const parts = [`curl ${options}'${url}'`];
  if (body !== undefined) parts.push("-H 'content-type: application/json'", `-d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`);
  return parts.join(" \\\n  ");
}

export function python(method, url, body, type) {
  if (type === EVENTS) {
    return `import httpx\n\nwith httpx.stream("${method.toUpperCase()}", "${url}", timeout=None) as answer:\n`
      + "    answer.raise_for_status()\n    for line in answer.iter_lines():\n        print(line)";
  }
  const given = body === undefined ? "" : `, json=${literal(body)}`;
  // httpx gives up after 5 s unless told otherwise.
  const patience = body?.wait ? `, timeout=${body.wait + 10}` : "";
  const shown = type ? "\nprint(answer.json())" : "";
  return `import httpx\n\nanswer = httpx.${method}("${url}"${given}${patience})\nanswer.raise_for_status()${shown}`;
}

// JSON as Python writes it.
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (value === true || value === false) return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}

function sampleAnswer(document, status, [type, { schema }]) {
  if (type !== "application/json") return null;
  return h("details", {}, h("summary", { class: "small" }, `An answer, ${status}`),
    h("pre", { class: "value" }, JSON.stringify(example(document, schema), null, 2)));
}

// Reading only: what changes something is done with the snippets, by who means it.
function tryIt({ path, parameters: given = [] }) {
  const inputs = given.map((each) => [each, h("input", { placeholder: each.in === "path" ? PATH_SAMPLES[each.name] ?? "" : typeOf(each.schema), required: each.in === "path" })]);
  const outcome = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "try" },
    inputs.length ? h("div", { class: "fields" }, inputs.map(([each, input]) => field(each.name, input))) : null,
    h("div", {}, button("Send", () => {}, { tone: "primary small", type: "submit" })), outcome);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(inputs.map(([each, input]) => [each.name, input.value.trim()]));
    const where = path.replace(/{(\w+)}/g, (_, name) => encodeURIComponent(values[name]));
    const asked = new URLSearchParams(given.filter((each) => each.in === "query" && values[each.name] !== "").map((each) => [each.name, values[each.name]]));
    try {
      const answer = await fetch(where + (asked.size ? `?${asked}` : ""));
      const text = await answer.text();
      replace(outcome, h("p", { class: "muted" }, `${answer.status} ${answer.statusText}`), h("pre", { class: "value" }, pretty(text)));
    } catch {
      replace(outcome, h("p", { class: "problem" }, "The node does not answer. Is it running?"));
    }
  });
  return h("details", {}, h("summary", { class: "small" }, "Try it"), form);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
