/** The client against a real node. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  connect,
  DecodeError,
  type Headrace,
  HeadraceError,
  InvalidArgument,
  InvalidReceipt,
  type Message,
  type NewMessage,
  StaleReceipt,
  TopicExists,
  UnknownTopic,
} from "../src/index.js";
import { NodeProcess } from "./node.js";

let node: NodeProcess;
let headrace: Headrace;
let topics = 0;

before(async () => {
  node = await NodeProcess.start();
  headrace = connect(node.grpc);
});

after(async () => {
  await headrace.close();
  await node.stop();
});

/** A topic that no other test has, with one partition. */
async function newTopic(): Promise<string> {
  topics += 1;
  const name = `topic-${topics}`;
  await headrace.createTopic(name, { partitions: 1 });
  return name;
}

async function take<T>(items: AsyncIterable<T>, count: number): Promise<T[]> {
  const taken: T[] = [];
  for await (const item of items) {
    taken.push(item);
    if (taken.length === count) {
      break;
    }
  }
  return taken;
}

test("values of every kind come back as they were given", async () => {
  const topic = await newTopic();
  const values = [{ id: 7, tags: ["a"] }, "grüße", new Uint8Array([0, 255]), null, 1.5, false];
  await headrace.publishMany(topic, values.map((value) => ({ value })));
  const leased = await headrace.lease(topic, { group: "all", count: 10 });
  assert.deepEqual(leased.map((each) => normal(each.value)), values.map(normal));

  await headrace.publish(topic, "x", {
    key: "k",
    headers: { trace: "abc", empty: null },
    priority: "high",
    maxAttempts: 9,
  });
  const [message] = await headrace.lease(topic, { group: "all" });
  assert.equal(message?.keyText, "k");
  assert.equal(message.header("trace"), "abc");
  assert.equal(message.header("empty"), undefined);
  assert.equal(message.priority, "high");
  assert.equal(leased[0]?.priority, "normal");
  assert.equal(message.maxAttempts, 9);
  assert.equal(message.id, `${topic}:0:6`);
});

test("a value must be said, and null too", async () => {
  const topic = await newTopic();
  const unsaid = [{} as NewMessage, { value: undefined }];
  await assert.rejects(headrace.publish(topic, undefined), InvalidArgument);
  await assert.rejects(headrace.publishMany(topic, [{ value: 1 }, ...unsaid]), /say null/);
  await assert.rejects(headrace.transact({ publish: { [topic]: unsaid } }), InvalidArgument);
  const [place] = await headrace.publishMany(topic, [{ value: null, key: "k" }]);
  assert.equal(place?.id, `${topic}:0:0`);
});

function normal(value: unknown): unknown {
  return value instanceof Uint8Array ? [...value] : value;
}

test("the address is HEADRACE_URL, where none is given", async () => {
  const topic = await newTopic();
  const before = process.env["HEADRACE_URL"];
  try {
    const ours = `grpc://${node.grpc}`;
    for (const url of [ours, `${ours}/`, `headrace://127.0.0.1:9092,b:9092, ${ours}`]) {
      process.env["HEADRACE_URL"] = url;
      const other = connect();
      assert.equal((await other.publish(topic, "x")).topic, topic);
      await other.close();
    }
    process.env["HEADRACE_URL"] = "127.0.0.1:9092";
    assert.throws(() => connect(), InvalidArgument);
  } finally {
    if (before === undefined) delete process.env["HEADRACE_URL"];
    else process.env["HEADRACE_URL"] = before;
  }
  const other = connect(`grpc://${node.grpc}`);
  assert.equal((await other.publish(topic, "y")).topic, topic);
  await other.close();
});

test("what is published as JSON is JSON for every other client", async () => {
  const topic = await newTopic();
  await headrace.publish(topic, { id: 7 });
  const answer = await fetch(`http://${node.http}/consume?topic=${topic}&partition=0&offset=0`);
  const { messages } = (await answer.json()) as { messages: { value: unknown }[] };
  assert.deepEqual(messages.map((each) => each.value), [{ id: 7 }]);
});

test("many messages go in parts and keep their order", async () => {
  const topic = await newTopic();
  const large = "x".repeat(600 * 1024);
  const messages = [{ value: large }, { value: large }, ...Array(2_500).fill({ value: 1 })];
  const places = await headrace.publishMany(topic, messages);
  assert.deepEqual(places.map((each) => each.offset), messages.map((_, place) => place));
  assert.deepEqual(await headrace.publishMany(topic, []), []);
});

