"""Ids against duplicates in batches of Kafka clients: what is there already is left out, as at
every other door, and producers that number their batches do not notice."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.test_foreign_batches import GROUP, HOUR_MS, TOPIC, Shop

from headrace.calls import Face
from headrace.core.settings import CheckedRecords
from headrace.core.values import Outgoing
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, attribute_headers, build_batch
from headrace.record.compression import Codec
from headrace.server.kafka.errors import Error
from headrace.testing import ManualClock

WINDOW_MS = 300_000
NUMBERED = {"producer_id": 7, "producer_epoch": 0}


def records(text: str, now_ms: int = 0) -> list[NewRecord]:
    """One for each letter, which is its id; without one for a dot."""
    return [
        NewRecord(None, f"{each}{place}".encode(), _headers(each), now_ms)
        for place, each in enumerate(text)
    ]


def _headers(each: str) -> Any:
    return () if each == "." else attribute_headers(dedup_id=each.encode())


class Drops(Shop):
    """A shop whose topic drops duplicates, and a client that numbers its batches, or not."""

    sequence = 0
    is_numbered = False

    async def send(self, text: str, *, behind_ms: int = 0, **options: Any) -> Any:
        if self.is_numbered:
            options = NUMBERED | {"base_sequence": self.sequence} | options
            self.sequence += len(text)
        made = records(text, self.clock.now_ms() - behind_ms)
        return await self.produce_batch(build_batch(made, **options))

    async def values(self) -> dict[int, bytes | None]:
        """What a stream reads."""
        found, _ = await self.run(Face.read, TOPIC, 0, 0)
        return {each.offset: each.value for each in found}


async def opened(*, queue: bool = True, numbered: bool = False) -> Drops:
    shop = Drops(MemoryDisk(), ManualClock())
    shop.is_numbered = numbered
    await shop.make(dedup=True, queue=queue)
    return shop


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("queue", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_what_was_published_is_left_out_and_the_rest_keeps_its_place(
    codec: Codec, queue: bool, numbered: bool
) -> None:
    async def scenario() -> None:
        shop = await opened(queue=queue, numbered=numbered)
        assert (await shop.send("ab", codec=codec)).base_offset == 0
        mixed = await shop.send("c.b.dc", codec=codec)
        assert (mixed.error_code, mixed.base_offset) == (Error.NONE, 2)
        # What is left out at the end takes no place.
        assert (await shop.send("e.", codec=codec)).base_offset == 7
        expected = {
            0: b"a0", 1: b"b1", 2: b"c0", 3: b".1", 5: b".3", 6: b"d4", 7: b"e0", 8: b".1",
        }  # fmt: skip
        assert await shop.values() == expected
        if queue:
            assert {each.offset: each.value for each in await shop.lease()} == expected
            statistics = await shop.run(Face.queue_statistics, GROUP)
            assert (statistics.depth, statistics.leased) == (8, 8)

    run(scenario)


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
@pytest.mark.parametrize("checked", ["beginning", "all", "none"])
@pytest.mark.parametrize("door", ["kafka", "sdk"])
def test_duplicates_are_left_out_whatever_is_checked_of_the_records(
    door: str, checked: CheckedRecords, cleanup: str
) -> None:
    async def scenario() -> None:
        shop = Drops(MemoryDisk(), ManualClock())
        shop.asking.broker.topics.check_records = checked
        await shop.make(dedup=True, cleanup=cleanup)
        for text in ("ab", "bc"):
            made = [each._replace(key=b"key") for each in records(text, shop.clock.now_ms())]
            if door == "kafka":
                assert (await shop.produce_batch(build_batch(made))).error_code == Error.NONE
            else:
                await shop.run(Face.publish_batch, TOPIC, 0, build_batch(made))
        assert await shop.values() == {0: b"a0", 1: b"b1", 3: b"c1"}

    run(scenario)


@pytest.mark.parametrize("numbered", [False, True])
def test_a_batch_of_nothing_new_is_answered_with_the_place_of_its_first_record(
    numbered: bool,
) -> None:
    async def scenario() -> None:
        shop = await opened(numbered=numbered)
        await shop.send("abc")
        again = await shop.send("bc")
        assert (again.error_code, again.base_offset) == (Error.NONE, 1)
        # The producer goes on, also when the node was away.
        await shop.reopen()
        assert (await shop.send("c")).base_offset == 2
        after = await shop.send("d")
        assert after.error_code == Error.NONE
        assert list((await shop.values()).values()) == [b"a0", b"b1", b"c2", b"d0"]
        assert len(await shop.lease()) == 4

    run(scenario)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("numbered", [False, True])
def test_behind_the_last_record_there_is_no_place_that_holds_none(
    numbered: bool, restart: bool
) -> None:
    async def scenario() -> None:
        shop = await opened(numbered=numbered)

        async def end() -> int:
            [partition] = (await shop.run(Face.topic, TOPIC)).partitions
            return int(partition.high_watermark)

        await shop.send("abc")
        assert (await shop.send("d.ab")).base_offset == 3
        # A consumer that has read all of them has come to the end.
        assert (max(await shop.values()), await end()) == (4, 5)
        if restart:
            await shop.reopen()
        if numbered:
            # Its answer was lost: it is known, though it has fewer numbers in the log.
            shop.sequence -= 4
            again = await shop.send("d.ab")
            assert (again.error_code, again.base_offset, await end()) == (Error.NONE, 3, 5)
        # Nothing new: an empty batch has the producer's number, and one place.
        assert (await shop.send("abcd")).error_code == Error.NONE
        assert await end() == (6 if numbered else 5)
        after = await shop.send("e")
        assert (after.error_code, after.base_offset) == (Error.NONE, await end() - 1)
        assert list((await shop.values()).values()) == [b"a0", b"b1", b"c2", b"d0", b".1", b"e0"]
        assert len(await shop.lease()) == 6

    run(scenario)


def test_a_batch_that_is_sent_again_is_known_by_its_number_and_not_by_its_ids() -> None:
    async def scenario() -> None:
        shop = await opened(numbered=True)
        await shop.send("a")
        mixed = await shop.send("bac")
        shop.sequence = 1
        shop.clock.skip(1)
        # Its time too is that of what is stored.
        assert await shop.send("bac") == mixed
        assert await shop.values() == {0: b"a0", 1: b"b0", 3: b"c2"}

    run(scenario)


def test_ids_of_all_doors_are_the_same_ids() -> None:
    async def scenario() -> None:
        shop = await opened()
        [first] = await shop.run(
            Face.publish, TOPIC, [Outgoing(b"sdk", headers=attribute_headers(dedup_id=b"a"))]
        )
        assert (await shop.send("a")).base_offset == first.offset
        assert (await shop.send("b")).base_offset == 1
        [again] = await shop.run(
            Face.publish, TOPIC, [Outgoing(b"sdk", headers=attribute_headers(dedup_id=b"b"))]
        )
        assert (again.offset, again.duplicate) == (1, True)
        batch = build_batch(records("ab"))
        third = await shop.run(Face.publish_batch, TOPIC, 0, batch)
        assert (third.offset, third.duplicate) == (0, True)
        assert await shop.values() == {0: b"sdk", 1: b"b0"}

    run(scenario)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("behind_ms", [HOUR_MS, 0, -HOUR_MS])
def test_the_window_counts_from_when_the_node_took_a_record(behind_ms: int, restarts: bool) -> None:
    async def scenario() -> None:
        shop = await opened(queue=False)
        began_ms = shop.clock.now_ms()
        assert (await shop.send("a", behind_ms=behind_ms)).log_append_time_ms == began_ms
        shop.clock.skip((WINDOW_MS - 1) / 1000)
        if restarts:
            await shop.reopen()
        assert (await shop.send("a", behind_ms=behind_ms)).base_offset == 0
        shop.clock.skip(0.001)
        assert (await shop.send("a", behind_ms=behind_ms)).base_offset == 1

    run(scenario)


def test_records_without_an_id_keep_the_time_of_their_client() -> None:
    async def scenario() -> None:
        shop = await opened()
        assert (await shop.send("..", behind_ms=HOUR_MS)).log_append_time_ms == -1

    run(scenario)


@pytest.mark.parametrize("value", [b"", b"x" * 129, b"x" * 10_000])
@pytest.mark.parametrize("dedup", [False, True])
def test_an_id_that_no_topic_takes_is_refused(dedup: bool, value: bytes) -> None:
    async def scenario() -> None:
        shop = Drops(MemoryDisk(), ManualClock())
        await shop.make(dedup=dedup)
        refused = await shop.produce(("headrace-dedup-id", value))
        assert refused.error_code == Error.INVALID_RECORD
        assert "1 to 128 bytes" in refused.error_message
        assert await shop.values() == {}

    run(scenario)


def test_a_large_batch_of_which_some_is_there_is_to_be_sent_in_parts() -> None:
    """As Java's producer does when it is told that a batch is too large."""

    async def scenario() -> None:
        shop = await opened()
        await shop.send("a")
        large = [NewRecord(None, bytes(3 * 1024 * 1024), _headers(each)) for each in "ab"]
        refused = await shop.produce_batch(build_batch(large, codec=Codec.ZSTD))
        assert refused.error_code == Error.MESSAGE_TOO_LARGE
        for each, offset in zip(large, (0, 1), strict=True):
            taken = await shop.produce_batch(build_batch([each], codec=Codec.ZSTD))
            assert (taken.error_code, taken.base_offset) == (Error.NONE, offset)

    run(scenario)
