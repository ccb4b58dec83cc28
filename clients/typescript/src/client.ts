/**
 * A node, by its gRPC door.
 *
 *     const headrace = connect("127.0.0.1:9081");
 *     await headrace.publish("orders", { id: 7 });
 *     for await (const message of headrace.consume("orders", { group: "billing" })) {
 *       await message.ack();
 *     }
 *
 * The words of every day have a method here; `services` has every call of the .proto.
 */
import { randomUUID } from "node:crypto";

import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { Consumer, type ConsumerOptions, outcomeOf, settling } from "./consuming.js";
import { Closed, type HeadraceError, InvalidArgument, translated } from "./errors.js";
import type * as pb from "./generated/headrace_pb.js";
import {
  Groups,
  Letters,
  Messages,
  type NewMessageSchema,
  Node,
  Queues,
  type SettleResponse,
  Start,
  type StatisticsResponse,
  type Topic,
  Topics,
  Traces,
} from "./generated/headrace_pb.js";
import {
  idOf,
  Message,
  type NewMessage,
  type Place,
  type Settlement,
  type Settler,
  StreamRecord,
} from "./message.js";
import { Retry } from "./retry.js";
import { bytesOf, encodeHeaders, encodeValue, milliseconds } from "./values.js";

const DEFAULT_ADDRESS = "127.0.0.1:9081";
const SCHEME = /^grpc:\/\//;
/** A request has at most so many messages, and so many bytes unless one alone has more. */
const PART_MESSAGES_MAX = 1_000;
const PART_BYTES_MAX = 1024 * 1024;

export interface ConnectOptions {
  /** How long a call may take, besides the time for which it is asked to wait. 30 s. */
  timeoutMs?: number;
  /**
   * For how long loops of `consume` and `tail` look for a node that is away, or was not there
   * yet; as long as it takes.
   */
  retryMs?: number;
}

export interface LeaseOptions {
  group: string;
  /** How many at most; 1. */
  count?: number;
  /** How long to wait when nothing is ready, at most 30 s; not at all. */
  waitMs?: number;
  visibilityMs?: number;
  /** As whom to lease; an id that every lease of this client has. */
  consumer?: string;
  /** Settings of the group, for when it is made. */
  settings?: Readonly<Record<string, string>>;
}

export interface ConsumeOptions {
  group: string;
  /** How many messages may be in hand, unsettled, at a time; 10. */
  credit?: number;
  visibilityMs?: number;
  consumer?: string;
  settings?: Readonly<Record<string, string>>;
  /** Ends the loop. */
  signal?: AbortSignal;
}

export interface TailOptions {
  /** Where to start in partitions that `positions` does not name; with what comes. */
  start?: "latest" | "earliest";
  /** Offsets to go on from, by partition. */
  positions?: Readonly<Record<number, number>>;
  signal?: AbortSignal;
}

/**
 * A client of the node whose gRPC door is at `host:port` or `grpc://host:port`; nothing is
 * sent before the first call. Without an address it is the first of that kind in `HEADRACE_URL`,
 * as for every other client.
 */
export function connect(
  address: string = addressInEnvironment(),
  options: ConnectOptions = {},
): Headrace {
  return new Headrace(address.replace(SCHEME, "").replace(/\/$/, ""), options);
}

function addressInEnvironment(): string {
  const url = process.env["HEADRACE_URL"];
  const found = url?.split(",").find((each) => SCHEME.test(each.trim()));
  if (url && !found) {
    // Others take it for the port of Kafka's protocol, where this client cannot talk.
    throw new InvalidArgument(
      `HEADRACE_URL is ${url}, and this client speaks gRPC: ` +
        `add that door, as in ${url},grpc://host:9081, or give an address`,
      "invalid-argument",
    );
  }
  // HEADRACE_GRPC is its name of before, for one release more.
  return found?.trim() || process.env["HEADRACE_GRPC"] || DEFAULT_ADDRESS;
}