test("a message is tried again, extended, given back and rejected", async () => {
  const topic = await newTopic();
  const options = { group: "work", waitMs: 5_000, visibilityMs: 30_000 };
  await headrace.publish(topic, "x");
  const [first] = await headrace.lease(topic, options);
  await first?.nack({ delayMs: 0, error: "no answer" });
  const [second] = await headrace.lease(topic, options);
  assert.equal(second?.attempt, 2);
  assert.equal(second.error, "no answer");
  await second.extend(60_000);
  await second.release();
  const [third] = await headrace.lease(topic, options);
  assert.equal(third?.attempt, 2);
  await third.reject("malformed");
  const { letters } = await headrace.services.letters.listDead({ topic });
  assert.deepEqual(letters.map((each) => [each.reason, each.error, each.attempts]), [
    ["rejected", "malformed", 2],
  ]);
});

test("a client leases as one member, which is forgotten when all is settled", async () => {
  const topic = await newTopic();
  const group = `${topic}-readers`;
  await headrace.publishMany(topic, [{ value: 1 }, { value: 2 }, { value: 3 }]);
  const leased: Message[] = [];
  for (let call = 0; call < 3; call += 1) {
    leased.push(...(await headrace.lease(topic, { group })));
  }
  const consumers = async () => (await headrace.services.groups.describe({ name: group })).consumers;
  assert.equal(leased.length, 3);
  assert.match((await consumers()).join(), /^ts-[0-9a-f-]+$/);
  await headrace.ack(leased);
  assert.deepEqual(await consumers(), []);
});

test("a delayed message waits, and is listed", async () => {
  const topic = await newTopic();
  await headrace.publish(topic, "later", { deliverAt: new Date(Date.now() + 3_600_000) });
  assert.deepEqual(await headrace.lease(topic, { group: "work" }), []);
  const { messages } = await headrace.services.letters.listDelayed({ topic });
  assert.equal(messages.length, 1);
});

test("a lease that is over is a stale receipt, alone and among others", async () => {
  const topic = await newTopic();
  await headrace.publishMany(topic, [{ value: 1 }, { value: 2 }]);
  const leased = await headrace.lease(topic, { group: "work", count: 2 });
  const [one, two] = leased as [Message, Message];
  await one.ack();
  await assert.rejects(one.ack(), StaleReceipt);
  const [stale, fine] = await headrace.ack([one, two.receipt]);
  assert.ok(stale instanceof StaleReceipt && stale.code === "stale-receipt");
  assert.equal(fine, null);
  const [foreign] = await headrace.nack(["nonsense"]);
  assert.ok(foreign instanceof InvalidReceipt);
});

test("errors have classes, codes, and say what to do", async () => {
  const topic = await newTopic();
  await assert.rejects(headrace.createTopic(topic), TopicExists);
  await assert.rejects(headrace.deleteTopic("nowhere"), (error: unknown) => {
    assert.ok(error instanceof UnknownTopic && error instanceof HeadraceError);
    assert.equal(error.code, "unknown-topic");
    assert.equal(error.retriable, false);
    assert.match(error.message, /nowhere/);
    return true;
  });
  await assert.rejects(headrace.publish(topic, Number.NaN), InvalidArgument);
  await assert.rejects(headrace.publish(topic, () => 1), InvalidArgument);
  await assert.rejects(headrace.publish(topic, 1, { delayMs: Number.NaN }), InvalidArgument);
  await assert.rejects(headrace.publish(topic, 1, { partition: 7 }), HeadraceError);
  await assert.rejects(take(headrace.consume(topic, { group: "work", credit: -1 }), 1), InvalidArgument);
  await assert.rejects(take(headrace.tail("nowhere"), 1), UnknownTopic);
  const json = { headers: { "content-type": "application/json" } };
  await headrace.publish(topic, new Uint8Array([123]), json);
  const [broken] = await headrace.lease(topic, { group: "work" });
  assert.throws(() => broken?.value, DecodeError);
});

test("a loop has as many messages in hand as it has credit", async () => {
  const topic = await newTopic();
  const numbers = Array.from({ length: 50 }, (_, number) => number);
  await headrace.publishMany(topic, numbers.map((value) => ({ value })));
  const seen: number[] = [];
  let hand: Message<number>[] = [];
  for await (const message of headrace.consume<number>(topic, { group: "five", credit: 5 })) {
    hand.push(message);
    seen.push(message.value);
    if (hand.length === 5) {
      assert.equal((await headrace.statistics("five")).leased, 5n);
      await Promise.all(hand.map((each) => each.ack()));
      hand = [];
    }
    if (seen.length === 50) {
      break;
    }
  }
  assert.deepEqual(seen, numbers);
});

