"""Kafka clients for the demo, unmodified: whichever is installed.

    confluent-kafka    librdkafka underneath
    kafka-python       pure Python

Neither belongs to a plain install. Without them the demo says so, and its orders are
published and read by the SDK.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.core.errors import HeadraceError

CLIENTS = ("confluent-kafka", "kafka-python", "none")
MEMBERS = 2
SILENCE_SECONDS = 30.0
POLL_SECONDS = 0.5

Advance = Callable[[int], None]


class Order(NamedTuple):
    """A record for a producer of any make."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


class Seen:
    """The records that a group was given, each counted once however often it came."""

    def __init__(self, expected: int, advance: Advance) -> None:
        self._expected = expected
        self._advance = advance
        self._places: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def add(self, places: Sequence[tuple[int, int]]) -> None:
        with self._lock:
            before = len(self._places)
            self._places.update(places)
            self._advance(len(self._places) - before)

    @property
    def is_complete(self) -> bool:
        return len(self._places) >= self._expected

    def __len__(self) -> int:
        return len(self._places)


class KafkaClient(Protocol):
    name: str

    def produce(
        self, address: str, topic: str, orders: Iterator[Order], advance: Advance
    ) -> int: ...

    def read_as_member(self, address: str, topic: str, group: str, seen: Seen) -> None: ...


def find_client(wanted: str | None) -> KafkaClient | None:
    """The one that is named, or the first that is installed; None for "none", and
    where none is installed."""
    clients: dict[str, tuple[str, Callable[[Any], KafkaClient]]] = {
        "confluent-kafka": ("confluent_kafka", ConfluentClient),
        "kafka-python": ("kafka", PythonClient),
    }
    for name, (module, make) in clients.items():
        if wanted is None or wanted == name:
            with contextlib.suppress(ImportError):
                return make(importlib.import_module(module))
    return None


def read_as_group(client: KafkaClient, address: str, topic: str, group: str, seen: Seen) -> None:
    """Members in threads of their own, until everything was seen."""
    failures: list[BaseException] = []

    def read() -> None:
        try:
            client.read_as_member(address, topic, group, seen)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=read, daemon=True) for _ in range(MEMBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise HeadraceError(f"{client.name} failed: {failures[0]}")


class ConfluentClient:
    def __init__(self, module: Any) -> None:
        self._module = module
        self.name = f"confluent-kafka {module.__version__}"

    def produce(self, address: str, topic: str, orders: Iterator[Order], advance: Advance) -> int:
        producer = self._module.Producer(
            {"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True}
        )
        delivered = 0

        def on_delivery(error: Any, message: Any) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1
                if delivered % 500 == 0:
                    advance(500)

        for order in orders:
            producer.produce(
                topic, order.value, order.key, headers=order.headers, on_delivery=on_delivery
            )
            producer.poll(0)
        producer.flush(SILENCE_SECONDS)
        return delivered

    def read_as_member(self, address: str, topic: str, group: str, seen: Seen) -> None:
        consumer = self._module.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        silent = 0.0
        try:
            while not seen.is_complete and silent < SILENCE_SECONDS:
                messages = [
                    each for each in consumer.consume(1_000, POLL_SECONDS) if each.error() is None
                ]
                silent = 0.0 if messages else silent + POLL_SECONDS
                seen.add([(each.partition(), each.offset()) for each in messages])
                if messages:
                    consumer.commit(asynchronous=True)
        finally:
            consumer.close()


class PythonClient:
    def __init__(self, module: Any) -> None:
        self._module = module
        self.name = f"kafka-python {module.__version__}"
        # It tells of every connection that it closes.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)

    def produce(self, address: str, topic: str, orders: Iterator[Order], advance: Advance) -> int:
        producer = self._module.KafkaProducer(bootstrap_servers=address, linger_ms=5)
        sent = []
        for number, order in enumerate(orders, 1):
            sent.append(
                producer.send(topic, value=order.value, key=order.key, headers=order.headers)
            )
            if number % 500 == 0:
                advance(500)
        producer.flush(SILENCE_SECONDS)
        producer.close()
        return sum(each.succeeded() for each in sent)

    def read_as_member(self, address: str, topic: str, group: str, seen: Seen) -> None:
        consumer = self._module.KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        silent = 0.0
        try:
            while not seen.is_complete and silent < SILENCE_SECONDS:
                found = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=1_000)
                records = [record for batch in found.values() for record in batch]
                silent = 0.0 if records else silent + POLL_SECONDS
                seen.add([(record.partition, record.offset) for record in records])
                if records:
                    consumer.commit()
        finally:
            consumer.close()
