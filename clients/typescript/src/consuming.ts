/**
 * One stream of leases: messages come as far as there is credit, receipts go back.
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
 */
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";

import { Closed, errorOf, type HeadraceError, translated } from "./errors.js";
import type { ConsumeRequestSchema, Delivery, Queues, Settled } from "./generated/headrace_pb.js";
import type { Settlement, Settler } from "./message.js";
import { milliseconds } from "./values.js";

type Request = MessageInitShape<typeof ConsumeRequestSchema>;

/** Receipts in one request, as many as a node takes. */
const RECEIPTS_MAX = 10_000;
/** How long what was asked for may take to be done at the end. */
const CLOSE_MS_MAX = 5_000;

export interface StreamOptions {
  group: string;
  topics: string[];
  credit: number;
  consumer?: string;
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

export class ConsumeStream implements Settler {
  readonly #requests = new Outbox<Request>();
  readonly #stop = new AbortController();
  readonly #waiting = new Map<bigint, { kind: Settlement["kind"]; each: Waiting[] }>();
  /** Receipts of what came and was not settled, at most as many as there was credit. */
  readonly #inHand = new Set<string>();
  readonly #ended: Promise<void>;
  #acks: (Waiting & { receipt: string })[] = [];
  #ackUnderWay = false;
  #lastId = 0n;
  #arrived: Delivery[] = [];
  #failure: HeadraceError | undefined;
  #over = false;
  #wake: () => void = () => {};
  /** Whether the node has let us in: then the next one who tries begins anew. */
  opened = false;

  constructor(queues: Client<typeof Queues>, options: StreamOptions) {
    const { visibilityMs, ...open } = options;
    this.#requests.push({
      request: {
        case: "open",
        value: {
          ...open,
          ...(visibilityMs !== undefined && { visibilityMs: milliseconds(visibilityMs) }),
        },
      },
    });
    this.#ended = this.#listen(queues);
  }

  /** The next message; undefined when the stream was closed. Raises when it broke. */
  async next(): Promise<Delivery | undefined> {
    for (;;) {
      const delivery = this.#arrived.shift();
      if (delivery !== undefined || this.#over) {
        if (delivery === undefined && this.#failure !== undefined) {
          throw this.#failure;
        }
        return delivery;
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  settle(receipt: string, how: Settlement): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#over || this.#requests.isClosed) {
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
    if (!this.#requests.isClosed) {
      this.#giveCredit([receipt]);
    }
  }

  /** Ends it: what was asked for is done, what is still under lease goes back at once. */
  async close(): Promise<void> {
    if (this.#acks.length > 0) {
      this.#sendAcks();
    }
    this.#requests.close();
    // A connection that is dead without knowing it must not hold up whoever leaves.
    const timer = setTimeout(() => this.abort(), CLOSE_MS_MAX);
    await this.#ended;
    clearTimeout(timer);
  }

  /** Ends it now, without waiting for anything that was asked for. */
  abort(): void {
    this.#stop.abort();
  }

  #sendAcks(): void {
    const sent = this.#acks.splice(0, RECEIPTS_MAX);
    this.#ackUnderWay = sent.length > 0;
    if (this.#ackUnderWay && !this.#over) {
      this.#send(sent.map((each) => each.receipt), { kind: "ack" }, sent);
    }
  }

  #send(receipts: string[], how: Settlement, waiting: Waiting[]): void {
    this.#lastId += 1n;
    this.#waiting.set(this.#lastId, { kind: how.kind, each: waiting });
    const value = settling(receipts, how);
    this.#requests.push({ id: this.#lastId, request: { case: how.kind, value } as never });
    if (how.kind !== "extend") {
      // However it comes out, these are not in our hands any more.
      this.#giveCredit(receipts);
    }
  }

  /** For each of these, once, however often it is settled. */
  #giveCredit(receipts: string[]): void {
    const settled = receipts.filter((each) => this.#inHand.delete(each)).length;
    if (settled > 0) {
      this.#requests.push({ request: { case: "credit", value: settled } });
    }
  }

  async #listen(queues: Client<typeof Queues>): Promise<void> {
    try {
      const answers = queues.consume(this.#requests, { signal: this.#stop.signal });
      for await (const { id, response } of answers) {
        if (response.case === "opened") {
          this.opened = true;
        } else if (response.case === "deliveries") {
          for (const delivery of response.value.messages) {
            this.#arrived.push(delivery);
            this.#inHand.add(delivery.receipt);
          }
          this.#wake();
        } else if (response.case === "settled") {
          this.#onSettled(id, response.value.results);
        }
      }
    } catch (error) {
      if (!this.#stop.signal.aborted) {
        this.#failure = translated(error);
      }
    }
    this.#over = true;
    // Their leases went with the stream.
    this.#arrived = [];
    this.#requests.close();
    const failure = this.#failure ?? new Closed("the loop that gave this message ended", "closed");
    const waiting = [...this.#waiting.values()].flatMap((request) => request.each);
    for (const { reject } of [...waiting, ...this.#acks]) {
      reject(failure);
    }
    this.#wake();
  }

  #onSettled(id: bigint, results: Settled[]): void {
    const settled = this.#waiting.get(id);
    this.#waiting.delete(id);
    settled?.each.forEach((each, place) => {
      const result = results[place];
      const error = result === undefined ? null : outcomeOf(result);
      if (error === null) {
        each.resolve();
      } else {
        each.reject(error);
      }
    });
    if (settled?.kind === "ack") {
      this.#sendAcks();
    }
  }
}

/** What is to be sent, in order, until it is closed. */
class Outbox<T> implements AsyncIterable<T> {
  #items: T[] = [];
  #wake: () => void = () => {};
  isClosed = false;

  push(item: T): void {
    this.#items.push(item);
    this.#wake();
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