export class Headrace implements Settler {
  /** Every call of the .proto, as it is there. */
  readonly services: {
    topics: Client<typeof Topics>;
    messages: Client<typeof Messages>;
    queues: Client<typeof Queues>;
    groups: Client<typeof Groups>;
    letters: Client<typeof Letters>;
    traces: Client<typeof Traces>;
    node: Client<typeof Node>;
  };
  readonly #sessions: Http2SessionManager;
  readonly #consumers = new Set<Consumer>();
  readonly #timeoutMs: number;
  readonly #retryMs: number | undefined;
  /** One member of a group, however many calls it makes. */
  readonly #consumer = `ts-${randomUUID()}`;
  #isClosed = false;

  constructor(address: string, options: ConnectOptions) {
    const baseUrl = `http://${address}`;
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#retryMs = options.retryMs;
    this.#sessions = new Http2SessionManager(baseUrl);
    const transport = createGrpcTransport({ baseUrl, sessionManager: this.#sessions });
    this.services = {
      topics: createClient(Topics, transport),
      messages: createClient(Messages, transport),
      queues: createClient(Queues, transport),
      groups: createClient(Groups, transport),
      letters: createClient(Letters, transport),
      traces: createClient(Traces, transport),
      node: createClient(Node, transport),
    };
  }

  // Topics.

  async createTopic(
    name: string,
    options: { partitions?: number; settings?: Record<string, string>; existOk?: boolean } = {},
  ): Promise<Topic> {
    return await this.#call(this.services.topics.create({ name, ...options }, this.#limited()));
  }

  async deleteTopic(name: string): Promise<void> {
    await this.#call(this.services.topics.delete({ name }, this.#limited()));
  }

  /** Every topic, by name. */
  async *topics(): AsyncGenerator<Topic> {
    let after: string | undefined;
    do {
      const wanted = after === undefined ? {} : { after };
      const page = await this.#call(this.services.topics.list(wanted, this.#limited()));
      yield* page.topics;
      after = page.next;
    } while (after !== undefined);
  }

  // Publishing.

  /** When this resolves, the message is as safe as the topic's durability says. */
  async publish(
    topic: string,
    value: unknown,
    options: Omit<NewMessage, "value"> = {},
  ): Promise<Place> {
    const [place] = await this.publishMany(topic, [{ ...options, value }]);
    return place as Place;
  }

  /**
   * Many at once, in order. They go in parts of 1,000 messages or 1 MiB: when a part is
   * refused, those before it are published.
   */
  async publishMany(topic: string, messages: Iterable<NewMessage>): Promise<Place[]> {
    const places: Place[] = [];
    for (const part of parts(messages)) {
      const request = { topic, messages: part };
      const answer = await this.#call(this.services.messages.publish(request, this.#limited()));
      places.push(...answer.places.map((each) => placeOf(topic, each)));
    }
    return places;
  }

  /**
   * Publishes to any number of topics and acks leased messages: all of it happens or
   * nothing. Resolves to the places of each topic's messages.
   */
  async transact(what: {
    publish?: Readonly<Record<string, Iterable<NewMessage>>>;
    ack?: readonly (Message | string)[];
  }): Promise<Record<string, Place[]>> {
    const publications = Object.entries(what.publish ?? {}).map(([topic, messages]) => ({
      topic,
      messages: Array.from(messages, (each) => outgoing(each)[0]),
    }));
    const request = { publications, acks: receiptsOf(what.ack ?? []) };
    const answer = await this.#call(this.services.messages.transact(request, this.#limited()));
    settledElsewhere(what.ack ?? []);
    const places = publications.map(({ topic }, number) => {
      const made = answer.publications[number]?.places ?? [];
      return [topic, made.map((each) => placeOf(topic, each))] as const;
    });
    return Object.fromEntries(places);
  }

  // Reading as a queue.

  /** Leases messages; none when nothing was ready in time. */
  async lease<T = unknown>(topics: string | string[], options: LeaseOptions): Promise<Message<T>[]> {
    const { waitMs = 0, visibilityMs, ...rest } = options;
    const request = {
      ...rest,
      consumer: options.consumer ?? this.#consumer,
      topics: [topics].flat(),
      waitMs: milliseconds(waitMs),
      ...(visibilityMs !== undefined && { visibilityMs: milliseconds(visibilityMs) }),
    };
    const answer = await this.#call(this.services.queues.lease(request, this.#limited(waitMs)));
    return answer.messages.map((each) => new Message<T>(each, this));
  }

  /** Nothing is counted for messages of a call. */
  onSettledElsewhere(): void {}

  /** Leases of calls belong to no connection. */
  isLost(): boolean {
    return false;
  }

  /** Settles one lease by its receipt; raises what is wrong with it. */
  async settle(receipt: string, how: Settlement): Promise<void> {
    const [error] = await this.#settleMany([receipt], how);
    if (error) {
      throw error;
    }
  }

  /** Acks many in one call, by message or receipt: null, or the error, for each. */
  ack(leased: readonly (Message | string)[]): Promise<(HeadraceError | null)[]> {
    return this.#settleMany(leased, { kind: "ack" });
  }

  nack(
    leased: readonly (Message | string)[],
    how: { delayMs?: number; error?: string } = {},
  ): Promise<(HeadraceError | null)[]> {
    return this.#settleMany(leased, { kind: "nack", ...how });
  }

  extend(
    leased: readonly (Message | string)[],
    visibilityMs?: number,
  ): Promise<(HeadraceError | null)[]> {
    return this.#settleMany(leased, {
      kind: "extend",
      ...(visibilityMs !== undefined && { visibilityMs }),
    });
  }

