/**
 * What comes out of a node: records of a stream, and messages under a lease.
 *
 * Offsets are numbers here, exact up to 2**53, and moments are Dates.
 */
import type * as pb from "./generated/headrace_pb.js";
import type { HeaderValue } from "./values.js";
import { decodeValue, textOf } from "./values.js";

export type Priority = "critical" | "high" | "normal" | "low" | "background";

/** A message to publish. `value` may be bytes, text, null, or anything JSON can hold. */
export interface NewMessage {
  value: unknown;
  /** Messages with one key go to one partition, in order. */
  key?: string | Uint8Array;
  headers?: Readonly<Record<string, HeaderValue>>;
  priority?: Priority;
  delayMs?: number;
  deliverAt?: Date;
  /** Never delivered when it was not delivered within this time. */
  ttlMs?: number;
  maxAttempts?: number;
  visibilityMs?: number;
  /** On a topic with `dedup`: published once, however often it is sent. */
  dedupId?: string | Uint8Array;
  partition?: number;
  timestamp?: Date;
}

/** Where a message is now. */
export interface Place {
  id: string;
  topic: string;
  partition: number;
  offset: number;
  /** It had been published before, by its `dedupId`; this is the place of the first. */
  duplicate: boolean;
}

export function idOf(topic: string, partition: number, offset: number | bigint): string {
  return `${topic}:${partition}:${offset}`;
}

interface Content {
  key?: Uint8Array | undefined;
  value?: Uint8Array | undefined;
  headers: pb.Header[];
}

/** What a record and a message have in common. */
abstract class Entry<T> {
  readonly id: string;
  /** The key's bytes. */
  readonly key: Uint8Array | undefined;
  /** The value's bytes, as they are in the log. */
  readonly raw: Uint8Array | undefined;
  readonly headers: readonly { name: string; value?: Uint8Array | undefined }[];
  readonly #content: Content;

  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly offset: number,
    content: Content,
  ) {
    this.id = idOf(topic, partition, offset);
    this.key = content.key;
    this.raw = content.value;
    this.headers = content.headers;
    this.#content = content;
  }

  /**
   * The value as its content type says: what JSON holds, text, bytes where nothing is
   * said, null where there is none. `T` is the caller's word for it; nothing checks it.
   */
  get value(): T {
    return decodeValue(this.raw, this.#content.headers, this.id) as T;
  }

  get keyText(): string | undefined {
    return textOf(this.key);
  }

  /** The text of a header; undefined where there is none. */
  header(name: string): string | undefined {
    return textOf(this.headers.find((each) => each.name === name)?.value);
  }
}

/** A record, as a stream sees it. */
export class StreamRecord<T = unknown> extends Entry<T> {
  readonly timestamp: Date;

  constructor(record: pb.Record) {
    super(record.topic, record.partition, Number(record.offset), record);
    this.timestamp = new Date(Number(record.timestampMs));
  }
}

export type Settlement =
  | { kind: "ack" }
  | { kind: "nack"; delayMs?: number; error?: string }
  | { kind: "reject"; reason?: string }
  | { kind: "extend"; visibilityMs?: number }
  | { kind: "release" };

/** The way back to the node: a call, or the stream that a message came on. */
export interface Settler {
  settle(receipt: string, how: Settlement): Promise<void>;
  /** A message that it gave was settled in another way. */
  onSettledElsewhere(receipt: string): void;
  /** Whether the node has said that this lease is over. */
  isLost(receipt: string): boolean;
}

/** A message under lease: settle it before its `deadline`. */
export class Message<T = unknown> extends Entry<T> {
  /** What proves the lease; a string that travels. */
  readonly receipt: string;
  readonly createdAt: Date;
  readonly deadline: Date;
  /** Which delivery this is, counted from 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly priority: Priority;
  /** Why the delivery before this one failed, if one did. */
  readonly error: string | undefined;
  readonly #settler: Settler;

  constructor(delivery: pb.Delivery, settler: Settler) {
    const id = delivery.id;
    super(id?.topic ?? "", id?.partition ?? 0, Number(id?.offset ?? 0), delivery);
    this.receipt = delivery.receipt;
    this.createdAt = new Date(Number(delivery.createdAtMs));
    this.deadline = new Date(Number(delivery.deadlineMs));
    this.attempt = delivery.attempt;
    this.maxAttempts = delivery.maxAttempts;
    this.priority = delivery.priority as Priority;
    this.error = delivery.error;
    this.#settler = settler;
  }

  /** Done. When this resolves, the message never comes back. */
  ack(): Promise<void> {
    return this.#settler.settle(this.receipt, { kind: "ack" });
  }

  /** Failed: again after `delayMs`, or after the group's backoff. */
  nack(how: { delayMs?: number; error?: string } = {}): Promise<void> {
    return this.#settler.settle(this.receipt, { kind: "nack", ...how });
  }

  /** Will never succeed: to the dead letters. */
  reject(reason?: string): Promise<void> {
    return this.#settler.settle(this.receipt, { kind: "reject", ...(reason && { reason }) });
  }

  /** Takes longer: the lease lasts so long from now on, or another visibility time. */
  extend(visibilityMs?: number): Promise<void> {
    const how = visibilityMs === undefined ? {} : { visibilityMs };
    return this.#settler.settle(this.receipt, { kind: "extend", ...how });
  }

  /**
   * Whether the connection of its loop broke and came back too late: the lease is over, and
   * the message comes again. A `deadline` that has passed says the same.
   */
  get lost(): boolean {
    return this.#settler.isLost(this.receipt);
  }

  /** Says that a call for many, or a transaction, has settled it. */
  settledElsewhere(): void {
    this.#settler.onSettledElsewhere(this.receipt);
  }

  /** Back at once, as if it had not been leased. */
  release(): Promise<void> {
    return this.#settler.settle(this.receipt, { kind: "release" });
  }
}