test("a loop that is left gives back what it had, and does what was asked for", async () => {
  const topic = await newTopic();
  await headrace.publishMany(topic, Array(20).fill({ value: "x" }));
  const acks: Promise<void>[] = [];
  for await (const message of headrace.consume(topic, { group: "left", credit: 10 })) {
    acks.push(message.ack());
    if (acks.length === 3) {
      break;
    }
  }
  const { leased, ready, acked } = await headrace.statistics("left");
  assert.deepEqual([leased, ready, acked], [0n, 17n, 3n]);
  await Promise.all(acks);
});

test("a message that outlives its loop says so", async () => {
  const topic = await newTopic();
  await headrace.publish(topic, "x");
  const [message] = await take(headrace.consume(topic, { group: "late" }), 1);
  await assert.rejects(message?.ack() ?? Promise.resolve(), { code: "closed" });
});

test("a thousand acks at once share requests, and all are done", async () => {
  const topic = await newTopic();
  await headrace.publishMany(topic, Array(1_000).fill({ value: "x" }));
  const acks: Promise<void>[] = [];
  for await (const message of headrace.consume(topic, { group: "bulk", credit: 1_000 })) {
    acks.push(message.ack());
    if (acks.length === 1_000) {
      break;
    }
  }
  await Promise.all(acks);
  assert.equal((await headrace.statistics("bulk")).acked, 1_000n);
});

test("a transaction publishes and acks as one, or does nothing", async () => {
  const [orders, invoices] = [await newTopic(), await newTopic()];
  await headrace.publishMany(orders, [{ value: 1 }, { value: 2 }]);
  const seen: number[] = [];
  // Credit for one: a message that a transaction has acked makes room for the next.
  for await (const message of headrace.consume<number>(orders, { group: "billing", credit: 1 })) {
    const publish = { [invoices]: [{ value: { for: message.value } }] };
    const places = await headrace.transact({ publish, ack: [message] });
    assert.equal(places[invoices]?.[0]?.topic, invoices);
    await assert.rejects(headrace.transact({ publish, ack: [message.receipt] }), StaleReceipt);
    seen.push(message.value);
    if (seen.length === 2) {
      break;
    }
  }
  const made = await headrace.lease(invoices, { group: "all", count: 10 });
  assert.deepEqual(made.map((each) => each.value), [{ for: 1 }, { for: 2 }]);
  assert.equal((await headrace.statistics("billing")).acked, 2n);
});

test("messages of a loop that are acked by a call make room for more", async () => {
  const topic = await newTopic();
  await headrace.publishMany(topic, [{ value: 1 }, { value: 2 }]);
  await headrace.publishMany(topic, [{ value: 3 }, { value: 4 }]);
  for await (const message of headrace.consume<number>(topic, { group: "calls", credit: 1 })) {
    assert.deepEqual(await headrace.ack([message]), [null]);
    // Once more is an error, and no more credit.
    await assert.rejects(message.ack(), StaleReceipt);
    assert.ok((await headrace.statistics("calls")).leased <= 1n);
    if (message.value === 4) {
      break;
    }
  }
  assert.equal((await headrace.statistics("calls")).acked, 4n);
});

test("a signal ends a loop that waits", async () => {
  const topic = await newTopic();
  const stop = new AbortController();
  await headrace.publish(topic, "x");
  const seen: Message[] = [];
  for await (const message of headrace.consume(topic, { group: "g", signal: stop.signal })) {
    seen.push(message);
    await message.ack();
    stop.abort();
  }
  assert.equal(seen.length, 1);
});

test("a tail begins where it is told to and goes on", async () => {
  const topic = await newTopic();
  await headrace.publishMany(topic, [{ value: "a" }, { value: "b" }]);
  const tail = headrace.tail<string>(topic, { start: "earliest" });
  assert.equal((await tail.next()).value.value, "a");
  assert.equal((await tail.next()).value.value, "b");
  await headrace.publish(topic, "c", { key: "k" });
  const record = (await tail.next()).value;
  assert.deepEqual([record.offset, record.value, record.keyText], [2, "c", "k"]);
  await tail.return(undefined);
  const [again] = await take(headrace.tail(topic, { positions: { 0: 1 } }), 1);
  assert.equal(again?.value, "b");
});

test("topics are listed", async () => {
  const topic = await newTopic();
  const names: string[] = [];
  for await (const each of headrace.topics()) {
    names.push(each.name);
  }
  assert.ok(names.includes(topic));
});
