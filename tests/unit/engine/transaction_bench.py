"""A broker whose disk is synced when a test says so, and a producer of transactions."""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.engine.coordinator.transaction import Place, Transaction
from headrace.engine.cursor import Commitment
from headrace.engine.partition import Partition
from headrace.engine.records import iterate_batches
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_header, read_records

TOPIC, GROUP, NAME = "orders", "readers", "payments"
START_MS = 1_000_000
TIMEOUT_MS = 60_000


class TransactionBench:
    def __init__(self, disk: MemoryDisk, now_ms: int = START_MS) -> None:
        self.disk = disk
        self.now_ms = now_ms
        self.broker = Broker(disk, SystemEntropy(), now_ms)
        self.table = self.broker.transactions
        self._sequences: dict[tuple[int, int, int], int] = {}

    def make_topic(self, partitions: int = 2) -> None:
        self.broker.topics.create(TOPIC, partitions, TopicSettings(), self.now_ms)
        self.settle()

    # Syncing.

    def sync(self, meanwhile: Callable[[], object] = lambda: None) -> set[Partition]:
        """One round; what has to be synced after it. What is written meanwhile is
        not part of it."""
        due = self.broker.begin_sync(set(self.broker.topics))
        meanwhile()
        for _, ticket in due.tickets:
            for directory in ticket.directories:
                self.disk.sync_directory(directory)
            for file in ticket.files:
                file.sync()
        return self.broker.on_synced(due, self.now_ms)

    def settle(self) -> None:
        while self.sync():
            pass

    # The parts of a transaction.

    @property
    def topic_id(self) -> bytes:
        return self.broker.topics.named(TOPIC).id

    def partition(self, index: int) -> Partition:
        return self.broker.topics.partition(self.broker.topics.named(TOPIC), index)

    def init(self) -> Transaction:
        begun = self.table.init(NAME, TIMEOUT_MS, None, self.now_ms)
        assert isinstance(begun, Transaction), begun
        return begun

    def add(self, owner: Transaction, *indexes: int, offsets: bool = False) -> Transaction:
        places: set[Place] = {(self.topic_id, index) for index in indexes}
        if offsets:
            places.add(self.broker.cursors.place(self.now_ms))
        added = self.table.add(NAME, owner.producer_id, owner.epoch, places, self.now_ms)
        assert isinstance(added, Transaction), added
        return added

    def write(self, owner: Transaction, index: int, *values: bytes) -> None:
        number = owner.producer_id, owner.epoch, index
        sequence = self._sequences.get(number, 0)
        self._sequences[number] = sequence + len(values)
        batch = build_batch(
            [NewRecord(None, value, (), self.now_ms) for value in values],
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        self.partition(index).append(batch, read_header(batch), self.now_ms)

    def commit_offset(self, owner: Transaction, offset: int, index: int = 0) -> None:
        producer = owner.producer_id, owner.epoch
        place = self.topic_id, index
        cursors = self.broker.cursors
        cursors.commit(GROUP, {place: Commitment(offset)}, self.now_ms, producer)

    def end(self, owner: Transaction, *, commit: bool, bumps: bool = True) -> Transaction:
        ended = self.table.end(
            NAME,
            owner.producer_id,
            owner.epoch,
            commit=commit,
            bumps=bumps,
            now_ms=self.now_ms,
        )
        assert isinstance(ended, Transaction), ended
        return ended

    # What others see.

    def offset(self, index: int = 0) -> int | None:
        cursor = self.broker.cursors.find(GROUP, (self.topic_id, index))
        return None if cursor is None else cursor.offset

    def is_stable(self, index: int = 0) -> bool:
        return self.broker.cursors.is_stable(GROUP, (self.topic_id, index))

    def markers(self, index: int) -> int:
        log = self.partition(index).log
        found = iterate_batches(log, log.start_offset, log.end_offset)
        return sum(read_header(data, position).is_control for data, position in found)

    def committed(self, index: int) -> list[bytes]:
        """What a reader of committed records finds."""
        partition = self.partition(index)
        end = partition.last_stable_offset
        aborted = partition.aborted_between(0, end)
        values = []
        for data, position in iterate_batches(partition.log, 0, end):
            header = read_header(data, position)
            is_aborted = any(
                header.producer_id == each.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            if header.is_control or is_aborted:
                continue
            batch = data[position : position + header.size_bytes]
            values += [record.value or b"" for record in read_records(batch, header)]
        return values
