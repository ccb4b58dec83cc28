"""A worker that goes on until it is killed, on confluent-kafka's ShareConsumer or on
our own SDK:

    python share_worker.py confluent|sdk BOOTSTRAP GROUP TOPIC LOCK_MS

A message is a number, which says what becomes of it; the same rules stand in
java/ShareWorker.java. It prints what it was given before it settles it, and then
what became of what it accepted:

    took NUMBER...
    acked NUMBER...     the node confirmed it: for good
    lost NUMBER...      it did not, or the locks had run out: somebody else may have
                        them. For what somebody else has done already, Kafka's
                        answer to a late acknowledgement is that all is well.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict

ACCEPT, RELEASE, REJECT = "accept", "release", "reject"


def fate_of(number: int, attempt: int) -> str:
    if number % 997 == 0:
        return REJECT
    return RELEASE if attempt == 1 and number % 11 == 0 else ACCEPT


def dawdles(number: int, attempt: int) -> bool:
    """Whether the worker holds everything until its locks have run out."""
    return attempt == 1 and number % 8009 == 0


def wait(milliseconds: int) -> None:
    threading.Event().wait(milliseconds / 1000)


def tell(word: str, values: list[str]) -> None:
    if values:
        print(word, *values, flush=True)


def work_with_confluent(bootstrap: str, group: str, topic: str, lock_ms: int) -> None:
    from confluent_kafka import AcknowledgeType, ShareConsumer, TopicPartition

    kinds = {
        ACCEPT: AcknowledgeType.ACCEPT,
        RELEASE: AcknowledgeType.RELEASE,
        REJECT: AcknowledgeType.REJECT,
    }
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    while True:
        accepted: dict[int, list[str]] = defaultdict(list)
        slow = False
        begun = time.monotonic()
        messages = list(consumer.poll(0.2))
        tell("took", [(message.value() or b"").decode() for message in messages])
        for message in messages:
            value = (message.value() or b"").decode()
            number, attempt = int(value), message.delivery_count() or 1
            slow |= dawdles(number, attempt)
            fate = fate_of(number, attempt)
            consumer.acknowledge(message, kinds[fate])
            if fate == ACCEPT:
                accepted[message.partition() or 0].append(value)
        if slow:
            wait(lock_ms + 500)
        outcome = consumer.commit_sync(20) if accepted else {}
        in_time = time.monotonic() - begun < lock_ms / 1000
        for partition, values in accepted.items():
            error = outcome.get(TopicPartition(topic, partition), "nothing was said of it")
            tell("acked" if error is None and in_time else "lost", values)


def work_with_sdk(server: str, group: str, topic: str, lock_ms: int) -> None:
    import headrace

    with (
        headrace.connect(server) as connected,
        connected.queue(topic, group, visibility=lock_ms / 1000) as queue,
    ):
        while True:
            fates: dict[str, list[headrace.Message[bytes]]] = defaultdict(list)
            slow = False
            messages = queue.receive(500, wait=0.2)
            tell("took", [(message.raw or b"").decode() for message in messages])
            for message in messages:
                number = int(message.raw or b"")
                slow |= dawdles(number, message.attempt)
                fates[fate_of(number, message.attempt)].append(message)
            if slow:
                wait(lock_ms + 500)
            queue.reject(fates[REJECT], error="it is such a number")
            queue.nack(fates[RELEASE], error="not at first")
            for message, error in zip(fates[ACCEPT], queue.ack(fates[ACCEPT]), strict=True):
                tell("acked" if error is None else "lost", [(message.raw or b"").decode()])


if __name__ == "__main__":
    kind, server, group, topic, lock = sys.argv[1:]
    work = {"confluent": work_with_confluent, "sdk": work_with_sdk}[kind]
    work(server, group, topic, int(lock))
