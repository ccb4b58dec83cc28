"""What clients hear whose picture of a partition's leader, or of its log, is not ours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_header
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import list_offsets_request as listing
from headrace.wire.kafka.generated import offset_for_leader_epoch_request as epochs

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
TOPIC = "orders"
LEADS = 7


def versions(key: int, first: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(first, APIS[key].last + 1))


each_epoch = pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (LEADS - 1, Error.FENCED_LEADER_EPOCH),
        (0, Error.FENCED_LEADER_EPOCH),
        (LEADS + 1, Error.UNKNOWN_LEADER_EPOCH),
        (LEADS, Error.NONE),
        (-1, Error.NONE),
    ],
)


class Node(Asking):
    """With a partition that was written to in epochs 2, 4 and 7, two records in each."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        now_ms = self.service.clock.now_ms()
        self.topic = self.broker.topics.create(TOPIC, 1, TopicSettings(durability="os"), now_ms)
        self.partition = self.broker.topics.partition(self.topic, 0)
        for epoch in (2, 4, LEADS):
            self.partition.become_leader(epoch, now_ms)
            for _ in range(2):
                self.append()

    def append(self) -> None:
        batch = build_batch([NewRecord(None, b"v", (), 1_000)])
        self.partition.append(batch, read_header(batch), self.service.clock.now_ms())

    def fetching(
        self, offset: int, *, current: int = -1, last_fetched: int = -1, **options: Any
    ) -> fetch.FetchRequest:
        wanted = fetch.FetchPartition(
            0, current, offset, last_fetched, partition_max_bytes=1024 * 1024
        )
        topics = (fetch.FetchTopic(TOPIC, self.topic.id, (wanted,)),)
        return fetch.FetchRequest(topics=topics, max_bytes=10**6, **options)

    async def fetch(self, version: int, offset: int, **options: Any) -> Any:
        answer = await self.ask(FETCH, version, self.fetching(offset, **options))
        return answer.responses[0].partitions[0]


@versions(FETCH, first=9)
@each_epoch
def test_a_fetch_with_another_leader_epoch_is_fenced_or_unknown(
    version: int, epoch: int, code: int
) -> None:
    async def scenario() -> None:
        told = await Node().fetch(version, 0, current=epoch)
        assert told.error_code == code
        assert bool(told.records) == (not code)
        if version >= 12 and code:
            assert told.current_leader == (1, LEADS)

    run(scenario)


@versions(LIST_OFFSETS, first=4)
@each_epoch
def test_offsets_listed_with_another_leader_epoch_are_fenced_or_unknown(
    version: int, epoch: int, code: int
) -> None:
    async def scenario() -> None:
        wanted = listing.ListOffsetsTopic(TOPIC, (listing.ListOffsetsPartition(0, epoch, -1),))
        asked = listing.ListOffsetsRequest(-1, 0, (wanted,))
        answer = await Node().ask(LIST_OFFSETS, version, asked)
        [told] = answer.topics[0].partitions
        assert (told.error_code, told.offset) == (code, -1 if code else 6)

    run(scenario)


@versions(OFFSET_FOR_LEADER_EPOCH, first=2)
@each_epoch
def test_an_end_of_an_epoch_asked_with_another_leader_epoch_is_fenced_or_unknown(
    version: int, epoch: int, code: int
) -> None:
    async def scenario() -> None:
        place = epochs.OffsetForLeaderPartition(0, epoch, 4)
        asked = epochs.OffsetForLeaderEpochRequest(
            -1, (epochs.OffsetForLeaderTopic(TOPIC, (place,)),)
        )
        answer = await Node().ask(OFFSET_FOR_LEADER_EPOCH, version, asked)
        [told] = answer.topics[0].partitions
        assert (told.error_code, told.end_offset) == (code, -1 if code else 4)

    run(scenario)


@versions(FETCH, first=12)
@pytest.mark.parametrize(
    ("last_fetched", "offset", "diverging"),
    [
        # Epoch 4 ended at 4, and this client has read further in it.
        (4, 5, (4, 4)),
        # Epochs that wrote nothing here: where the one before ended.
        (5, 5, (4, 4)),
        (3, 3, (2, 2)),
        (3, 1, (2, 2)),
        # Our own: the log was cut, and is shorter than what was read.
        (LEADS, 9, (LEADS, 6)),
        # Older than all that is here.
        (1, 1, (1, 0)),
    ],
)
def test_a_reader_of_another_log_is_told_where_it_diverged_and_gets_no_records(
    version: int, last_fetched: int, offset: int, diverging: tuple[int, int]
) -> None:
    async def scenario() -> None:
        told = await Node().fetch(version, offset, last_fetched=last_fetched)
        assert (told.error_code, told.diverging_epoch) == (0, diverging)
        assert not told.records

    run(scenario)


@versions(FETCH, first=12)
@pytest.mark.parametrize(
    ("last_fetched", "offset"), [(2, 0), (2, 2), (4, 4), (LEADS, 5), (1, 0), (-1, 3)]
)
def test_a_reader_of_this_log_gets_its_records(
    version: int, last_fetched: int, offset: int
) -> None:
    async def scenario() -> None:
        told = await Node().fetch(version, offset, last_fetched=last_fetched)
        assert (told.error_code, told.diverging_epoch) == (0, (-1, -1))
        assert read_header(told.records).base_offset == offset

    run(scenario)


@versions(FETCH, first=12)
def test_a_reader_of_an_epoch_that_is_not_known_here_is_out_of_range(version: int) -> None:
    async def scenario() -> None:
        told = await Node().fetch(version, 3, last_fetched=LEADS + 1)
        assert told.error_code == Error.OFFSET_OUT_OF_RANGE
        assert told.diverging_epoch == (-1, -1)

    run(scenario)


def test_a_reader_whose_log_diverged_does_not_wait_and_hears_of_it_in_a_session() -> None:
    async def scenario() -> None:
        node = Node()
        waiting = {"max_wait_ms": 30_000, "min_bytes": 1}
        begun = await node.ask(FETCH, 12, node.fetching(6, session_epoch=0))
        for epoch in (1, 2):
            asked = node.fetching(
                9, last_fetched=4, session_id=begun.session_id, session_epoch=epoch, **waiting
            )
            # Time stands still here: an answer that waits does not come.
            answer = node.begin(FETCH, 12, asked)
            for _ in range(10):
                await asyncio.sleep(0)
            assert answer.done()
            [told] = answer.result().responses[0].partitions
            assert told.diverging_epoch == (4, 4)

    run(scenario)
