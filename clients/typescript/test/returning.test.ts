/** A connection that breaks while messages are in hand. */
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { connect, Disconnected, type Headrace, type Message } from "../src/index.js";
import { NodeProcess } from "./node.js";
import { CutProxy } from "./proxy.js";

let node: NodeProcess;
let proxy: CutProxy;
/** By the proxy, and past it. */
let headrace: Headrace;
let direct: Headrace;
let topics = 0;

before(async () => {
  node = await NodeProcess.start();
  direct = connect(node.grpc);
});

after(async () => {
  await direct.close();
  await node.stop();
});

beforeEach(async () => {
  proxy = await CutProxy.start(node.grpc);
  headrace = connect(proxy.address);
});

afterEach(async () => {
  await headrace.close();
  await proxy.stop();
});

async function topicOf(...values: number[]): Promise<string> {
  topics += 1;
  const topic = `topic-${topics}`;
  await direct.createTopic(topic, { partitions: 1 });
  await direct.publishMany(topic, values.map((value) => ({ value })));
  return topic;
}

test("a loop comes back by itself, and what it has in hand stays its own", async () => {
  const topic = await topicOf(1, 2, 3);
  const seen: [number, number][] = [];
  for await (const message of headrace.consume<number>(topic, { group: topic, credit: 2 })) {
    seen.push([message.value, message.attempt]);
    // Nobody asks the loop for anything now.
    await proxy.cut();
    await message.ack();
    if (seen.length === 3) {
      break;
    }
  }
  // Nothing came twice, also nothing that had come and waited for the caller.
  assert.deepEqual(seen, [[1, 1], [2, 1], [3, 1]]);
  const { acked, leased, ready } = await direct.statistics(topic);
  assert.deepEqual([acked, leased, ready], [3n, 0n, 0n]);
});

test("a loop has no more in hand than its credit when it is back", async () => {
  const topic = await topicOf(1, 2, 3, 4);
  const hand: Message<number>[] = [];
  for await (const message of headrace.consume<number>(topic, { group: topic, credit: 3 })) {
    hand.push(message);
    if (hand.length === 2) {
      await proxy.cut();
    } else if (hand.length === 3) {
      assert.equal((await direct.statistics(topic)).leased, 3n);
      await Promise.all(hand.map((each) => each.ack()));
    } else if (hand.length === 4) {
      await message.ack();
      break;
    }
  }
  assert.deepEqual(hand.map((each) => [each.value, each.attempt]), [[1, 1], [2, 1], [3, 1], [4, 1]]);
});

test("an ack that did not arrive is said again", async () => {
  const topic = await topicOf(1);
  for await (const message of headrace.consume<number>(topic, { group: topic })) {
    proxy.swallowsRequests = true;
    const acked = message.ack();
    await proxy.cut();
    await acked;
    break;
  }
  assert.equal((await direct.statistics(topic)).acked, 1n);
});

test("an ack whose answer is lost is one of which nobody knows", async () => {
  const topic = await topicOf(1);
  for await (const message of headrace.consume<number>(topic, { group: topic })) {
    proxy.swallowsAnswers = true;
    const acked = assert.rejects(message.ack(), Disconnected);
    while ((await direct.statistics(topic)).acked === 0n);
    await proxy.cut();
    await acked;
    break;
  }
});

test("a loop that is left while its connection is broken takes leave of the node", async () => {
  const topic = await topicOf(1, 2);
  const loop = headrace.consume<number>(topic, { group: topic });
  const { value: first } = (await loop.next()) as { value: Message<number> };
  const back = proxy.cut();
  const acked = first.ack();
  await loop.return(undefined);
  await Promise.all([back, acked]);
  const [again] = await direct.lease<number>(topic, { group: topic });
  assert.deepEqual([again?.value, again?.attempt], [2, 1]);
});

test("a signal gives back at once what the loop had, at no attempt", async () => {
  const topic = await topicOf(1);
  const stop = new AbortController();
  for await (const _ of headrace.consume(topic, { group: topic, signal: stop.signal })) {
    stop.abort();
  }
  const [again] = await direct.lease(topic, { group: topic });
  assert.equal(again?.attempt, 1);
});

test("a tail goes on where it was, with what came meanwhile", async () => {
  const topic = await topicOf(1);
  const tail = headrace.tail<number>(topic, { start: "earliest" });
  const seen = [(await tail.next()).value.value];
  const next = tail.next();
  await proxy.cut();
  await direct.publishMany(topic, [{ value: 2 }, { value: 3 }]);
  seen.push((await next).value.value, (await tail.next()).value.value);
  await tail.return(undefined);
  assert.deepEqual(seen, [1, 2, 3]);
});

test("a loop that comes back too late hears what it has lost, and is given it again", async () => {
  const impatient = await NodeProcess.start({ HEADRACE_LEASE_GRACE_MS: "0" });
  const between = await CutProxy.start(impatient.grpc);
  const client = connect(between.address);
  try {
    await client.createTopic("orders", { partitions: 1 });
    await client.publish("orders", 1);
    const seen: Message[] = [];
    // Credit for one: what is lost is not in hand any more.
    for await (const message of client.consume("orders", { group: "g", credit: 1 })) {
      seen.push(message);
      assert.equal(message.lost, false);
      if (seen.length === 1) {
        await between.cut();
      } else {
        await message.ack();
        break;
      }
    }
    assert.deepEqual(seen.map((each) => [each.attempt, each.lost]), [[1, true], [2, false]]);
  } finally {
    await client.close();
    await between.stop();
    await impatient.stop();
  }
});
