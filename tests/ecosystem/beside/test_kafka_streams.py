"""Kafka Streams with every kind of store, exactly once: two instances, of which one is killed
again and again, its state thrown away once, and the broker killed once."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Message
from tests.ecosystem.programs import Program, make_topics, produce, reading, running
from tests.ecosystem.tools import BROKERS, java

USERS = 20
CITIES = 4
PARTITIONS = 4
ORDERS = 6_000
# Orders come in three parts; between two of them every user pauses for so long that a session
# ends.
PART = ORDERS // 3
APART_MS = 50
PAUSE_MS = 20_000
WINDOW_MS = 10_000


class Order:
    def __init__(self, number: int, began_ms: int) -> None:
        self.number = number
        self.part = number // PART
        self.user = f"user-{number % USERS}"
        self.city = f"city-{number % USERS % CITIES}"
        self.amount = number % 7
        self.time_ms = began_ms + number * APART_MS + self.part * PAUSE_MS


def expected(orders: list[Order]) -> dict[str, dict[str, int]]:
    windows: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    cities: Counter[str] = Counter()
    began: dict[tuple[str, int], int] = {}
    for order in orders:
        windows[f"{order.user}@{order.time_ms // WINDOW_MS * WINDOW_MS}"] += 1
        start = began.setdefault((order.user, order.part), order.time_ms)
        sessions[f"{order.user}@{start}"] += 1
        cities[order.city] += order.amount
    return {"by-window": dict(windows), "by-session": dict(sessions), "by-city": dict(cities)}


def last_values(records: list[Message]) -> dict[str, dict[str, int]]:
    """By topic and key."""
    tables: dict[str, dict[str, int]] = {"by-window": {}, "by-session": {}, "by-city": {}}
    for record in records:
        if record.topic() in tables:
            value = int.from_bytes(record.value() or b"", "big")
            tables[record.topic() or ""][(record.key() or b"").decode()] = value
    return tables


def paid(records: list[Message]) -> list[str]:
    return [(each.value() or b"").decode() for each in records if each.topic() == "paid"]


@pytest.mark.parametrize(
    ("name", "protocol"), [("kafka", "classic"), ("headrace", "classic"), ("headrace", "streams")]
)
def test_every_kind_of_store_is_right_through_kills(
    name: str, protocol: str, tmp_path: Path
) -> None:
    broker = BROKERS[name](tmp_path / name)
    broker.start()
    began_ms = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 900_000
    orders = [Order(number, began_ms) for number in range(ORDERS)]
    outputs = ("by-window", "by-session", "by-city", "paid")
    make_topics(broker.bootstrap, PARTITIONS, "orders", "users", "payments", *outputs)
    users = [(f"user-{each}", f"city-{each % CITIES}", began_ms - 1) for each in range(USERS)]
    produce(broker.bootstrap, "users", list(users))
    apps = [
        Program(
            [*java(), "Counting", broker.bootstrap, str(tmp_path / f"state-{each}"), protocol],
            tmp_path / f"app-{each}.log",
        )
        for each in range(2)
    ]
    try:
        with running(*apps), reading(broker.bootstrap, *outputs) as reader:
            for part in range(3):
                some = orders[part * PART : (part + 1) * PART]
                placed = [(each.user, str(each.amount), each.time_ms) for each in some]
                payments = [(each.user, f"order {each.number}", each.time_ms) for each in some]
                produce(broker.bootstrap, "orders", list(placed))
                produce(broker.bootstrap, "payments", list(payments))
                # In the middle of this part.
                reader.wait_until(lambda seen, part=part: len(paid(seen)) > part * PART + 200)  # type: ignore[misc]
                apps[part % 2].kill()
                if part == 1:
                    shutil.rmtree(tmp_path / "state-1")
                    broker.kill()
                    broker.start()
                apps[part % 2].start()
            reader.wait_until(lambda seen: len(paid(seen)) >= ORDERS, *apps)
            reader.wait_until(lambda seen: last_values(seen) == expected(orders), *apps)
            assert Counter(paid(reader.records)) == Counter(f"order {n}" for n in range(ORDERS))
    finally:
        broker.stop()
