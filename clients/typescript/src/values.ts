/**
 * Values: from what people have to bytes, and back.
 *
 *     given             bytes         content-type
 *     Uint8Array        as they are   none
 *     null              none          none
 *     string            UTF-8         text/plain
 *     anything else     JSON          application/json
 *
 * The content type is a plain header, the same that every other client of Headrace
 * writes and reads. A value without one stays bytes: nothing is guessed.
 */
import { DecodeError, InvalidArgument } from "./errors.js";
import type { Header } from "./generated/headrace_pb.js";

const CONTENT_TYPE = "content-type";
const TEXT = "text/plain";
const JSON_TYPE = "application/json";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

export type HeaderValue = string | Uint8Array | null;

export interface EncodedValue {
  bytes: Uint8Array | undefined;
  contentType: string | undefined;
}

export function encodeValue(value: unknown): EncodedValue {
  if (value === undefined) {
    // On a compacted topic null deletes a key: that is said, and never left out.
    throw new InvalidArgument(
      "a message needs a value; say null for one that has none",
      "invalid-argument",
    );
  }
  if (value === null) {
    return { bytes: undefined, contentType: undefined };
  }
  if (value instanceof Uint8Array) {
    return { bytes: value, contentType: undefined };
  }
  if (typeof value === "string") {
    return { bytes: encoder.encode(value), contentType: TEXT };
  }
  let text: string | undefined;
  try {
    text = JSON.stringify(value, refuseNumbersThatJsonLacks);
  } catch (error) {
    throw new InvalidArgument(
      `this value cannot be published: ${(error as Error).message}`,
      "invalid-argument",
    );
  }
  if (text === undefined) {
    throw new InvalidArgument(
      `a ${typeof value} cannot be published; give bytes, text, or what JSON can hold`,
      "invalid-argument",
    );
  }
  return { bytes: encoder.encode(text), contentType: JSON_TYPE };
}

/** JSON.stringify would write null, and the number would be lost without a word. */
function refuseNumbersThatJsonLacks(_: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new TypeError(`JSON has no number for ${value}; give text or null`);
  }
  return value;
}

/** The value as its content type says; DecodeError names `place`. */
export function decodeValue(
  bytes: Uint8Array | undefined,
  headers: readonly Header[],
  place: string,
): unknown {
  if (bytes === undefined) {
    return null;
  }
  const contentType = contentTypeOf(headers);
  if (contentType !== TEXT && contentType !== JSON_TYPE) {
    return bytes;
  }
  try {
    const text = decoder.decode(bytes);
    return contentType === TEXT ? text : JSON.parse(text);
  } catch (error) {
    throw new DecodeError(
      `message ${place} does not hold ${contentType}: ${(error as Error).message}`,
      "decode-error",
    );
  }
}

function contentTypeOf(headers: readonly Header[]): string | undefined {
  const found = headers.find((each) => each.name === CONTENT_TYPE && each.value !== undefined);
  return found && textOf(found.value)?.split(";", 1)[0]?.trim().toLowerCase();
}

export function encodeHeaders(
  given: Readonly<Record<string, HeaderValue>> | undefined,
  contentType: string | undefined,
): { name: string; value?: Uint8Array }[] {
  const headers = Object.entries(given ?? {}).map(([name, value]) =>
    value === null ? { name } : { name, value: bytesOf(value) },
  );
  // Who says what the value is knows better.
  if (contentType !== undefined && !headers.some((each) => each.name === CONTENT_TYPE)) {
    headers.push({ name: CONTENT_TYPE, value: encoder.encode(contentType) });
  }
  return headers;
}

export function bytesOf(value: string | Uint8Array): Uint8Array {
  return typeof value === "string" ? encoder.encode(value) : value;
}

export function textOf(value: Uint8Array | undefined): string | undefined {
  return value && new TextDecoder().decode(value);
}

/** A time as it travels, in whole milliseconds. */
export function milliseconds(value: number): bigint {
  if (!Number.isFinite(value)) {
    throw new InvalidArgument(`a time is a number of milliseconds, not ${value}`, "invalid-argument");
  }
  return BigInt(Math.round(value));
}
