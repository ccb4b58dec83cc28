// A value as JSON, as text or as hex. It may be anything that anybody ever published:
// it gets into the page as text only.

import { h, replace } from "./dom.js";
import { bytes } from "./format.js";
import { segments } from "./parts.js";

const SHOWN_MAX = 64 * 1024;
const PREVIEW_MAX = 240;
const ROW = 16;

// The bytes that are stored, from what the API says of them.
export function bytesOf(message) {
  if (message.value === null || message.value === undefined) return null;
  if (message.encoding === "base64") return Uint8Array.from(atob(message.value), (each) => each.charCodeAt(0));
  const text = typeof message.value === "string" ? message.value : JSON.stringify(message.value);
  return new TextEncoder().encode(text);
}

// Text where the bytes are UTF-8 without odd control characters, or null.
export function textOf(message) {
  if (message.encoding !== "base64") return typeof message.value === "string" ? message.value : JSON.stringify(message.value);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(message));
    return /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

export function jsonOf(message) {
  if (message.value === null || message.value === undefined) return undefined;
  if (message.encoding !== "base64" && typeof message.value !== "string") return message.value;
  const text = textOf(message);
  if (text === null || !/^\s*[[{"\d-]|^\s*(true|false|null)\s*$/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// One line for a list.
export function preview(message) {
  if (message.value === null || message.value === undefined) return "null";
  const text = textOf(message);
  if (text === null) return `${bytes(bytesOf(message).length)} of bytes`;
  return text.length > PREVIEW_MAX ? `${text.slice(0, PREVIEW_MAX)}…` : text;
}

export function hexRows(data, most = SHOWN_MAX / 4) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, most); at += ROW) {
    const part = [...data.subarray(at, at + ROW)];
    const hex = part.map((each) => each.toString(16).padStart(2, "0"));
    const words = [hex.slice(0, 8).join(" "), hex.slice(8).join(" ")].join("  ");
    const shown = part.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    rows.push(`${at.toString(16).padStart(8, "0")}  ${words.padEnd(49)}  ${shown}`);
  }
  if (data.length > most) rows.push(`… ${bytes(data.length - most)} more`);
  return rows.join("\n");
}

export function showValue(message) {
  const data = bytesOf(message);
  if (data === null) return h("p", { class: "muted" }, "No value: null, as a tombstone has.");
  const json = jsonOf(message);
  const text = textOf(message);
  const forms = [json !== undefined && ["json", "JSON"], text !== null && ["text", "Text"], ["hex", "Hex"]].filter(Boolean);
  const box = h("pre", { class: "value", tabindex: "0" });
  const choose = (form) => {
    box.classList.toggle("hex", form === "hex");
    if (form === "json") replace(box, colored(json));
    else if (form === "text") replace(box, cut(text));
    else replace(box, hexRows(data));
  };
  choose(forms[0][0]);
  return h("div", { class: "stack" }, h("div", { class: "inline" }, segments("Show the value as", forms, forms[0][0], choose), h("span", { class: "muted" }, bytes(data.length))), box);
}

function cut(text) {
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}\n… ${bytes(text.length - SHOWN_MAX)} more` : text;
}

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g;

// The pretty text, cut into spans by what each piece is.
function colored(json) {
  const text = cut(JSON.stringify(json, null, 2));
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [whole, string, colon, number] = match;
    parts.push(text.slice(at, match.index));
    at = match.index + whole.length;
    if (string) parts.push(h("span", { class: colon ? "j-key" : "j-text" }, string), colon);
    else parts.push(h("span", { class: number ? "j-number" : "j-word" }, whole));
  }
  parts.push(text.slice(at));
  return parts;
}
