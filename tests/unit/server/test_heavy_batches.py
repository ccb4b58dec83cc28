"""Batches that hold much: a thread looks into them, and what comes behind them stays
behind them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.connected import Producing, play
from tests.unit.server.test_remote_session import GROUP, TOPIC, Node, on_a_node

from headrace.calls import Face
from headrace.core.errors import RecordTooLarge
from headrace.core.values import PlacedBatch
from headrace.engine import contents
from headrace.record import Codec, NewRecord, build_batch
from headrace.record.reader import read_block
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.wire.remote.methods import Stored

HEAVY = 64 * 1024


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents.Light, "bytes", HEAVY // 2)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Of each batch that was uncompressed how much it held, and whether on the loop."""
    seen: list[tuple[int, bool]] = []

    def note(batch: Any, header: Any, bytes_max: int) -> bytes:
        block = read_block(batch, header, bytes_max)
        seen.append((len(block), threading.current_thread() is threading.main_thread()))
        return block

    monkeypatch.setattr(contents, "read_block", note)
    return seen


def heavy(producer: int = -1, sequence: int = -1, *, header_count: int = 0) -> bytearray:
    record = NewRecord(None, bytes(HEAVY), (("", b""),) * header_count)
    return build_batch(
        [record], codec=Codec.ZSTD,
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
    )  # fmt: skip


def light(producer: int = -1, sequence: int = -1) -> bytearray:
    return build_batch(
        [NewRecord(None, b"light")], codec=Codec.ZSTD,
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
    )  # fmt: skip


def over_kafka(scenario: Callable[[Producing], Coroutine[Any, Any, None]]) -> None:
    async def with_a_queue(bench: Producing) -> None:
        await Calls(bench.service).run(Face.open_queue, GROUP, ["orders"], "worker", None)
        await scenario(bench)

    play(Producing, with_a_queue)


def test_a_heavy_batch_of_kafka_is_opened_in_a_thread(opened: list[tuple[int, bool]]) -> None:
    async def scenario(bench: Producing) -> None:
        bench.send(bench.request(heavy()))
        assert await bench.answers(1) == [(1, 0, 0)]
        assert [on_loop for size, on_loop in opened if size > HEAVY] == [False]
        bench.send(bench.request(light()))
        assert await bench.answers(1) == [(2, 0, 1)]
        assert opened[-1][1]
        leased = await Calls(bench.service).run(Face.lease, GROUP, ["orders"], "worker", 10)
        assert [each.value for each in leased] == [bytes(HEAVY), b"light"]

    over_kafka(scenario)


def test_requests_behind_a_heavy_batch_are_appended_behind_it() -> None:
    async def scenario(bench: Producing) -> None:
        batches = [light(5, 0), heavy(5, 1), light(5, 2), heavy(5, 3), heavy(5, 4), light(5, 5)]
        # A number out of order would be refused.
        bench.send(b"".join(bench.request(each) for each in batches))
        answers = await bench.answers(len(batches))
        assert answers == [(number + 1, 0, number) for number in range(len(batches))]
        # Others do not wait for it.
        bench.send(bench.request(heavy(5, 6)) + bench.request(light(), index=1))
        assert await bench.answers(2) == [(7, 0, 6), (8, 0, 0)]

    over_kafka(scenario)


def test_a_heavy_batch_that_is_beyond_the_limits_is_refused_and_the_rest_is_not() -> None:
    async def scenario(bench: Producing) -> None:
        bench.send(bench.request(heavy(header_count=129)) + bench.request(light()))
        refused, taken = await bench.answers(2)
        assert refused == (1, Error.MESSAGE_TOO_LARGE, -1)
        assert taken == (2, 0, 0)

    over_kafka(scenario)


def test_nothing_of_a_refused_batch_waits_for_the_garbage_collector() -> None:
    async def scenario(bench: Producing) -> None:
        gc.collect()
        gc.disable()
        try:
            bench.send(bench.request(heavy(header_count=129)))
            assert await bench.answers(1) == [(1, Error.MESSAGE_TOO_LARGE, -1)]
            # The thread in which it was opened lets go of it when it comes to that.
            while [each for each in gc.get_objects() if isinstance(each, RecordTooLarge)]:
                await asyncio.sleep(0)
        finally:
            gc.enable()

    over_kafka(scenario)


def test_heavy_batches_of_our_clients_are_opened_in_a_thread_and_keep_their_order(
    opened: list[tuple[int, bool]],
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        batches = [light(5, 0), heavy(5, 1), light(5, 2), heavy(5, 3), light(5, 4)]
        sent = [client.send("publish_batches", [PlacedBatch(TOPIC, 0, each)]) for each in batches]
        while not all(number in client.answers() for number in sent):
            await asyncio.sleep(0)
        answers = client.answers()
        assert [answers[each] for each in sent] == [
            [Stored(number, False)] for number in range(len(batches))
        ]
        assert {on_loop for size, on_loop in opened if size > HEAVY} == {False}
        [refused] = await client.ask(
            "publish_batches", [PlacedBatch(TOPIC, 1, heavy(header_count=129))]
        )
        assert refused.offset == -1

    on_a_node(scenario)


# More than is opened, and little on the wire.
BEYOND = build_batch([NewRecord(None, bytes(1024 * 1024))] * 33, codec=Codec.ZSTD)


def test_what_nobody_could_open_is_refused_though_no_queue_reads_the_topic(
    opened: list[tuple[int, bool]],
) -> None:
    async def scenario(bench: Producing) -> None:
        large = build_batch([NewRecord(None, bytes(1024 * 1024))] * 8, codec=Codec.ZSTD)
        batches = [light(), large, BEYOND, light()]
        bench.send(b"".join(bench.request(each) for each in batches))
        answers = await bench.answers(4)
        assert answers == [(1, 0, 0), (2, 0, 1), (3, Error.MESSAGE_TOO_LARGE, -1), (4, 0, 9)]
        # Of what may be read the beginning is enough.
        assert not opened

    play(Producing, scenario)


def test_what_nobody_could_open_is_refused_of_our_clients_too() -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.ask("create_topic", "stream", 1, None, True)
        [refused] = await client.ask(
            "publish_batches", [PlacedBatch("stream", 0, bytearray(BEYOND))]
        )
        assert refused.offset == -1
        assert "decompress to more than" in str(refused)

    on_a_node(scenario)
