// The public HTTP API, as the dashboard may use it: everything goes through
// /dashboard/api, where the node decides what passes.

const BASE = "/dashboard/api";

// What the node refused, in its own words: `code` never changes, the message says what
// to do.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export function path(...parts) {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join("");
}

export function query(parameters) {
  const given = Object.entries(parameters).filter(
    ([, value]) => value !== undefined && value !== null && value !== "",
  );
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

export const get = (where, signal) => ask("GET", where, undefined, signal);
export const post = (where, body) => ask("POST", where, body);
export const patch = (where, body) => ask("PATCH", where, body);
export const remove = (where) => ask("DELETE", where);

async function ask(method, where, body, signal) {
  const headers = { accept: "application/json" };
  if (method !== "GET") headers["x-headrace-dashboard"] = "1";
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(BASE + where, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "The node does not answer. Is it running?");
  }
  const text = await answer.text();
  if (!answer.ok) {
    let problem = {};
    try {
      problem = JSON.parse(text);
    } catch {
      // Not one of our own answers; the status has to do.
    }
    throw new Refused(answer.status, problem.code || "error", problem.detail || answer.statusText);
  }
  return text ? JSON.parse(text) : null;
}

export function events(where) {
  return new EventSource(BASE + where);
}

// Whether this dashboard may change anything; asked once.
let known;
export function rule() {
  known ??= get("/dashboard");
  return known;
}
