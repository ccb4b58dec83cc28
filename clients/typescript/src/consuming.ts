/**
 * A consumer: messages come as far as there is credit, receipts go back, over one stream
 * after the other.
 *
 *     to the node     open   ack, credit ...
 *     from the node   opened   deliveries   settled ...
 *
 * Credit is what the caller may have in hand: it is used up by a message that comes and
 * given back when that message is settled. So a slow caller is sent nothing that it would
 * only keep from others.
 *
 * Acks that are asked for while one is under way go together in the next request, and
 * share one wait for the node's disk.
 *
 * When a stream breaks, the next one opens at once, whether or not the caller asks for
 * anything: the node keeps the leases of a consumer that comes back within a grace and says
 * what it has in hand. What was not answered is said again. What had come and was not yet
 * given to the caller is not claimed: it goes back at no attempt and comes anew, so that
 * nothing is begun whose lease may be over.
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";

import {
  Closed,
  Disconnected,
  errorOf,
  type HeadraceError,
  StaleReceipt,
  translated,
  Unreachable,
} from "./errors.js";
import type { ConsumeRequestSchema, Delivery, Queues, Settled } from "./generated/headrace_pb.js";
import type { Settlement, Settler } from "./message.js";
import type { Retry } from "./retry.js";
import { milliseconds } from "./values.js";

type Request = MessageInitShape<typeof ConsumeRequestSchema>;

/** Receipts in one request, as many as a node takes. */
const RECEIPTS_MAX = 10_000;
/** How long what was asked for may take to be done at the end. */
const CLOSE_MS_MAX = 5_000;

export interface ConsumerOptions {
  group: string;
  topics: string[];
  credit: number;
  /** By which the node knows it when it comes back. */
  consumer: string;
  visibilityMs?: number;
  settings?: Readonly<Record<string, string>>;
}

interface Waiting {
  resolve: () => void;
  reject: (error: HeadraceError) => void;
}

/** The request of a settlement, for one receipt or many. */
export function settling(receipts: string[], how: Settlement) {
  switch (how.kind) {
    case "nack":
      return {
        receipts,
        ...(how.delayMs !== undefined && { delayMs: milliseconds(how.delayMs) }),
        ...(how.error !== undefined && { error: how.error }),
      };
    case "reject":
      return { receipts, ...(how.reason !== undefined && { reason: how.reason }) };
    case "extend":
      return {
        receipts,
        ...(how.visibilityMs !== undefined && { visibilityMs: milliseconds(how.visibilityMs) }),
      };
    default:
      return { receipts };
  }
}

/** What went wrong with one receipt; null where nothing did. */
export function outcomeOf(result: Settled): HeadraceError | null {
  return result.ok ? null : errorOf(result.code, result.detail, false);
}

/** A settlement that the node has not answered yet. */
interface Unanswered {
  receipts: string[];
  how: Settlement;
  waiting: Waiting[];
  /** A stream broke on which it may have been sent: it may have been done. */
  isRepeated: boolean;
}

export class Consumer implements Settler {
  readonly #queues: Client<typeof Queues>;
  readonly #options: ConsumerOptions;
  readonly #retry: Retry;
  readonly #unanswered = new Map<bigint, Unanswered>();
  /** Receipts of what came and was not settled, at most as many as there is credit. */
  readonly #inHand = new Set<string>();
  /** Of these the lease was over when we came back. */
  readonly #lost = new Set<string>();
  readonly #ended: Promise<void>;
  readonly #abort = new AbortController();
  readonly #closing = new AbortController();
  /** Of the stream that is open; none between two streams. */
  #requests: Outbox<Request> | undefined;
  #acks: (Waiting & { receipt: string })[] = [];
  #ackUnderWay = false;
  #lastId = 0n;
  #arrived: Delivery[] = [];
  #failure: HeadraceError | undefined;
  #isOver = false;
  #wake: () => void = () => {};

  constructor(queues: Client<typeof Queues>, options: ConsumerOptions, retry: Retry) {
    this.#queues = queues;
    this.#options = options;
    this.#retry = retry;
    this.#ended = this.#run();
  }

  /** The next message; undefined when it was closed. Raises when the node cannot be found. */
  async next(): Promise<Delivery | undefined> {
    while (!this.#closing.signal.aborted) {
      const delivery = this.#arrived.shift();
      if (delivery !== undefined) {
        return delivery;
      }
      if (this.#failure !== undefined) {
        throw this.#failure;
      }
      if (this.#isOver) {
        return undefined;
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    return undefined;
  }

  settle(receipt: string, how: Settlement): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#isOver || this.#closing.signal.aborted) {
        reject(this.#failure ?? new Closed("the loop that gave this message has ended", "closed"));
      } else if (how.kind === "ack") {
        this.#acks.push({ receipt, resolve, reject });
        if (!this.#ackUnderWay) {
          this.#ackUnderWay = true;
          // What is acked in the same turn goes along.
          queueMicrotask(() => this.#sendAcks());
        }
      } else {
        this.#send([receipt], how, [{ resolve, reject }]);
      }
    });
  }

  onSettledElsewhere(receipt: string): void {
    this.#giveCredit([receipt]);
  }

  isLost(receipt: string): boolean {
    return this.#lost.has(receipt);
  }

  /** Ends it: what was asked for is done, what is still under lease goes back at once. */
  async close(): Promise<void> {
    while (this.#acks.length > 0) {
      this.#sendAcks();
    }
    this.#closing.abort();
    this.#requests?.close();
    this.#wake();
    // A connection that is dead without knowing it must not hold up the caller.
    const timer = setTimeout(() => this.#abort.abort(), CLOSE_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
  }

  #sendAcks(): void {
    const sent = this.#acks.splice(0, RECEIPTS_MAX);
    this.#ackUnderWay = sent.length > 0;
    if (this.#ackUnderWay) {
      this.#send(sent.map((each) => each.receipt), { kind: "ack" }, sent);
    }
  }

