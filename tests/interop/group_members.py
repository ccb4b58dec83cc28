"""Members of groups, made of real clients, each in a thread of its own.

A member polls until it is told to stop and keeps what it saw: values, and which
partitions were given to it and taken away, in order. Clients that are used from two
threads at once are outside what their authors promise, so nobody else touches one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPIC = "orders"

# Every way in which confluent-kafka can share out a topic.
PROTOCOLS = ("range", "roundrobin", "cooperative-sticky", "consumer")


# Whoever changes something that a test may wait for tells it here.
_news = threading.Condition()


def tell() -> None:
    with _news:
        _news.notify_all()


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    with _news:
        came = _news.wait_for(lambda: bool(condition()), seconds)
    assert came, f"waited {seconds} s in vain: {what}"


def quiet(bootstrap: str) -> dict[str, Any]:
    """Lost connections are part of these tests and need not be printed."""
    return {"bootstrap.servers": bootstrap, "error_cb": lambda error: None, "log_level": 0}


def settings_of(protocol: str) -> dict[str, Any]:
    if protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {
        "group.protocol": "classic",
        "partition.assignment.strategy": protocol,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 200,
    }


def make_topic(
    bootstrap: str,
    name: str = TOPIC,
    partitions: int = 4,
    config: dict[str, str] | None = None,
) -> None:
    admin = AdminClient(quiet(bootstrap))
    topic = NewTopic(name, partitions, 1, config=config or {})
    for made in admin.create_topics([topic]).values():
        made.result()


def publish(bootstrap: str, values: Iterable[str], topic: str = TOPIC) -> None:
    producer = Producer({**quiet(bootstrap), "linger.ms": 1})
    for value in values:
        producer.produce(topic, value.encode(), key=value.encode())
    assert producer.flush(30) == 0


class Member:
    def __init__(
        self, bootstrap: str, group: str, protocol: str, topics: tuple[str, ...] = (TOPIC,),
        **settings: Any,
    ) -> None:  # fmt: skip
        self.values: list[str] = []
        self.owned: set[tuple[str, int]] = set()
        # ("assigned" or "revoked" or "lost", partitions)
        self.events: list[tuple[str, set[int]]] = []
        # What the client cannot recover from, in its own words.
        self.fatal = ""
        self._is_incremental = protocol in ("consumer", "cooperative-sticky")
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                **quiet(bootstrap),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "topic.metadata.refresh.interval.ms": 300,
                "reconnect.backoff.max.ms": 200,
                "error_cb": self._on_error,
                **settings_of(protocol),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe(
            list(topics),
            on_assign=self._on_assign,
            on_revoke=lambda _, parts: self._on_gone("revoked", parts),
            on_lost=lambda _, parts: self._on_gone("lost", parts),
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        given = {(each.topic, each.partition) for each in partitions}
        self.owned = self.owned | given if self._is_incremental else given
        self.events.append(("assigned", {each.partition for each in partitions}))
        tell()

    def _on_gone(self, what: str, partitions: list[TopicPartition]) -> None:
        self.owned = self.owned - {(each.topic, each.partition) for each in partitions}
        self.events.append((what, {each.partition for each in partitions}))
        tell()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal = error.str()
            tell()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.02)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.values.append((message.value() or b"").decode())
                tell()
            else:
                self._on_error(error)
        self._consumer.close()

    def close(self) -> None:
        """Commit and leave."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


class HasPart(Protocol):
    owned: set[tuple[str, int]]


def share(members: Iterable[HasPart], partitions: int, topic: str = TOPIC) -> bool:
    """Whether these members, each with a part, have all of it, each once."""
    parts = [member.owned for member in members]
    count = sum(map(len, parts))
    wanted = {(topic, index) for index in range(partitions)}
    return all(parts) and count == partitions and set().union(*parts) == wanted
