"""The largest time of a batch is that of its records, whatever its header says: searches by
time, retention and the bound on times that lie ahead go by it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.connected import Producing
from tests.unit.server.test_foreign_batches import TOPIC, Shop
from tests.unit.server.test_produce_runs import play

from headrace.calls import Face
from headrace.core.errors import HeadraceError
from headrace.engine import contents
from headrace.engine.conversion import InvalidTimestamp
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import Codec, NewRecord, build_batch, read_header, split_batches
from headrace.record.batch import HEADER, seal_batch
from headrace.server.kafka.errors import Error
from headrace.testing import ManualClock

HOUR_MS = 3_600_000
CODECS = [Codec.NONE, Codec.LZ4, Codec.ZSTD]


def run_shop(scenario: Callable[[Shop], Awaitable[None]]) -> None:
    async def play_it() -> None:
        await scenario(Shop(MemoryDisk(), ManualClock()))

    run(play_it)


def lying(batch: bytearray, latest_ms: int) -> bytearray:
    """The batch whose header says this."""
    header = read_header(batch)._replace(max_timestamp_ms=latest_ms)
    HEADER.pack_into(batch, 0, *header)
    seal_batch(batch, 0, len(batch))
    return batch


def batch_at(times: list[int], codec: Codec, size: int = 10) -> bytearray:
    return build_batch([NewRecord(b"k", bytes(size), (), each) for each in times], codec=codec)


def stored(shop: Shop) -> Any:
    topics = shop.asking.broker.topics
    log = topics.partition(topics.named(TOPIC), 0).log
    return read_header(log.read(log.start_offset, 100_000))


async def offset_at(shop: Shop, timestamp_ms: int) -> int:
    return await shop.run(Face.offset_at, TOPIC, 0, timestamp_ms)


async def publish(shop: Shop, door: str, batch: bytearray) -> None:
    if door == "kafka":
        assert (await shop.produce_batch(batch)).error_code == 0
    else:
        await shop.run(Face.publish_batch, TOPIC, 0, batch)


@pytest.mark.parametrize("is_heavy", [False, True])
@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("door", ["kafka", "batch"])
@pytest.mark.parametrize("off_ms", [-HOUR_MS, -1, HOUR_MS // 2])
def test_a_search_by_time_finds_a_record_whatever_its_batch_says(
    off_ms: int, door: str, codec: Codec, queue: bool, is_heavy: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if is_heavy:
        monkeypatch.setattr(contents.Light, "bytes", 0)

    async def scenario(shop: Shop) -> None:
        await shop.make(queue=queue)
        now_ms = shop.clock.now_ms()
        times = [now_ms - 5, now_ms, now_ms - 10]
        await publish(shop, door, lying(batch_at(times, codec), now_ms + off_ms))
        await publish(shop, door, batch_at([now_ms + 7], codec))
        assert stored(shop).max_timestamp_ms == now_ms
        found = [await offset_at(shop, now_ms + ms) for ms in (-20, -5, -4, 0, 1, 7, 8)]
        assert found == [0, 0, 1, 1, 3, 3, 4]

    run_shop(scenario)


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("door", ["kafka", "batch"])
def test_a_record_too_far_ahead_is_refused_whatever_its_batch_says(
    door: str, codec: Codec, is_long: bool
) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.make(queue=False)
        now_ms = shop.clock.now_ms()
        times = [now_ms, now_ms + 2 * HOUR_MS, *[now_ms] * (50 if is_long else 1)]
        batch = lying(batch_at(times, codec, size=1_000), now_ms)
        if door == "kafka":
            refused = await shop.produce_batch(batch)
            assert refused.error_code == Error.INVALID_TIMESTAMP
            assert [each.batch_index for each in refused.record_errors] == [1]
        else:
            with pytest.raises(InvalidTimestamp, match="ahead|from now"):
                await shop.run(Face.publish_batch, TOPIC, 0, batch)

    run_shop(scenario)


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_time_have_none(codec: Codec) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.make(queue=False)
        await publish(shop, "kafka", lying(batch_at([-1, -7], codec), 5))
        assert stored(shop).max_timestamp_ms == -1

    run_shop(scenario)


def test_behind_the_beginning_of_a_compressed_batch_its_header_is_believed() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.make(queue=False)
        now_ms = shop.clock.now_ms()
        times = [now_ms - 1_000] * 50 + [now_ms]
        # It says less than the records that are seen, and no less than the one that is not.
        early = lying(batch_at(times, Codec.ZSTD, size=1_000), now_ms - 2_000)
        await publish(shop, "kafka", early)
        assert stored(shop).max_timestamp_ms == now_ms - 1_000

    run_shop(scenario)


@pytest.mark.parametrize("wanted", [{"compression": "lz4"}, {"timestamp_before_max_ms": HOUR_MS}])
@pytest.mark.parametrize("door", ["kafka", "batch"])
def test_a_batch_that_is_opened_by_its_topic_has_the_time_of_all_its_records(
    door: str, wanted: dict[str, Any]
) -> None:
    async def scenario(shop: Shop) -> None:
        await shop.run(Face.create_topic, TOPIC, partitions=1, settings=wanted)
        now_ms = shop.clock.now_ms()
        times = [now_ms - 1_000] * 50 + [now_ms]
        await publish(shop, door, lying(batch_at(times, Codec.ZSTD, size=1_000), now_ms - 2_000))
        assert stored(shop).max_timestamp_ms == now_ms
        late = lying(batch_at([*times, now_ms + 2 * HOUR_MS], Codec.ZSTD, size=1_000), now_ms)
        if door == "kafka":
            assert (await shop.produce_batch(late)).error_code == Error.INVALID_TIMESTAMP
        else:
            with pytest.raises(InvalidTimestamp):
                await publish(shop, door, late)

    run_shop(scenario)


def test_a_batch_whose_checksum_is_wrong_is_refused_and_not_sealed_anew() -> None:
    async def scenario(shop: Shop) -> None:
        await shop.make(queue=False)
        now_ms = shop.clock.now_ms()
        batch = lying(batch_at([now_ms], Codec.NONE), 5)
        batch[-1] ^= 1
        with pytest.raises(HeadraceError, match="checksum"):
            await publish(shop, "batch", batch)
        assert (await shop.produce_batch(batch)).error_code == Error.CORRUPT_MESSAGE

    run_shop(scenario)


def test_in_a_run_each_batch_has_the_time_of_its_records() -> None:
    async def scenario(bench: Producing) -> None:
        at_ms = 1_700_000_000_000
        batches = [lying(batch_at([at_ms + number], Codec.NONE), 5) for number in range(20)]
        bench.send(b"".join(map(bench.request, batches)))
        assert [offset for _, _, offset in await bench.answers(20)] == list(range(20))
        log = bench.broker.topics.partition(bench.topic, 0).log
        found = [header.max_timestamp_ms for _, header in split_batches(log.read(0, 100_000))]
        assert found == [at_ms + number for number in range(20)]

    play(scenario)
