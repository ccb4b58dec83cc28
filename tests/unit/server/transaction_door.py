"""A producer of transactions in front of a door without a socket, which says exactly
what a test wants said, in the version that it names."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from tests.unit.server.asking import Asking

from headrace.core.settings import TopicSettings
from headrace.record import NewRecord, build_batch, read_header
from headrace.record.reader import read_records
from headrace.wire.kafka.generated import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    end_txn_request,
    fetch_request,
    init_producer_id_request,
    offset_fetch_request,
    produce_request,
    txn_offset_commit_request,
)

TOPIC, GROUP, NAME = "orders", "readers", "payments"
PRODUCE, FETCH, OFFSET_FETCH, INIT = 0, 1, 9, 22
ADD, ADD_OFFSETS, END, TXN_COMMIT = 24, 25, 26, 28
TIMEOUT_MS = 60_000
RECORD_MS = 1_700_000_000_000
# Soon after the records, so that retention leaves them alone.
START = datetime.fromtimestamp(RECORD_MS / 1000, UTC)
# The newest versions of the protocol before KIP-890, and of the one with it.
OLD = {PRODUCE: 11, END: 4, TXN_COMMIT: 4, INIT: 5, ADD: 3, ADD_OFFSETS: 4}
NEW = {PRODUCE: 12, END: 5, TXN_COMMIT: 5, INIT: 5, ADD: 3, ADD_OFFSETS: 4}


def make_topic(asking: Asking, partitions: int = 2) -> None:
    now_ms = asking.service.clock.now_ms()
    asking.broker.topics.create(TOPIC, partitions, TopicSettings(), now_ms)


class Transactor:
    """One producer, with the id and epoch that it was given."""

    def __init__(self, asking: Asking, versions: dict[int, int], name: str = NAME) -> None:
        self.asking = asking
        self.versions = versions
        self.name = name
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[int, int], int] = {}

    async def _ask(self, key: int, request: Any) -> Any:
        return await self.asking.ask(key, self.versions[key], request)

    async def init(self, timeout_ms: int = TIMEOUT_MS, *, claim: bool = False) -> int:
        claimed = (self.producer_id, self.epoch) if claim else (-1, -1)
        answer = await self._ask(
            INIT, init_producer_id_request.InitProducerIdRequest(self.name, timeout_ms, *claimed)
        )
        if not answer.error_code:
            self._become(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()

    def forget_sequences(self) -> None:
        self._sequences.clear()

    async def add(self, *indexes: int, topic: str = TOPIC) -> list[int]:
        wanted = add_partitions_to_txn_request.AddPartitionsToTxnTopic(topic, indexes)
        answer = await self._ask(
            ADD,
            add_partitions_to_txn_request.AddPartitionsToTxnRequest(
                self.name, self.producer_id, self.epoch, (wanted,)
            ),
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    async def add_offsets(self) -> int:
        answer = await self._ask(
            ADD_OFFSETS,
            add_offsets_to_txn_request.AddOffsetsToTxnRequest(
                self.name, self.producer_id, self.epoch, GROUP
            ),
        )
        return int(answer.error_code)

    def batch(self, index: int, *values: bytes) -> bytes:
        """What would be sent next, which can be sent late."""
        sequence = self._sequences.get((self.epoch, index), 0)
        self._sequences[self.epoch, index] = sequence + len(values)
        records = [NewRecord(None, value, (), RECORD_MS) for value in values]
        return bytes(
            build_batch(
                records,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

    async def write(self, index: int, *values: bytes) -> int:
        return await self.send(index, self.batch(index, *values))

    async def send(self, index: int, batch: bytes) -> int:
        return int(await self.begin_send(index, batch))

    def begin_send(self, index: int, batch: bytes) -> asyncio.Future[int]:
        """Send now; the future has the error code."""
        data = produce_request.TopicProduceData(
            TOPIC, partition_data=(produce_request.PartitionProduceData(index, batch),)
        )
        asked = self.asking.begin(
            PRODUCE,
            self.versions[PRODUCE],
            produce_request.ProduceRequest(self.name, -1, 30_000, (data,)),
        )

        async def code() -> int:
            answer = await asked
            return int(answer.responses[0].partition_responses[0].error_code)

        return asyncio.ensure_future(code())

    def offsets(self, offset: int, index: int = 0) -> Any:
        position = txn_offset_commit_request.TxnOffsetCommitRequestPartition(index, offset)
        return txn_offset_commit_request.TxnOffsetCommitRequest(
            self.name,
            GROUP,
            self.producer_id,
            self.epoch,
            topics=(txn_offset_commit_request.TxnOffsetCommitRequestTopic(TOPIC, (position,)),),
        )

    async def commit_offset(self, offset: int, index: int = 0) -> int:
        return await self.send_offsets(self.offsets(offset, index))

    async def send_offsets(self, request: Any) -> int:
        answer = await self._ask(TXN_COMMIT, request)
        return int(answer.topics[0].partitions[0].error_code)

    def ending(self, *, commit: bool) -> Any:
        return end_txn_request.EndTxnRequest(self.name, self.producer_id, self.epoch, commit)

    async def end(self, *, commit: bool) -> int:
        return await self.send_end(self.ending(commit=commit))

    async def send_end(self, request: Any) -> int:
        answer = await self._ask(END, request)
        if not answer.error_code and self.versions[END] >= 5:
            self._become(answer.producer_id, answer.producer_epoch)
        return int(answer.error_code)


async def committed(asking: Asking, index: int = 0) -> list[bytes]:
    """What a consumer with isolation.level=read_committed gets of a partition."""
    offset = 0
    values: list[bytes] = []
    skipped: set[int] = set()
    while True:
        partition = fetch_request.FetchPartition(index, -1, offset, partition_max_bytes=1 << 20)
        topic = fetch_request.FetchTopic(TOPIC, partitions=(partition,))
        request = fetch_request.FetchRequest(max_wait_ms=0, isolation_level=1, topics=(topic,))
        answer = await asking.ask(FETCH, 12, request)
        (found,) = answer.responses[0].partitions
        assert not found.error_code, found
        data, position = bytes(found.records or b""), 0
        if not data:
            return values
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in found.aborted_transactions or ()
        )
        while position < len(data):
            header = read_header(data, position)
            batch = data[position : position + header.size_bytes]
            position += header.size_bytes
            offset = header.next_offset
            while aborted and aborted[0][0] <= header.base_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                values += [record.value or b"" for record in read_records(batch, header)]


async def committed_offset(asking: Asking, *, stable: bool = False, index: int = 0) -> Any:
    """The offset and the error code that OffsetFetch has."""
    topic = offset_fetch_request.OffsetFetchRequestTopics(TOPIC, partition_indexes=(index,))
    group = offset_fetch_request.OffsetFetchRequestGroup(GROUP, topics=(topic,))
    request = offset_fetch_request.OffsetFetchRequest(groups=(group,), require_stable=stable)
    answer = await asking.ask(OFFSET_FETCH, 9, request)
    (found,) = answer.groups[0].topics[0].partitions
    return found.committed_offset, found.error_code
