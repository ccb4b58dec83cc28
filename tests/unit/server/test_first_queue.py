"""The first queue group of a topic that was only streamed: a thread reads what is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.share_door import GROUP as SHARED_GROUP
from tests.unit.server.share_door import TOPIC as SHARED_TOPIC
from tests.unit.server.share_door import Shared, ranges
from tests.unit.server.test_loop_calls import GROUP, TOPIC, WORKER, Served, on_a_loop

from headrace.calls import Face
from headrace.core.values import MessageId, Outgoing, PlacedBatch
from headrace.engine import prescan, scan, scanner
from headrace.engine.scan import scan_batch
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import Codec, NewRecord, attribute_headers, build_batch
from headrace.server.scanning import scan_ahead
from headrace.wire.kafka.generated.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)

ALTER_SHARE_OFFSETS = 91


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """The first offset of each batch that was scanned, and whether on the loop."""
    seen: list[tuple[int, bool]] = []

    def note(batch: Any, header: Any, start: int, **named: Any) -> scan.Scan:
        on_loop = threading.current_thread() is threading.main_thread()
        seen.append((header.base_offset, on_loop))
        return scan_batch(batch, header, start, **named)

    for module in (prescan, scanner):
        monkeypatch.setattr(module, "scan_batch", note)
    return seen


async def fill(served: Served, **settings: Any) -> None:
    await served.run(Face.create_topic, TOPIC, partitions=1, settings=settings)
    high = attribute_headers(priority="high")
    for number in range(5):
        records = [NewRecord(b"k", b"%d" % number, high if number % 2 else ())] * 2
        batch = build_batch(records, codec=Codec.ZSTD)
        await served.run(Face.publish_batches, [PlacedBatch(TOPIC, 0, batch)])


async def open_queue(served: Served, group: str = GROUP) -> None:
    await scan_ahead(served.calls, [TOPIC])
    await served.calls.run_in_slices(Face.queue_opening, group, [TOPIC], WORKER, None)


def values(leased: list[Any]) -> list[bytes]:
    return [each.value for each in leased]


EXPECTED = [b"1", b"1", b"3", b"3", b"0", b"0", b"2", b"2", b"4", b"4"]


def test_a_thread_scans_what_was_there_before(scanned: list[tuple[int, bool]]) -> None:
    async def scenario(served: Served) -> None:
        await fill(served)
        await open_queue(served)
        assert scanned == [(0, False), (2, False), (4, False), (6, False), (8, False)]
        assert values(await served.lease(4)) == EXPECTED[:4]
        await served.publish(b"new")
        assert values(await served.lease(10)) == [*EXPECTED[4:], b"new"]
        # Another group has nothing left to scan.
        scanned.clear()
        await open_queue(served, "reports")
        assert not scanned

    on_a_loop(scenario)


def test_what_comes_meanwhile_is_scanned_too(scanned: list[tuple[int, bool]]) -> None:
    async def scenario(served: Served) -> None:
        await fill(served)
        [found] = await served.run(Face.prescans, [TOPIC])
        await served.run(Face.publish, TOPIC, [Outgoing(b"meanwhile")])
        found.run()
        found.keep()
        await open_queue(served)
        assert [offset for offset, _ in scanned] == [0, 2, 4, 6, 8, 10]
        assert values(await served.lease(20)) == [*EXPECTED, b"meanwhile"]

    on_a_loop(scenario)


def test_what_was_deleted_meanwhile_is_not_there() -> None:
    async def scenario(served: Served) -> None:
        await fill(served)
        [found] = await served.run(Face.prescans, [TOPIC])
        found.run()
        await served.run(Face.delete_records, TOPIC, 0, 5)
        found.keep()
        await open_queue(served)
        assert sorted(values(await served.lease(20))) == [b"2", b"3", b"3", b"4", b"4"]

    on_a_loop(scenario)


def test_two_groups_that_come_at_once_both_see_everything() -> None:
    async def scenario(served: Served) -> None:
        await fill(served)
        await asyncio.gather(open_queue(served), open_queue(served, "reports"))
        assert values(await served.lease(20)) == EXPECTED
        leased = await served.run(Face.lease, "reports", [TOPIC], WORKER, 20)
        assert values(leased) == EXPECTED

    on_a_loop(scenario)


def test_a_topic_in_the_order_of_keys_is_leased_in_that_order() -> None:
    async def scenario(served: Served) -> None:
        await fill(served, ordering="key")
        await open_queue(served)
        got: list[bytes] = []
        while leased := await served.lease(20):
            got += values(leased)
            await served.run(Face.ack, GROUP, [each.receipt for each in leased])
        assert sorted(got) == sorted(EXPECTED)

    on_a_loop(scenario)


async def drained(served: Served, group: str) -> list[bytes]:
    got: list[bytes] = []
    while leased := await served.run(Face.lease, group, [TOPIC], WORKER, 20):
        got += values(leased)
        await served.run(Face.ack, group, [each.receipt for each in leased])
    return got


async def publish_more(served: Served) -> None:
    await served.run(Face.publish, TOPIC, [Outgoing(b"meanwhile", key=b"k")])


async def delete_some(served: Served) -> None:
    await served.run(Face.delete_records, TOPIC, 0, 5)


async def cancel_one(served: Served) -> None:
    assert await served.run(Face.cancel, MessageId(TOPIC, 0, 10))


async def change_group(served: Served) -> None:
    await served.run(Face.alter_group, GROUP, {"isolation": "read_uncommitted"})


@pytest.mark.parametrize("change", [publish_more, delete_some, cancel_one, change_group])
@pytest.mark.parametrize("after", range(7))
def test_keys_of_a_backlog_are_gone_through_in_steps_and_what_changes_meanwhile_is_seen(
    change: Callable[[Served], Coroutine[Any, Any, None]], after: int
) -> None:
    async def scenario(served: Served) -> None:
        await fill(served, ordering="key")
        later = Outgoing(b"later", b"l", attribute_headers(delay_ms=60_000))
        await served.run(Face.publish, TOPIC, [later])
        broker, clock = served.service.broker, served.service.clock
        commit = served.service.commit()
        opening = broker.groups.opening(
            GROUP, [broker.topics.named(TOPIC)], {"start": "earliest"}, clock.now_ms(), commit
        )
        steps = 0
        for _ in opening:
            steps += 1
            if steps == after:
                await change(served)
        await served.service.finish(commit)
        # One a batch, unless what was there before had to be begun anew; and one in the end.
        assert steps >= 7 or change is not publish_more
        await served.run(Face.open_queue, "twin", [TOPIC], WORKER, {"start": "earliest"})
        told = [
            await served.run(Face.queue_statistics, group, [TOPIC]) for group in (GROUP, "twin")
        ]
        assert [each.ready for each in told] == [told[1].ready] * 2
        assert [each.delayed for each in told] == [0 if change is cancel_one and after else 1] * 2
        assert await drained(served, GROUP) == await drained(served, "twin")

    on_a_loop(scenario)


def test_a_topic_that_is_deleted_meanwhile_is_no_harm() -> None:
    async def scenario(served: Served) -> None:
        await fill(served)
        [found] = await served.run(Face.prescans, [TOPIC])
        await served.run(Face.delete_topic, TOPIC)
        found.run()
        found.keep()

    on_a_loop(scenario)


IN_A_THREAD = [(0, False), (2, False)]


def test_a_thread_scans_for_the_first_member_of_a_share_group(
    scanned: list[tuple[int, bool]],
) -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.publish(b"a", b"b")
        await shared.publish(b"c")
        # Both ask before the thread is done, and it looks once.
        answers = await asyncio.gather(shared.beat(), shared.beat("m2"))
        assert [each.error_code for each in answers] == [0, 0]
        assert scanned == IN_A_THREAD
        [(first, last, _)] = ranges(await shared.fetch(0))
        assert (first, last) == (0, 2)

    run(scenario)


def test_a_thread_scans_for_a_share_group_that_is_told_where_to_read(
    scanned: list[tuple[int, bool]],
) -> None:
    wanted = [AlterShareGroupOffsetsRequestPartition(index, 1) for index in range(2)]
    topics = (AlterShareGroupOffsetsRequestTopic(SHARED_TOPIC, wanted),)

    async def scenario() -> None:
        shared = Shared(partitions=2)
        await shared.publish(b"a", b"b")
        await shared.publish(b"c")
        await shared.publish(b"d", b"e", partition=1)
        request = AlterShareGroupOffsetsRequest(SHARED_GROUP, topics)
        [topic] = (await shared.ask(ALTER_SHARE_OFFSETS, 0, request)).responses
        assert [each.error_code for each in topic.partitions] == [0, 0]
        assert scanned == [*IN_A_THREAD, (0, False)]
        await shared.beat()
        [(first, last, _)] = ranges(await shared.fetch(0))
        assert (first, last) == (1, 2)

    run(scenario)


def test_rot_in_one_partition_keeps_no_queue_from_opening_on_the_others() -> None:
    async def scenario(served: Served) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=2)
        for index in range(2):
            batch = build_batch([NewRecord(None, b"%d" % index)])
            await served.run(Face.publish_batches, [PlacedBatch(TOPIC, index, batch)])
        topics = served.service.broker.topics
        rotten = topics.partition(topics.named(TOPIC), 0)
        name = rotten.log.segment_list.active.log_path
        disk = served.service.disk
        assert isinstance(disk, MemoryDisk)
        disk.names[name].data[-1] ^= 1
        await open_queue(served)
        assert rotten.stopped is not None and name in str(rotten.stopped)
        assert values(await served.lease(10)) == [b"1"]

    on_a_loop(scenario)
