"""Reading committed records on Kafka's wire: Fetch and ListOffsets."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.engine.transactions import Writer
from tests.unit.server.asking import Asking, run

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import list_offsets_request as listing
from headrace.wire.kafka.generated.describe_producers_request import (
    DescribeProducersRequest,
    TopicRequest,
)

PRODUCE, FETCH, LIST, DESCRIBE_PRODUCERS = 0, 1, 2, 61
UNCOMMITTED, COMMITTED = 0, 1
TOPIC = "orders"


class Reading(Asking):
    """A door with a topic of one partition, and somebody who writes to it."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        now_ms = self.service.clock.now_ms()
        self.topic = self.broker.topics.create(TOPIC, 1, TopicSettings(), now_ms)
        self.partition = self.broker.topics.partition(self.topic, 0)
        self.writer = Writer(self.partition, now_ms)

    async def settle(self) -> None:
        """Until everything written so far is safe."""
        commit = self.service.commit()
        commit.data.append((self.partition, self.partition.log.end_offset))
        await self.service.finish(commit)

    def fetching(self, offset: int, isolation: int, **options: Any) -> asyncio.Future[Any]:
        partition_max_bytes = options.pop("partition_max_bytes", 1024 * 1024)
        wanted = fetch.FetchTopic(
            TOPIC,
            self.topic.id,
            (fetch.FetchPartition(0, -1, offset, partition_max_bytes=partition_max_bytes),),
        )
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000, "session_epoch": -1}
        request = fetch.FetchRequest(
            topics=(wanted,), isolation_level=isolation, **{**defaults, **options}
        )
        return self.begin(FETCH, 16, request)

    async def fetch(self, offset: int, isolation: int = COMMITTED, **options: Any) -> Any:
        answer = await self.fetching(offset, isolation, **options)
        return answer.responses[0].partitions[0]

    async def list_offset(self, timestamp: int, isolation: int) -> int:
        partition = listing.ListOffsetsPartition(0, -1, timestamp)
        topics = (listing.ListOffsetsTopic(TOPIC, (partition,)),)
        answer = await self.ask(LIST, 7, listing.ListOffsetsRequest(-1, isolation, topics))
        found = answer.topics[0].partitions[0]
        assert found.error_code == 0
        return int(found.offset)


def aborted_in(data: Any) -> list[tuple[int, int]]:
    return [tuple(each) for each in data.aborted_transactions]


def end_of(data: Any) -> int:
    """The offset behind the last batch that was sent."""
    records, end = bytes(data.records), -1
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        end = int.from_bytes(records[:8], "big") + int.from_bytes(records[23:27], "big") + 1
        records = records[size:]
    return end


def test_nothing_undecided_is_sent_to_a_reader_of_committed_records() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.writer.write(-1, b"plain")
        reading.writer.write(1, b"open")
        reading.writer.write(-1, b"behind")
        await reading.settle()
        data = await reading.fetch(0)
        assert (data.high_watermark, data.last_stable_offset) == (3, 1)
        assert end_of(data) == 1
        assert aborted_in(data) == []
        assert not (await reading.fetch(1)).records
        assert not (await reading.fetch(2)).records
        data = await reading.fetch(0, UNCOMMITTED)
        assert (data.last_stable_offset, data.aborted_transactions) == (1, None)
        assert end_of(data) == 3

    run(scenario)


def test_the_list_of_aborted_transactions_covers_what_was_sent() -> None:
    async def scenario() -> None:
        reading = Reading()
        for producer in range(4):
            reading.writer.write(producer, b"x" * 100)
        for producer in range(4):
            reading.writer.end(producer, commit=producer == 1)
        reading.writer.write(5, b"y")
        reading.writer.abort(5)
        await reading.settle()
        everything = await reading.fetch(0)
        assert aborted_in(everything) == [(0, 0), (2, 2), (3, 3), (5, 8)]
        # One batch goes out: only what begins before its end is told.
        first = await reading.fetch(0, partition_max_bytes=1)
        assert end_of(first) == 1
        assert aborted_in(first) == [(0, 0)]
        assert aborted_in(await reading.fetch(7, partition_max_bytes=1)) == [(3, 3)]
        assert (await reading.fetch(0, UNCOMMITTED)).aborted_transactions is None

    run(scenario)


def test_a_long_poll_wakes_when_a_transaction_is_decided() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.writer.write(1, b"x" * 5000)
        await reading.settle()
        for commit, min_bytes in ((True, 1), (False, 2000)):
            start = reading.partition.log.end_offset - 1
            waiting = reading.fetching(start, COMMITTED, max_wait_ms=30_000, min_bytes=min_bytes)
            await asyncio.sleep(0)
            reading.writer.write(-1, b"not yet")
            await reading.settle()
            assert not waiting.done()
            reading.writer.end(1, commit=commit)
            await reading.settle()
            data = (await waiting).responses[0].partitions[0]
            assert end_of(data) == reading.partition.log.end_offset
            assert bool(data.aborted_transactions) != commit
            reading.writer.write(1, b"y" * 5000)
            await reading.settle()

    run(scenario)


def test_a_session_is_told_of_a_stable_offset_that_moved() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.writer.write(1, b"x")
        await reading.settle()
        answer = await reading.fetching(1, UNCOMMITTED, session_epoch=0)
        again = fetch.FetchRequest(session_id=answer.session_id, session_epoch=1)
        assert not (await reading.ask(FETCH, 16, again)).responses
        reading.writer.commit(1)
        await reading.settle()
        again = fetch.FetchRequest(session_id=answer.session_id, session_epoch=2)
        told = (await reading.ask(FETCH, 16, again)).responses[0].partitions[0]
        assert told.last_stable_offset == 2

    run(scenario)


def test_the_latest_committed_offset_is_the_last_stable_one() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.writer.write(-1, b"a")
        reading.writer.now_ms += 10
        reading.writer.write(1, b"b")
        await reading.settle()
        later = reading.writer.now_ms
        assert await reading.list_offset(-1, UNCOMMITTED) == 2
        assert await reading.list_offset(-1, COMMITTED) == 1
        assert await reading.list_offset(later, UNCOMMITTED) == 1
        assert await reading.list_offset(later, COMMITTED) == -1
        assert await reading.list_offset(later - 10, COMMITTED) == 0
        reading.writer.commit(1)
        assert await reading.list_offset(later, COMMITTED) == -1
        await reading.settle()
        assert await reading.list_offset(later, COMMITTED) == 1
        assert await reading.list_offset(-1, COMMITTED) == 3
        reading.writer.now_ms += 10
        reading.writer.write(2, b"c")
        # It is on its way to the disk, and it is not decided there either.
        assert await reading.list_offset(reading.writer.now_ms, COMMITTED) == -1

    run(scenario)


def test_producers_are_described_with_their_open_transactions() -> None:
    async def scenario() -> None:
        reading = Reading()
        reading.writer.write(1, b"a")
        reading.writer.write(2, b"b")
        reading.writer.end(1, commit=True, coordinator_epoch=3)
        request = DescribeProducersRequest((TopicRequest(TOPIC, (0,)),))
        answer = await reading.ask(DESCRIBE_PRODUCERS, 0, request)
        active = {
            each.producer_id: each for each in answer.topics[0].partitions[0].active_producers
        }
        assert (active[1].coordinator_epoch, active[1].current_txn_start_offset) == (3, -1)
        assert (active[2].coordinator_epoch, active[2].current_txn_start_offset) == (-1, 1)

    run(scenario)
