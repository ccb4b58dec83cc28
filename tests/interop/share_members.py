"""Members of share groups, made of confluent-kafka's ShareConsumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from tests.interop.group_members import quiet

# How long to wait for what is sure to come; waiting ends when it does.
WAIT_SECONDS = 60

TOPIC = "jobs"
GROUP = "workers"

ACCEPT = AcknowledgeType.ACCEPT
RELEASE = AcknowledgeType.RELEASE
REJECT = AcknowledgeType.REJECT

PRIORITIES = ("critical", "high", "normal", "low", "background")

Seen = list[tuple[int, int]]


@contextmanager
def member(
    bootstrap: str, group: str = GROUP, *topics: str, implicit: bool = False
) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer(
        {
            **quiet(bootstrap),
            "group.id": group,
            "share.acknowledgement.mode": "implicit" if implicit else "explicit",
        }
    )
    consumer.subscribe(list(topics) or [TOPIC])
    try:
        yield consumer
    finally:
        # Some tests close it before.
        with suppress(KafkaException, RuntimeError):
            consumer.close()


def configure(bootstrap: str, group: str = GROUP, **values: Any) -> None:
    """Settings of a share group, as an administrator gives them."""
    names = {
        "start": "share.auto.offset.reset",
        "lock_ms": "share.record.lock.duration.ms",
        "deliveries": "share.delivery.count.limit",
        "backoff_ms": "headrace.backoff_ms",
        "held": "headrace.leases_per_consumer_max",
    }
    resource = ConfigResource(
        ConfigResource.Type.GROUP,
        group,
        incremental_configs=[
            ConfigEntry(names[name], str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ],
    )
    # Its requests end when it does.
    admin = AdminClient(quiet(bootstrap))
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(WAIT_SECONDS)


def publish(
    bootstrap: str,
    values: Iterable[bytes],
    topic: str = TOPIC,
    headers: Mapping[str, str] | None = None,
) -> None:
    producer = Producer({**quiet(bootstrap), "linger.ms": 1})
    for value in values:
        producer.produce(topic, value, headers=dict(headers or {}))
    assert producer.flush(WAIT_SECONDS) == 0


def publish_mixed(bootstrap: str, count: int) -> None:
    """So many messages whose priorities take turns, in batches of any size."""
    producer = Producer({**quiet(bootstrap), "linger.ms": 5})
    for number in range(count):
        headers: dict[str, str | bytes | None] = {
            "headrace-priority": PRIORITIES[number % len(PRIORITIES)]
        }
        producer.produce(TOPIC, b"%d" % number, headers=headers)
    assert producer.flush(WAIT_SECONDS) == 0


def poll(consumer: ShareConsumer, seconds: float = WAIT_SECONDS) -> list[Message]:
    """The next batch that is not empty; none when nothing came in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        messages = list(consumer.poll(min(1.0, seconds)))
        for message in messages:
            assert message.error() is None, message.error()
        if messages:
            return messages
    return []


def settle(
    consumer: ShareConsumer,
    messages: Sequence[Message],
    kind: AcknowledgeType | Callable[[Message], AcknowledgeType] = ACCEPT,
) -> None:
    """Acknowledge and wait until it is on the node's disk."""
    for message in messages:
        consumer.acknowledge(message, kind(message) if callable(kind) else kind)
    outcome = consumer.commit_sync(WAIT_SECONDS)
    assert outcome and all(error is None for error in outcome.values()), outcome


def take(consumer: ShareConsumer, count: int, seconds: float = WAIT_SECONDS) -> list[Message]:
    """Poll and accept until there were so many."""
    taken: list[Message] = []
    end = time.monotonic() + seconds
    while len(taken) < count:
        messages = poll(consumer, end - time.monotonic())
        assert messages, f"only {len(taken)} of {count} messages came"
        settle(consumer, messages)
        taken += messages
    return taken


def seen(messages: Iterable[Message]) -> Seen:
    return [(message.offset() or 0, message.delivery_count() or 0) for message in messages]


def letters_of(bootstrap: str, count: int, topic: str = TOPIC) -> list[Message]:
    """Dead letters, read as a stream."""
    consumer = Consumer(
        {
            **quiet(bootstrap),
            "group.id": "reader of letters",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 100,
        }
    )
    consumer.subscribe([f"{topic}.dlq"])
    letters: list[Message] = []
    end = time.monotonic() + WAIT_SECONDS
    while len(letters) < count and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            letters.append(message)
    consumer.close()
    return letters
