"""What a topic makes of batches that clients send: their times are checked, or replaced,
and they are compressed as the topic says."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from tests.twins import both
from tests.unit.server import connected
from tests.unit.server.connected import Producing
from tests.unit.server.test_remote_session import Node, on_a_node

from headrace.calls import Face
from headrace.core.settings import HOUR_MS
from headrace.core.values import Outgoing, PlacedBatch
from headrace.engine import conversion, publish
from headrace.record import BatchHeader, Codec, NewRecord, build_batch, read_header, read_records
from headrace.record.batch import HEADER_BYTES, seal_batch, split_batches
from headrace.record.builder import recompress_batch
from headrace.record.reader import read_block
from headrace.server.kafka import produce_runs
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.wire.remote.methods import Stored

LARGE = bytes(range(256)) * 1024


@pytest.fixture(params=both("headrace.wire.kafka.produce_run.read_run"), autouse=True)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_runs, "read_run", request.param)


@pytest.fixture
def on_loop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each batch that was opened to convert it, whether that was on the loop."""
    seen: list[bool] = []

    def note(batch: Any, header: BatchHeader) -> bytes:
        seen.append(threading.current_thread() is threading.main_thread())
        return read_block(batch, header)

    monkeypatch.setattr(conversion, "read_block", note)
    return seen


def play(scenario: Callable[[Producing], Coroutine[Any, Any, None]], **settings: Any) -> None:
    connected.play(partial(Producing, None, **settings), scenario)


def headers_of(bench: Producing) -> list[BatchHeader]:
    log = bench.broker.topics.partition(bench.topic, 0).log
    return [header for _, header in split_batches(log.read(0, 10**7))]


def batch_of(*times_ms: int, value: bytes = b"x", **options: Any) -> bytearray:
    return build_batch([NewRecord(None, value, (), each) for each in times_ms], **options)


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_under_the_topics_codec(wanted: str) -> None:
    async def scenario(bench: Producing) -> None:
        sent = [
            batch_of(1, 2, value=value, codec=codec)
            for codec in Codec
            for value in (codec.name.encode(), LARGE)
        ]
        expected = [
            record.value for each in sent for record in read_records(each, read_header(each))
        ]
        bench.send(b"".join(bench.request(bytes(each)) for each in sent))
        answers = await bench.answers(len(sent))
        assert answers == [(number + 1, 0, 2 * number) for number in range(len(sent))]
        assert {header.codec for header in headers_of(bench)} == {conversion.CODECS[wanted]}
        assert bench.stored() == expected
        assert {header.first_timestamp_ms for header in headers_of(bench)} == {1}

    play(scenario, compression=wanted)


def test_batches_stay_as_they_came_where_producers_choose(on_loop: list[bool]) -> None:
    async def scenario(bench: Producing) -> None:
        for codec in Codec:
            bench.send(bench.request(batch_of(1, value=LARGE, codec=codec)))
            await bench.answers(1)
        assert [header.codec for header in headers_of(bench)] == list(Codec)
        assert on_loop == []

    play(scenario)


def test_a_large_batch_is_compressed_in_a_thread_and_those_behind_it_stay_behind_it(
    on_loop: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "SPOT_BYTES", 8 * 4_096)

    async def scenario(bench: Producing) -> None:
        large = bytes(5_000)
        values = [b"a", large, b"b", large, large, b"c"]
        # A number out of order would be refused.
        sent = [
            batch_of(1, value=value, producer_id=5, producer_epoch=0, base_sequence=number)
            for number, value in enumerate(values)
        ]
        bench.send(b"".join(map(bench.request, sent)))
        answers = await bench.answers(len(values))
        assert answers == [(number + 1, 0, number) for number in range(len(values))]
        assert bench.stored() == values
        assert sorted(on_loop) == [False] * 3 + [True] * 3

    play(scenario, compression="gzip")