  /**
   * Messages as they come, at most `credit` of them in hand. Leaving the loop, however it is
   * left, gives back what was not settled. A connection that breaks is made anew at once: when
   * that happens within the node's `lease_grace_ms`, what is in hand stays this loop's, and
   * acks under way are said again. A node that is away is waited for (`retryMs`).
   */
  async *consume<T = unknown>(
    topics: string | string[],
    options: ConsumeOptions,
  ): AsyncGenerator<Message<T>> {
    const { signal, credit = 10, consumer = `ts-${randomUUID()}`, ...rest } = options;
    if (signal?.aborted || this.#isClosed) {
      return;
    }
    const wanted: ConsumerOptions = { ...rest, consumer, credit, topics: [topics].flat() };
    const consuming = new Consumer(this.services.queues, wanted, new Retry(this.#retryMs));
    this.#consumers.add(consuming);
    const stop = () => void consuming.close();
    signal?.addEventListener("abort", stop);
    try {
      for (;;) {
        const delivery = await consuming.next();
        if (delivery === undefined) {
          return;
        }
        yield new Message<T>(delivery, consuming);
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      await consuming.close();
      this.#consumers.delete(consuming);
    }
  }

  /** What a group has to do, and has done. */
  async statistics(group: string): Promise<StatisticsResponse> {
    return await this.#call(this.services.queues.statistics({ group }, this.#limited()));
  }

  // Reading as a stream.

  /**
   * Records of a topic as they come, without a group; ends when the loop is left. When its
   * connection breaks, it goes on where it was.
   */
  async *tail<T = unknown>(topic: string, options: TailOptions = {}): AsyncGenerator<StreamRecord<T>> {
    const retry = new Retry(this.#retryMs);
    const stop = new AbortController();
    const onAbort = () => stop.abort();
    options.signal?.addEventListener("abort", onAbort);
    let positions: Map<number, bigint> | undefined;
    try {
      while (!options.signal?.aborted && !this.#isClosed) {
        let isReached = false;
        try {
          const start = await this.#startOf(topic, options);
          isReached = true;
          positions ??= start;
          // Partitions that it does not name were added since it began.
          const request = { topic, start: Start.EARLIEST, positions: Object.fromEntries(positions) };
          for await (const answer of this.services.messages.tail(request, { signal: stop.signal })) {
            for (const record of answer.records) {
              positions.set(record.partition, record.offset + 1n);
              yield new StreamRecord<T>(record);
            }
          }
          return;
        } catch (error) {
          if (options.signal?.aborted) {
            return;
          }
          const failure = translated(error);
          if (isReached) {
            retry.onReached();
          }
          if (!retry.allows(failure)) {
            throw failure;
          }
          await retry.pause(stop.signal);
        }
      }
    } finally {
      options.signal?.removeEventListener("abort", onAbort);
      stop.abort();
    }
  }

  /** Where a tail begins, in every partition. */
  async #startOf(topic: string, options: TailOptions): Promise<Map<number, bigint>> {
    const { partitions } = await this.#call(
      this.services.topics.describe({ name: topic }, this.#limited()),
    );
    return new Map(
      partitions.map((each) => {
        const given = options.positions?.[each.partition];
        const start = options.start === "earliest" ? each.startOffset : each.highWatermark;
        return [each.partition, given === undefined ? start : BigInt(given)];
      }),
    );
  }

  /** Ends every loop, gives back what they hold, and lets go of the connection. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#consumers].map((each) => each.close()));
    this.#sessions.abort();
  }

  async #settleMany(
    leased: readonly (Message | string)[],
    how: Settlement,
  ): Promise<(HeadraceError | null)[]> {
    const request = settling(receiptsOf(leased), how);
    const act = this.services.queues[how.kind] as (
      request: unknown,
      options: object,
    ) => Promise<SettleResponse>;
    const answer = await this.#call(act(request, this.#limited()));
    if (how.kind !== "extend") {
      settledElsewhere(leased);
    }
    return answer.results.map(outcomeOf);
  }

  #limited(waitMs = 0): { timeoutMs: number } {
    if (this.#isClosed) {
      throw new Closed("this client is closed; connect another one", "closed");
    }
    return { timeoutMs: this.#timeoutMs + waitMs };
  }

  async #call<R>(answer: Promise<R>): Promise<R> {
    try {
      return await answer;
    } catch (error) {
      throw translated(error);
    }
  }
}

function placeOf(topic: string, place: pb.Place): Place {
  const { partition, offset, duplicate } = place;
  const id = idOf(topic, partition, offset);
  return { id, topic, partition, offset: Number(offset), duplicate };
}

function receiptsOf(leased: readonly (Message | string)[]): string[] {
  return leased.map((each) => (typeof each === "string" ? each : each.receipt));
}

/** Loops that gave these messages may be sent as many more. */
function settledElsewhere(leased: readonly (Message | string)[]): void {
  for (const each of leased) {
    if (typeof each !== "string") {
      each.settledElsewhere();
    }
  }
}

type Outgoing = MessageInitShape<typeof NewMessageSchema>;

function* parts(messages: Iterable<NewMessage>): Generator<Outgoing[]> {
  let part: Outgoing[] = [];
  let size = 0;
  for (const message of messages) {
    const [made, bytes] = outgoing(message);
    if (part.length === PART_MESSAGES_MAX || (part.length > 0 && size + bytes > PART_BYTES_MAX)) {
      yield part;
      part = [];
      size = 0;
    }
    part.push(made);
    size += bytes;
  }
  if (part.length > 0) {
    yield part;
  }
}

function outgoing(message: NewMessage): [Outgoing, number] {
  const { bytes, contentType } = encodeValue(message.value);
  const { deliverAt, timestamp, delayMs, ttlMs, visibilityMs, dedupId, key } = message;
  const made: Outgoing = {
    headers: encodeHeaders(message.headers, contentType),
    ...(bytes !== undefined && { value: bytes }),
    ...(key !== undefined && { key: bytesOf(key) }),
    ...(message.priority !== undefined && { priority: message.priority }),
    ...(message.partition !== undefined && { partition: message.partition }),
    ...(message.maxAttempts !== undefined && { maxAttempts: message.maxAttempts }),
    ...(delayMs !== undefined && { delayMs: milliseconds(delayMs) }),
    ...(ttlMs !== undefined && { ttlMs: milliseconds(ttlMs) }),
    ...(visibilityMs !== undefined && { visibilityMs: milliseconds(visibilityMs) }),
    ...(deliverAt !== undefined && { deliverAtMs: milliseconds(deliverAt.getTime()) }),
    ...(timestamp !== undefined && { timestampMs: milliseconds(timestamp.getTime()) }),
    ...(dedupId !== undefined && { dedupId: bytesOf(dedupId) }),
  };
  return [made, (bytes?.length ?? 0) + (key?.length ?? 0)];
}
