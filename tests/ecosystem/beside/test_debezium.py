"""Debezium writes each change of a Postgres table once, in order, with heartbeats between them,
though Kafka Connect is killed, with and without an open transaction, and the broker too."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from benchmarks import maven
from confluent_kafka import Message
from tests.ecosystem.connect import Worker, add
from tests.ecosystem.postgres import Postgres
from tests.ecosystem.programs import Reader, reading, running, wait_until
from tests.ecosystem.tools import BROKERS
from tests.ecosystem.transactions import Watch

# The newest that Maven can take: 3.6.2 was published without the project file that it names.
VERSION = "3.6.1.Final"
TOPIC = "shop.public.orders"
HEARTBEATS = "__debezium-heartbeat.shop"
SNAPSHOT = 200
CHANGES = 1_000
SEED = 11

SETTINGS = {
    "connector_class": "io.debezium.connector.postgresql.PostgresConnector",
    "key_converter": "org.apache.kafka.connect.json.JsonConverter",
    "key_converter_schemas_enable": "false",
    "value_converter": "org.apache.kafka.connect.json.JsonConverter",
    "value_converter_schemas_enable": "false",
    "exactly_once_support": "required",
    "database_hostname": "127.0.0.1",
    "database_user": "postgres",
    "database_password": "none is asked for",
    "database_dbname": "postgres",
    "topic_prefix": "shop",
    "table_include_list": "public.orders",
    "plugin_name": "pgoutput",
    "publication_autocreate_mode": "filtered",
    "heartbeat_interval_ms": "300",
    # A deletion and its tombstone have one position, and can be written in two
    # transactions: Debezium, killed between them, goes on behind both.
    "tombstones_on_delete": "false",
    # Many transactions, so that there is much to be killed between.
    "max_batch_size": "20",
    "max_queue_size": "100",
    "poll_interval_ms": "20",
    # A worker that starts waits for transactions that a killed one has left open in the
    # topic of offsets, until they time out: on Apache Kafka as well.
    "producer_override_transaction_timeout_ms": "10000",
}
# The others are too short to be found open.
LASTING_TRANSACTIONS = {
    "transaction_boundary": "interval",
    "transaction_boundary_interval_ms": "2000",
}

# Order, kind of change, and the version that it has then.
Event = tuple[int, str, int | None]


class Orders:
    """A table of orders whose changes are made here, and known."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._chance = random.Random(SEED)
        self._versions = dict.fromkeys(range(SNAPSHOT), 0)
        self._next = SNAPSHOT
        # What Debezium is to write.
        self.events: list[Event] = [(order, "r", 0) for order in self._versions]
        postgres.execute(
            "CREATE TABLE orders (id int PRIMARY KEY, version int)",
            f"INSERT INTO orders SELECT id, 0 FROM generate_series(0, {SNAPSHOT - 1}) id",
        )

    def begin_changes(self) -> None:
        """Start to make some; they go on by themselves."""
        self._session = self._postgres.begin(*[self._change() for _ in range(CHANGES)])

    def check_changes(self) -> None:
        self._session.check()

    def _change(self) -> str:
        kind = self._chance.choice("ccuuud")
        if kind == "c":
            order, self._next = self._next, self._next + 1
            self._versions[order] = 0
            self.events.append((order, "c", 0))
            return f"INSERT INTO orders VALUES ({order}, 0)"
        order = self._chance.choice(list(self._versions))
        if kind == "u":
            self._versions[order] += 1
            self.events.append((order, "u", self._versions[order]))
            return f"UPDATE orders SET version = version + 1 WHERE id = {order}"
        del self._versions[order]
        self.events.append((order, "d", None))
        return f"DELETE FROM orders WHERE id = {order}"


@pytest.mark.parametrize("name", ["kafka", "headrace"])
def test_debezium_writes_each_change_once_whatever_is_killed(name: str, tmp_path: Path) -> None:
    broker = BROKERS[name](tmp_path / "broker")
    postgres = Postgres(tmp_path / "postgres")
    broker.start()
    worker = Worker(broker.bootstrap, tmp_path, more=f"plugin.path={jars().parent}\n")
    watch = Watch(broker.bootstrap, TOPIC)
    try:
        with running(postgres, worker):
            orders = Orders(postgres)
            settings = {**SETTINGS, "database_port": str(postgres.port)}
            add(worker, "shop", **settings)
            admin = broker.admin()
            wait_until(
                lambda: {TOPIC, HEARTBEATS} <= set(admin.list_topics(timeout=10).topics), worker
            )
            with (
                reading(broker.bootstrap, TOPIC) as changes,
                reading(broker.bootstrap, HEARTBEATS) as heartbeats,
            ):
                wait_for(changes, SNAPSHOT, worker)

                orders.begin_changes()
                wait_for(changes, SNAPSHOT + 1, worker)
                worker.kill()
                orders.check_changes()
                worker.start()
                wait_for(changes, len(orders.events), worker)

                orders.begin_changes()
                wait_for(changes, len(changes.records) + 1, worker)
                broker.kill()
                broker.start()
                orders.check_changes()
                wait_for(changes, len(orders.events), worker)

                add(worker, "shop", **settings, **LASTING_TRANSACTIONS)
                worker.kill()
                worker.start()
                orders.begin_changes()
                wait_until(watch.is_open, worker)
                worker.kill()
                assert watch.is_open()
                orders.check_changes()
                restarted_ms = time.time() * 1000
                worker.start()
                wait_for(changes, len(orders.events), worker)

                heartbeats.wait_until(partial(has_newer, restarted_ms), worker)
                # A change that came twice is behind those that were waited for.
                assert not watch.is_open()
                changes.read_what_is_there()
    finally:
        broker.stop()
    assert list(events(changes.records)) == orders.events
    assert all("ts_ms" in json.loads(each.value() or b"") for each in heartbeats.records)


def wait_for(reader: Reader, count: int, worker: Worker) -> None:
    reader.wait_until(lambda seen: len(seen) >= count, worker)


def has_newer(time_ms: float, records: list[Message]) -> bool:
    return bool(records) and records[-1].timestamp()[1] > time_ms


def events(changes: list[Message]) -> Iterator[Event]:
    for each in changes:
        order = json.loads(each.key() or b"")["id"]
        change = json.loads(each.value() or b"")
        after = change["after"]
        yield order, change["op"], after and after["version"]


@cache
def jars() -> Path:
    """The folder with the connector; NoJars if it cannot be had."""
    wanted = [maven.artifact(f"io.debezium:debezium-connector-postgres:{VERSION}")]
    folder = maven.CACHE / "debezium" / VERSION
    return maven.jars(folder, wanted, f"Debezium {VERSION}, about 30 MB,")