def test_what_one_request_compresses_on_the_spot_is_bounded() -> None:
    def taken(batch: bytearray, codec: str, times: int = 5) -> int:
        spot = conversion.Spot()
        return sum(spot.takes(batch, read_header(batch), codec) for _ in range(times))

    fifth = batch_of(1, value=bytes(conversion.SPOT_BYTES // 5))
    assert [taken(fifth, codec) for codec in ("lz4", "zstd", "gzip")] == [4, 2, 0]
    # Of what is compressed nobody knows how much it is, only how much it may be.
    packed = batch_of(1, value=bytes(50_000), codec=Codec.ZSTD)
    assert taken(packed, "lz4") == 1
    assert taken(batch_of(*range(conversion.SPOT_RECORDS + 1)), "lz4") == 0


def test_what_the_node_makes_of_very_many_messages_stays_plain_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(publish, "OWN_SPOT_BYTES", 8 * 25_000)

    async def scenario(bench: Producing) -> None:
        values = [b"%d" % number * 100 for number in range(200)]
        outgoing = [Outgoing(value, partition=0) for value in values]
        await Calls(bench.service).run(Face.publish, "orders", outgoing)
        codecs = [header.codec for header in headers_of(bench)]
        assert set(codecs) == {Codec.GZIP, Codec.NONE}
        assert codecs == sorted(codecs, reverse=True)
        assert bench.stored() == values

    play(scenario, compression="gzip")


def test_a_batch_that_is_too_large_in_the_topics_codec_is_refused() -> None:
    async def scenario(bench: Producing) -> None:
        for size in (10_000, len(LARGE)):
            bench.send(bench.request(batch_of(1, value=bytes(size), codec=Codec.ZSTD)))
            [(_, code, _)] = await bench.answers(1)
            assert code == Error.MESSAGE_TOO_LARGE
        assert headers_of(bench) == []

    play(scenario, compression="uncompressed", record_bytes_max=5_000)


def test_what_cannot_be_opened_is_refused_where_it_has_to_be() -> None:
    async def scenario(bench: Producing) -> None:
        broken = batch_of(1, codec=Codec.ZSTD)
        broken[HEADER_BYTES] ^= 0xFF
        seal_batch(broken, 0, len(broken))
        bench.send(bench.request(broken) + bench.request(batch_of(1)))
        assert await bench.answers(2) == [(1, Error.INVALID_RECORD, -1), (2, 0, 0)]

    play(scenario, compression="gzip")


def test_nonsense_far_inside_is_found_where_the_batch_is_opened() -> None:
    async def scenario(bench: Producing) -> None:
        chance = random.Random(7)
        records = [NewRecord(None, chance.randbytes(1_000)) for _ in range(400)]
        plain = build_batch(records)
        block = bytearray(plain[HEADER_BYTES:])
        block[-1_005:] = bytes(1_005)
        broken = recompress_batch(bytes(block), read_header(plain), Codec.LZ4)
        bench.send(bench.request(broken))
        assert await bench.answers(1) == [(1, Error.INVALID_RECORD, -1)]

    play(scenario, compression="gzip")


# Times.


def test_a_record_from_too_far_ahead_is_refused_alone() -> None:
    async def scenario(bench: Producing) -> None:
        now_ms = bench.service.clock.now_ms()
        times = [now_ms, now_ms + HOUR_MS - 60_000, now_ms + HOUR_MS + 60_000, 0, -1]
        bench.send(b"".join(bench.request(batch_of(each)) for each in times))
        codes = [code for _, code, _ in await bench.answers(len(times))]
        assert codes == [0, 0, Error.INVALID_TIMESTAMP, 0, 0]
        # A first record that is later than the others.
        bench.send(bench.request(batch_of(now_ms + 2 * HOUR_MS, now_ms)))
        [(_, code, _)] = await bench.answers(1)
        assert code == Error.INVALID_TIMESTAMP

    play(scenario)


def test_any_time_ahead_is_taken_where_there_is_no_bound() -> None:
    async def scenario(bench: Producing) -> None:
        bench.send(b"".join(bench.request(batch_of(each)) for each in (1, 2**62, 2**62)))
        assert [code for _, code, _ in await bench.answers(3)] == [0, 0, 0]

    play(scenario, timestamp_after_max_ms=None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_record_from_too_long_ago_is_refused_wherever_it_lies_in_its_batch(codec: Codec) -> None:
    async def scenario(bench: Producing) -> None:
        now_ms = bench.service.clock.now_ms()
        old_ms = now_ms - 2 * HOUR_MS
        good = [now_ms, now_ms - HOUR_MS // 2, -1]
        bad = [[old_ms], [now_ms, old_ms, now_ms], [old_ms, now_ms], [now_ms] * 3_000 + [old_ms]]
        batches = [batch_of(*times, codec=codec) for times in (good, *bad, good)]
        bench.send(b"".join(map(bench.request, batches)))
        codes = [code for _, code, _ in await bench.answers(len(batches))]
        assert codes == [0, *[Error.INVALID_TIMESTAMP] * 4, 0]

    play(scenario, timestamp_before_max_ms=HOUR_MS)


def test_a_batch_gets_the_time_of_appending_where_its_topic_wants_that() -> None:
    async def scenario(bench: Producing) -> None:
        before_ms = bench.service.clock.now_ms()
        times = [1, before_ms + 9 * HOUR_MS, -1]
        bench.send(b"".join(bench.request(batch_of(each, each + 1)) for each in times))
        assert [code for _, code, _ in await bench.answers(3)] == [0, 0, 0]
        after_ms = bench.service.clock.now_ms()
        stored = headers_of(bench)
        assert all(header.has_log_append_time for header in stored)
        assert all(before_ms <= header.max_timestamp_ms <= after_ms for header in stored)

    play(scenario, timestamp_type="LogAppendTime", timestamp_before_max_ms=1)


# Our own clients.


def test_batches_of_our_clients_are_converted_too(on_loop: list[bool]) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        settings = {"compression": "gzip", "timestamp_type": "LogAppendTime"}
        await client.ask("create_topic", "packed", 1, settings, True)
        values = [b"a", LARGE, b"b"]
        sent = [
            client.send("publish_batches", [PlacedBatch("packed", 0, batch_of(1, value=value))])
            for value in values
        ]
        while not all(number in client.answers() for number in sent):
            await asyncio.sleep(0)
        answers = client.answers()
        assert [answers[each] for each in sent] == [[Stored(n, False)] for n in range(3)]
        topic = node.broker.topics.named("packed")
        data = memoryview(node.broker.topics.partition(topic, 0).log.read(0, 10**7))
        for (at, header), value in zip(split_batches(data), values, strict=True):
            assert header.codec == Codec.GZIP and header.has_log_append_time
            [record] = read_records(data[at : at + header.size_bytes], header)
            assert record.value == value
        assert on_loop.count(False) == 1
        far = batch_of(2**62)
        await client.ask("create_topic", "timely", 1, None, True)
        [refused] = await client.ask("publish_batches", [PlacedBatch("timely", 0, far)])
        assert refused.offset == -1
        assert "timestamp_after_max_ms" in str(refused)

    on_a_node(scenario)
