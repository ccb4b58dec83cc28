"""Consumer groups as kafka-python and aiokafka run them: clients in plain Python, whose
groups share out the work among themselves."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import TOPIC, make_topic, publish, tell, wait_until


def untyped(module: str) -> Any:
    """Neither client has types, and kafka-python warns of its own old calls."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return import_module(module)


aiokafka = untyped("aiokafka")
kafka = untyped("kafka")
_ASSIGNORS = "kafka.coordinator.assignors"
RangePartitionAssignor = untyped(f"{_ASSIGNORS}.range").RangePartitionAssignor
ASSIGNORS = (
    RangePartitionAssignor,
    untyped(f"{_ASSIGNORS}.roundrobin").RoundRobinPartitionAssignor,
    untyped(f"{_ASSIGNORS}.sticky.sticky_assignor").StickyPartitionAssignor,
    untyped(f"{_ASSIGNORS}.cooperative_sticky").CooperativeStickyAssignor,
)

# It reads its own schemas with an old call whenever it first needs one.
pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")


class PythonMember:
    """One kafka-python consumer in a thread of its own."""

    def __init__(self, bootstrap: str, assignor: Any) -> None:
        self.values: list[str] = []
        self.owned: set[int] = set()
        self._stop = threading.Event()
        self._consumer = kafka.KafkaConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=200,
            partition_assignment_strategy=(assignor,),
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            # A poll that ends in the midst of a join can leave this client waiting for
            # ever, so it gets more time than a join takes.
            for records in self._consumer.poll(timeout_ms=1_000).values():
                self.values += [record.value.decode() for record in records]
            self.owned = {each.partition for each in self._consumer.assignment()}
            tell()
        self._consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def members(*started: PythonMember) -> Iterator[list[PythonMember]]:
    running = list(started)
    try:
        yield running
    finally:
        for member in running:
            member.close()


def share(running: list[PythonMember], partitions: int) -> bool:
    parts = [member.owned for member in running]
    return (
        all(parts)
        and sum(map(len, parts)) == partitions
        and set().union(*parts) == set(range(partitions))
    )


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: str(assignor.name))
def test_kafka_python_shares_a_topic_and_sees_all_of_it(node: NodeProcess, assignor: Any) -> None:
    make_topic(node.bootstrap)
    published = {str(number) for number in range(400)}
    publish(node.bootstrap, sorted(published)[:200])
    with members(*(PythonMember(node.bootstrap, assignor) for _ in range(2))) as running:
        wait_until(lambda: share(running, 4), "two members share the topic")
        publish(node.bootstrap, sorted(published)[200:])
        wait_until(
            lambda: {value for member in running for value in member.values} == published,
            "every message is seen",
        )
        running[0].close()
        wait_until(lambda: share(running[1:], 4), "the one that stays has everything")


def test_kafka_python_goes_on_where_it_committed_after_a_kill(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    publish(node.bootstrap, [f"before {number}" for number in range(100)])
    with members(PythonMember(node.bootstrap, RangePartitionAssignor)) as (first,):
        wait_until(lambda: len(first.values) >= 100, "the first member reads everything")
    node.restart(kill=True)
    after = [f"after {number}" for number in range(10)]
    publish(node.bootstrap, after)
    with members(PythonMember(node.bootstrap, RangePartitionAssignor)) as (second,):
        wait_until(lambda: len(second.values) >= 10, "the second member reads the rest")
    assert sorted(second.values) == after


async def _read(bootstrap: str, count: int, *, commit: bool) -> list[str]:
    consumer = aiokafka.AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        values: list[str] = []
        async with asyncio.timeout(30):
            while len(values) < count:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    values += [(record.value or b"").decode() for record in records]
        if commit:
            await consumer.commit()
        return values
    finally:
        await consumer.stop()


def test_aiokafka_goes_on_where_it_committed_after_a_restart(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    before = [f"before {number}" for number in range(100)]
    publish(node.bootstrap, before)
    uncommitted = asyncio.run(_read(node.bootstrap, 100, commit=False))
    committed = asyncio.run(_read(node.bootstrap, 100, commit=True))
    assert sorted(uncommitted) == sorted(committed) == sorted(before)
    node.restart()
    after = [f"after {number}" for number in range(10)]
    publish(node.bootstrap, after)
    assert sorted(asyncio.run(_read(node.bootstrap, 10, commit=True))) == after


def test_aiokafka_members_share_a_topic(node: NodeProcess) -> None:
    make_topic(node.bootstrap)

    async def scenario() -> None:
        consumers = [
            aiokafka.AIOKafkaConsumer(
                TOPIC,
                bootstrap_servers=node.bootstrap,
                group_id="billing",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(30):
            for consumer in consumers:
                await consumer.start()
            while sorted(len(consumer.assignment()) for consumer in consumers) != [2, 2]:
                for consumer in consumers:
                    await consumer.getmany(timeout_ms=50)
            parts = [{each.partition for each in consumer.assignment()} for consumer in consumers]
            for consumer in consumers:
                await consumer.stop()
        assert parts[0] | parts[1] == {0, 1, 2, 3}

    asyncio.run(scenario())
