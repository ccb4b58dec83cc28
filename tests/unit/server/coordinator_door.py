"""A door whose groups commit offsets, and a client that reads Kafka's internal topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.unit.server.asking import Asking
from tests.unit.server.transaction_door import TOPIC, make_topic
from tests.unit.wire.coordinator_decoder import Offset, decode_offset_key, decode_offset_value

from headrace.platform.memory_disk import MemoryDisk
from headrace.record import (
    BatchHeader,
    NewRecord,
    build_batch,
    check_batch,
    read_header,
    read_records,
)
from headrace.testing.manual_clock import ManualClock
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import metadata_request as metadata
from headrace.wire.kafka.generated import offset_commit_request as committing

FETCH, METADATA, OFFSET_COMMIT = 1, 3, 8
UNCOMMITTED, COMMITTED = 0, 1
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class Read(NamedTuple):
    """A record as a client got it."""

    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class CoordinatorDoor(Asking):
    def __init__(self, disk: MemoryDisk | None = None, clock: ManualClock | None = None) -> None:
        super().__init__(disk or MemoryDisk(), clock=clock or ManualClock())
        if TOPIC not in self.broker.topics.catalog.topics:
            self.make_topic()

    def make_topic(self) -> None:
        """Two partitions, with records to have read."""
        make_topic(self)
        topic, now_ms = self.broker.topics.named(TOPIC), self.clock.now_ms()
        for partition in self.broker.topics.partitions(topic):
            batch = build_batch([NewRecord(None, b"v", (), now_ms)] * 50)
            partition.append(batch, read_header(batch), now_ms)

    async def commit(
        self, group: str, positions: Mapping[int, int], *, topic: str = TOPIC, note: str = ""
    ) -> list[int]:
        """The error codes."""
        wanted = committing.OffsetCommitRequestTopic(
            topic,
            partitions=[
                committing.OffsetCommitRequestPartition(index, offset, 4, note)
                for index, offset in positions.items()
            ],
        )
        request = committing.OffsetCommitRequest(group, topics=(wanted,))
        answer = await self.ask(OFFSET_COMMIT, 9, request)
        return [each.error_code for each in answer.topics[0].partitions]

    async def find(self, name: str, *, may_create: bool = True) -> Any:
        request = metadata.MetadataRequest((metadata.MetadataRequestTopic(name=name),), may_create)
        (topic,) = (await self.ask(METADATA, 12, request)).topics
        return topic

    def fetching(
        self, name: str, offset: int, version: int = 12, **options: Any
    ) -> asyncio.Future[Any]:
        bytes_max = options.pop("partition_max_bytes", 1 << 20)
        topic_id = options.pop("topic_id", bytes(16))
        partition = fetch.FetchPartition(0, -1, offset, partition_max_bytes=bytes_max)
        topic = fetch.FetchTopic("" if version >= 13 else name, topic_id, (partition,))
        asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 25, "session_epoch": -1}
        request = fetch.FetchRequest(topics=(topic,), **{**asked, **options})
        return self.begin(FETCH, version, request)

    async def fetch(self, name: str, offset: int, version: int = 12, **options: Any) -> Any:
        answer = await self.fetching(name, offset, version, **options)
        return answer.responses[0].partitions[0]

    async def read(self, name: str, offset: int = 0, **options: Any) -> list[Read]:
        """All that a client gets from there on, as clients read: aborted transactions are
        left out with `isolation_level=COMMITTED`, markers always."""
        found: list[Read] = []
        while True:
            data = await self.fetch(name, offset, **options)
            assert data.error_code == 0
            if not data.records:
                return found
            found += [each for each in records_of(data) if each.offset >= offset]
            offset = end_of(data)

    async def read_offsets(self, **options: Any) -> list[tuple[str, str, int, int | None]]:
        """Group, topic, partition and offset of each record; None: forgotten."""
        read = await self.read(OFFSETS, **options)
        return [(*decode_offset_key(each.key), offset_in(each)) for each in read]


def offset_in(record: Read) -> int | None:
    return None if record.value is None else decode_offset_value(record.value).offset


def value_in(record: Read) -> Offset:
    assert record.value is not None
    return decode_offset_value(record.value)


def records_of(data: Any) -> Iterator[Read]:
    aborted = sorted(
        (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
    )
    skipped: set[int] = set()
    for header, batch in batches_of(data):
        while aborted and aborted[0][0] <= header.base_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            for record in read_records(batch, header):
                assert not record.headers
                assert record.key is not None
                yield Read(record.offset, record.timestamp_ms, record.key, record.value)


def batches_of(data: Any) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header and bytes of each, whose checksum is right."""
    records, position = bytes(data.records), 0
    while position < len(records):
        header = check_batch(records, position)
        yield header, records[position : position + header.size_bytes]
        position += header.size_bytes


def end_of(data: Any) -> int:
    return max(header.next_offset for header, _ in batches_of(data))