  #send(receipts: string[], how: Settlement, waiting: Waiting[]): void {
    this.#lastId += 1n;
    const asked = { receipts, how, waiting, isRepeated: false };
    this.#unanswered.set(this.#lastId, asked);
    this.#requests?.push(requestOf(this.#lastId, asked));
    if (how.kind !== "extend") {
      // However it comes out, these are not in our hands any more.
      this.#giveCredit(receipts);
    }
  }

  /** For each of these, once, however often it is settled. */
  #giveCredit(receipts: string[]): void {
    const settled = receipts.filter((each) => this.#inHand.delete(each)).length;
    if (settled > 0) {
      this.#requests?.push({ request: { case: "credit", value: settled } });
    }
  }

  /** One stream after the other, until it is closed or the node cannot be found. */
  async #run(): Promise<void> {
    for (;;) {
      const isLast = this.#closing.signal.aborted;
      const failure = await this.#converse();
      // One that is closing while there is no stream opens one more, to take leave.
      if (isLast || this.#abort.signal.aborted || !this.#retry.allows(failure)) {
        this.#end(failure);
        return;
      }
      await this.#retry.pause(this.#closing.signal);
    }
  }

  /** One stream, until it ends; what went wrong, if anything did. */
  async #converse(): Promise<HeadraceError | undefined> {
    const requests = new Outbox<Request>();
    requests.push(this.#open());
    for (const [id, asked] of this.#unanswered) {
      requests.push(requestOf(id, asked));
    }
    if (this.#closing.signal.aborted) {
      requests.close();
    }
    this.#requests = requests;
    let opened = false;
    let failure: HeadraceError | undefined;
    try {
      const answers = this.#queues.consume(requests, { signal: this.#abort.signal });
      for await (const { id, response } of answers) {
        if (response.case === "opened") {
          opened = true;
          this.#onLost(response.value.lost);
        } else if (response.case === "deliveries") {
          this.#onDeliveries(response.value.messages);
        } else if (response.case === "settled") {
          this.#onSettled(id, response.value.results);
        }
      }
    } catch (error) {
      if (!this.#abort.signal.aborted) {
        failure = translated(error);
      }
    }
    this.#requests = undefined;
    requests.close();
    for (const delivery of this.#arrived.splice(0)) {
      this.#inHand.delete(delivery.receipt);
    }
    if (!(failure instanceof Unreachable)) {
      for (const asked of this.#unanswered.values()) {
        asked.isRepeated = true;
      }
    }
    if (opened) {
      this.#retry.onReached();
    }
    return failure;
  }

  #open(): Request {
    const { visibilityMs, credit, ...rest } = this.#options;
    const asked = [...this.#unanswered.values()].flatMap((each) => each.receipts);
    const value = {
      ...rest,
      credit: credit - this.#inHand.size,
      inHand: [...new Set([...this.#inHand, ...asked])].slice(0, RECEIPTS_MAX),
      ...(visibilityMs !== undefined && { visibilityMs: milliseconds(visibilityMs) }),
    };
    return { request: { case: "open", value } };
  }

  #onLost(receipts: string[]): void {
    // What we have said meanwhile, or say again, is answered by itself.
    const lost = receipts.filter((each) => this.#inHand.has(each));
    lost.forEach((each) => this.#lost.add(each));
    this.#giveCredit(lost);
  }

  #onDeliveries(messages: Delivery[]): void {
    for (const delivery of messages) {
      this.#arrived.push(delivery);
      this.#inHand.add(delivery.receipt);
    }
    this.#wake();
  }

  #onSettled(id: bigint, results: Settled[]): void {
    const asked = this.#unanswered.get(id);
    this.#unanswered.delete(id);
    asked?.waiting.forEach((each, place) => {
      const result = results[place];
      const error = result === undefined ? null : outcomeOf(result);
      if (error === null) {
        each.resolve();
      } else if (error instanceof StaleReceipt && asked.isRepeated && asked.how.kind !== "extend") {
        each.reject(unknownOutcome(error));
      } else {
        each.reject(error);
      }
    });
    if (asked?.how.kind === "ack") {
      this.#sendAcks();
    }
  }

  #end(failure: HeadraceError | undefined): void {
    this.#failure = failure;
    this.#isOver = true;
    const error = failure ?? new Closed("the loop that gave this message ended", "closed");
    for (const { waiting, isRepeated } of this.#unanswered.values()) {
      const outcome = isRepeated && failure !== undefined ? unknownOutcome(failure) : error;
      waiting.forEach((each) => each.reject(outcome));
    }
    this.#acks.forEach((each) => each.reject(error));
    this.#wake();
  }
}

function requestOf(id: bigint, { receipts, how }: Unanswered): Request {
  return { id, request: { case: how.kind, value: settling(receipts, how) } as never };
}

function unknownOutcome(cause: HeadraceError): HeadraceError {
  return new Disconnected(
    `the connection broke before the answer, and the lease may be over: ${cause.message}`,
    "disconnected",
    true,
    { cause },
  );
}

/** What is to be sent, in order, until it is closed; what comes later is dropped. */
class Outbox<T> implements AsyncIterable<T> {
  #items: T[] = [];
  #wake: () => void = () => {};
  isClosed = false;

  push(item: T): void {
    if (!this.isClosed) {
      this.#items.push(item);
      this.#wake();
    }
  }

  close(): void {
    this.isClosed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) {
        yield item;
      } else if (this.isClosed) {
        return;
      } else {
        await new Promise<void>((resolve) => (this.#wake = resolve));
      }
    }
  }
}
