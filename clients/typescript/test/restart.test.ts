/** A node that goes away, and comes back or does not. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";

import { connect, Unreachable } from "../src/index.js";
import { Retry } from "../src/retry.js";
import { NodeProcess } from "./node.js";

test("a loop goes on at a node that was killed and came back, with what it holds", async () => {
  const node = await NodeProcess.start();
  const headrace = connect(node.grpc, { retryMs: 60_000 });
  try {
    await headrace.createTopic("orders", { partitions: 1 });
    await headrace.publishMany("orders", [{ value: 1 }, { value: 2 }]);
    const seen: [number, number][] = [];
    const options = { group: "billing", visibilityMs: 60_000 };
    for await (const message of headrace.consume<number>("orders", options)) {
      seen.push([message.value, message.attempt]);
      if (seen.length === 2) {
        await node.kill();
        // Said when the node is back, where the lease stands.
        const acked = message.ack();
        await node.start();
        await acked;
        await headrace.publish("orders", 3);
      } else {
        await message.ack();
      }
      if (seen.length === 3) break;
    }
    assert.deepEqual(seen, [[1, 1], [2, 1], [3, 1]]);
  } finally {
    await headrace.close();
    await node.stop();
  }
});

test("a loop finds a node that was not there when it began", async () => {
  const node = await NodeProcess.start();
  const first = connect(node.grpc);
  await first.createTopic("orders", { partitions: 1 });
  await first.publish("orders", 7);
  await first.close();
  await node.kill();
  const headrace = connect(node.grpc);
  const warned = once(process, "warning");
  try {
    const loop = headrace.consume<number>("orders", { group: "billing" });
    const next = loop.next();
    const [warning] = (await warned) as [Error];
    assert.match(warning.message, /waiting for it/);
    await node.start();
    const { value: message } = await next;
    assert.equal(message?.value, 7);
    await message.ack();
    await loop.return(undefined);
  } finally {
    await headrace.close();
    await node.stop();
  }
});

test("a loop waits as long as it takes, unless it is told otherwise", (context) => {
  let now = 0;
  context.mock.method(Date, "now", () => now);
  context.mock.method(process, "emitWarning", () => {});
  const away = new Unreachable("nobody there", "unreachable");
  const [patient, told] = [new Retry(undefined), new Retry(10_000)];
  now = 24 * 3600 * 1000;
  assert.ok(patient.allows(away));
  assert.ok(!told.allows(away));
});

test("a node that is not there is an error that says so", async () => {
  const node = await NodeProcess.start();
  await node.stop();
  const headrace = connect(node.grpc, { retryMs: 0 });
  await assert.rejects(headrace.publish("orders", 1), Unreachable);
  await assert.rejects(headrace.consume("orders", { group: "g" }).next(), Unreachable);
  await headrace.close();
  await assert.rejects(headrace.publish("orders", 1), { code: "closed" });
});
