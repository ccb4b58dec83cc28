"""Producers on a node that goes away, says nothing, or is slow: a real node in a process
of its own, over connections that a test cuts.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.cut_proxy import CutProxy
from tests.interop.conftest import NodeProcess

import headrace

WAIT = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("producers") / "data")
    yield process
    process.stop()


@pytest.fixture
def proxy(node: NodeProcess) -> Iterator[CutProxy]:
    way = CutProxy(node.bootstrap)
    yield way
    way.close()


@pytest.fixture
def topic(node: NodeProcess, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with headrace.connect(node.bootstrap) as handle:
        handle.create_topic(name, 2)
    return name


def stored(node: NodeProcess, topic: str) -> list[list[int]]:
    """What each partition holds."""
    with headrace.connect(node.bootstrap) as handle:
        partitions = handle.topic(topic).partitions
        with handle.stream(topic) as stream:
            records: list[headrace.Record[int]] = []
            while len(records) < sum(each.high_watermark for each in partitions):
                records += stream.poll(1000, wait=WAIT)
    values: list[list[int]] = [[] for _ in partitions]
    for record in sorted(records, key=lambda each: each.id):
        values[record.id.partition].append(record.value)
    return values


def test_a_batch_whose_answer_was_lost_is_stored_once(
    node: NodeProcess, proxy: CutProxy, topic: str
) -> None:
    with headrace.connect(proxy.address) as handle, handle.producer(linger_ms=0) as producer:
        producer.publish(topic, 0, partition=0).result(WAIT)
        proxy.hold_answers()
        pending = [producer.publish(topic, n, partition=0) for n in (1, 2, 3)]
        # The node has stored at least the first of them and says so to nobody.
        assert proxy.wait_for_held(WAIT)
        assert not any(each.done() for each in pending)
        proxy.cut()
        assert [each.result(WAIT).offset for each in pending] == [1, 2, 3]
    assert stored(node, topic) == [[0, 1, 2, 3], []]


def test_nothing_is_lost_or_doubled_when_connections_break_all_the_time(
    node: NodeProcess, proxy: CutProxy, topic: str
) -> None:
    with (
        headrace.connect(proxy.address) as handle,
        handle.producer(linger_ms=0, batch_messages=20) as producer,
    ):
        pending = []
        for n in range(3_000):
            pending.append(producer.publish(topic, n, partition=n % 2))
            if n % 300 == 299:
                # Some are answered, some are on their way there, some on their way back.
                pending[n - 250].result(WAIT)
                proxy.cut()
        places = [each.result(WAIT) for each in pending]
    assert [place.offset for place in places] == [n // 2 for n in range(3_000)]
    assert stored(node, topic) == [list(range(0, 3_000, 2)), list(range(1, 3_000, 2))]


def test_what_was_acked_is_there_after_the_node_was_killed(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    try:
        with headrace.connect(node.bootstrap) as handle:
            handle.create_topic("orders", 2)
            with handle.producer(acks="leader") as leader, handle.producer() as producer:
                leader.publish_many("orders", list(range(100)), partition=0).result(WAIT)
                producer.publish_many("orders", list(range(100)), partition=1).result(WAIT)
                later = producer.publish_many("orders", list(range(100, 5_000)), partition=1)
                node.restart(kill=True)
                # It finds the node again, and what was stored is not stored again.
                assert [place.offset for place in later.result(WAIT)] == list(range(100, 5_000))
        assert stored(node, "orders") == [list(range(100)), list(range(5_000))]
    finally:
        node.stop()


def test_a_node_that_stays_away_is_an_error_after_the_timeout(proxy: CutProxy, topic: str) -> None:
    with headrace.connect(proxy.address, retry=0) as handle:
        producer = handle.producer(timeout=0.2)
        producer.publish(topic, 1).result(WAIT)
        proxy.close()
        pending = producer.publish(topic, 2)
        with pytest.raises((headrace.Unreachable, headrace.Disconnected)):
            pending.result(WAIT)
        producer.publish(topic, 3)
        with pytest.raises((headrace.Unreachable, headrace.Disconnected)):
            producer.close()


def test_a_node_that_stands_still_fills_the_buffer_and_no_more(
    node: NodeProcess, topic: str
) -> None:
    with (
        headrace.connect(node.bootstrap) as handle,
        handle.producer(buffer_bytes=200_000, timeout=0.1) as producer,
    ):
        producer.publish(topic, 0).result(WAIT)
        node.process.send_signal(signal.SIGSTOP)
        try:
            taken = 0
            with pytest.raises(headrace.BufferFull, match="buffer_bytes"):
                while True:
                    producer.publish(topic, b"x" * 1_000)
                    taken += 1
            assert 150 < taken < 200
        finally:
            node.process.send_signal(signal.SIGCONT)
        producer.flush()
        assert handle.depth(topic) == taken + 1


def test_a_task_is_told_when_the_buffer_stays_full(node: NodeProcess, topic: str) -> None:
    async def test() -> None:
        async with headrace.connect_async(node.bootstrap) as handle:
            async with handle.producer(buffer_bytes=100_000, timeout=0.1) as producer:
                await (await producer.publish(topic, 0))
                node.process.send_signal(signal.SIGSTOP)
                try:
                    with pytest.raises(headrace.BufferFull):
                        await producer.publish_many(topic, [b"x" * 1_000] * 200)
                finally:
                    node.process.send_signal(signal.SIGCONT)
                await producer.flush()

    asyncio.run(test())


def test_without_acks_nobody_waits_for_a_node_that_says_nothing(
    node: NodeProcess, proxy: CutProxy, topic: str
) -> None:
    with headrace.connect(proxy.address) as handle, handle.producer(acks="none") as producer:
        producer.route(topic)
        proxy.hold_answers()
        assert [producer.publish(topic, n).result(WAIT).offset for n in (0, 1)] == [-1, -1]
        with headrace.connect(node.bootstrap) as other, other.queue(topic) as queue:
            assert {queue.receive(1, wait=WAIT)[0].value for _ in (0, 1)} == {0, 1}
        proxy.cut()
