"""Transactions over several partitions, with the power lost at any moment, against a
naive twin: a reader of committed records sees no aborted and no torn transaction, misses
no committed one, and what it has seen is never taken back. Messages that a transaction
acks are done if it is committed and come again if not."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.property.transaction_twin import PLAIN, Entry, Transaction, Twin

from headrace.core.settings import TopicSettings
from headrace.core.values import Receipt
from headrace.engine.broker import Broker
from headrace.engine.leasing import Wishes
from headrace.engine.partition import Partition
from headrace.record import NewRecord, build_batch, read_header
from headrace.testing import ManualClock
from headrace.testing.fault_disk import FaultDisk, PowerLoss

TOPIC, GROUP = "orders", "workers"
PARTITIONS, PRODUCERS = 3, 3
# No record has a key, so compaction takes away nothing but what was aborted.
SETTINGS = TopicSettings(
    cleanup="compact", dirty_ratio_min=0, segment_bytes=1024, tombstone_ms=2_000, retention_ms=None
)
GROUP_SETTINGS = {"max_attempts": 255, "leases_per_consumer_max": 10_000, "visibility_ms": 1_000}


class SeededEntropy:
    def __init__(self, random: Random) -> None:
        self._random = random

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class Machine:
    """A broker on a disk that fails, a coordinator, and those who read."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock(autoskip=False)
        self.twin = Twin(PARTITIONS, PRODUCERS)
        self.number = 0
        # What a stream has read of each partition, and where it goes on.
        self.read: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
        self.positions = [0] * PARTITIONS
        self.stable = [0] * PARTITIONS
        self.high = [0] * PARTITIONS
        self.delivered: set[bytes] = set()
        self.receipts: dict[Receipt, bytes] = {}
        # How far each state log is safe, and who acked what.
        self.state_safe = [0] * PARTITIONS
        self.acked: set[bytes] = set()
        self.acked_by_commit: set[bytes] = set()
        self.disk = FaultDisk()
        self.broker = self.open_broker()
        topic = self.broker.topics.create(TOPIC, PARTITIONS, SETTINGS, self.now_ms)
        self.broker.groups.open(GROUP, [topic], GROUP_SETTINGS, self.now_ms, self.broker.commit())
        self.sync(range(PARTITIONS))

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def open_broker(self) -> Broker:
        return Broker(self.disk, SeededEntropy(self.random), self.now_ms)

    def partition(self, index: int) -> Partition:
        topics = self.broker.topics
        return topics.partition(topics.named(TOPIC), index)

    # Producing.

    def append(self, index: int, producer: int, count: int) -> None:
        values = []
        for _ in range(count):
            self.number += 1
            values.append(b"%d" % self.number)
        epoch, sequence = -1, -1
        if producer != PLAIN:
            transaction = self.twin.transactions[producer]
            if transaction.state == "prepared" or transaction.is_doomed:
                return
            transaction = self.begin(producer)
            transaction.partitions.add(index)
            epoch = transaction.epoch
            sequence = self.sequence_of(index, producer, epoch)
        batch = build_batch(
            [NewRecord(None, value, (), self.now_ms) for value in values],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer != PLAIN,
        )
        partition = self.partition(index)
        # Before the call, since a crash in it leaves either state.
        entry = Entry(partition.log.end_offset, producer, tuple(values))
        self.twin.entries[index].append(entry)
        assert partition.append(batch, read_header(batch), self.now_ms).first_offset == entry.offset

    def begin(self, producer: int) -> Transaction:
        """The producer's open transaction, a new one if need be."""
        transaction = self.twin.transactions[producer]
        if transaction.state == "complete":
            transaction = Transaction(transaction.epoch, state="open")
            self.twin.transactions[producer] = transaction
        return transaction

    def hold(self, producer: int, count: int) -> None:
        """The producer's transaction acks some of what is leased."""
        transaction = self.twin.transactions[producer]
        if transaction.state == "prepared" or transaction.is_doomed:
            return
        transaction = self.begin(producer)
        for receipt in list(self.receipts)[:count]:
            value = self.receipts.pop(receipt)
            index = receipt.partition
            transaction.partitions.add(index)
            # Before the call, since a crash in it leaves either state.
            state = self.partition(index).state
            assert state is not None
            transaction.acks[value] = (index, state.log.end_offset + 1)
            [outcome] = self.broker.settling.ack_in_transaction(
                self.broker.groups.named(GROUP),
                [receipt],
                producer,
                transaction.epoch,
                self.now_ms,
                self.broker.commit(),
            )
            if outcome is not None:
                del transaction.acks[value]

    def sequence_of(self, index: int, producer: int, epoch: int) -> int:
        """What the partition expects next: counted by the batches that are there."""
        for active in self.partition(index).producers.active():
            if active.producer_id == producer and active.epoch == epoch:
                return active.last_sequence + 1
        return 0

    # Deciding.

    def prepare(self, producer: int, commit: bool) -> None:
        transaction = self.twin.transactions[producer]
        if transaction.state != "open":
            return
        if commit and not transaction.is_doomed:
            # A client flushes before it commits.
            self.sync(transaction.partitions)
            if self.twin.transactions[producer].is_doomed:
                return
            transaction.commit = True
            transaction.marker_epoch = transaction.epoch
        else:
            # Aborted by the coordinator, as for a producer that is gone.
            transaction.marker_epoch = transaction.epoch + 1
        transaction.state = "prepared"
        transaction.unsent = set(transaction.partitions)

    def send_marker(self, producer: int) -> None:
        transaction = self.twin.transactions[producer]
        if transaction.state != "prepared":
            return
        if transaction.unsent:
            index = min(transaction.unsent)
            partition = self.partition(index)
            marker = Entry(partition.log.end_offset, producer, (), transaction.commit)
            self.twin.entries[index].append(marker)
            appended = partition.end_transaction(
                producer,
                transaction.marker_epoch,
                commit=transaction.commit,
                coordinator_epoch=0,
                now_ms=self.now_ms,
            )
            if appended.duplicate:
                self.twin.entries[index].pop()
            transaction.unsent.discard(index)
            return
        self.sync(transaction.partitions)
        if transaction.commit:
            self.acked_by_commit |= transaction.acks.keys()
        transaction.state = "complete"
        transaction.epoch = transaction.marker_epoch
        transaction.is_doomed = False

    # The disk.

    def sync(self, indexes: Iterable[int]) -> None:
        partitions = [self.partition(index) for index in sorted(set(indexes))]
        done = self.broker.begin_sync(partitions)
        for _, ticket in done.tickets:
            for folder in ticket.directories:
                self.disk.sync_directory(folder)
            for file in ticket.files:
                file.sync()
        self.broker.on_synced(done, self.now_ms)
        for partition in partitions:
            self.state_safe[partition.index] = partition.state_high_watermark

    def clean(self, index: int) -> None:
        self.partition(index).log.roll(self.now_ms)
        self.sync([index])
        self.broker.maintain(self.now_ms)

    def crash(self) -> None:
        while True:
            self.disk = self.disk.crash(self.random)
            if not self.random.randrange(4):
                self.disk.stop_at = 1 + self.random.randrange(40)
            try:
                self.broker = self.open_broker()
                break
            except PowerLoss:
                continue
        self.receipts = {}
        self.twin.lose_acks(self.state_safe)
        for index in range(PARTITIONS):
            end = self.partition(index).log.end_offset
            assert end >= self.high[index], "what was safe is lost"
            self.twin.lose(index, end)
            self.state_safe[index] = self.partition(index).state_high_watermark
        for transaction in self.twin.transactions:
            if transaction.state == "prepared":
                # Markers that were not safe may be lost: all are sent again.
                transaction.unsent = set(transaction.partitions)

    # Reading.

    def look(self, index: int) -> None:
        """Everything that is promised of one partition, now."""
        partition = self.partition(index)
        high, stable = partition.high_watermark, partition.last_stable_offset
        assert stable == self.twin.stable_end(index, high)
        assert stable >= self.stable[index], "it went back"
        self.high[index], self.stable[index] = high, stable
        topic = self.broker.topics.named(TOPIC)
        start = self.positions[index]
        records, following = self.broker.read(topic, index, start, 1_000, 1 << 20)
        found = [(record.offset, record.value) for record in records]
        assert found == self.twin.committed(index, start, stable)
        assert following == max(start, stable)
        self.read[index] += [(offset, value or b"") for offset, value in found]
        self.positions[index] = following
        # And what was read before is still what is there.
        again, _ = self.broker.read(topic, index, 0, 1_000, 1 << 20)
        assert [(record.offset, record.value) for record in again] == self.read[index]

    def lease(self, count: int) -> None:
        group = self.broker.groups.named(GROUP)
        topic = self.broker.topics.named(TOPIC)
        found = self.broker.leasing.lease(group, [topic], "ann", count, Wishes(), self.now_ms)
        for delivery in found:
            place = (delivery.offset, delivery.value)
            index = delivery.partition
            stable = self.partition(index).last_stable_offset
            assert place in self.twin.committed(index, 0, stable)
            value = delivery.value or b""
            assert value not in self.acked_by_commit, "its ack was committed"
            assert not self.twin.is_held(value), "a transaction holds it"
            self.delivered.add(value)
            self.receipts[delivery.receipt] = value

    def ack(self) -> None:
        group = self.broker.groups.named(GROUP)
        commit = self.broker.commit()
        self.acked |= set(self.receipts.values())
        self.broker.settling.ack(group, list(self.receipts), self.now_ms, commit)
        self.receipts = {}
        if self.random.randrange(2):
            self.sync(range(PARTITIONS))

    def finish(self) -> None:
        """Decide what is left; then everybody has seen everything."""
        self.disk.stop_at = None
        for producer in range(PRODUCERS):
            self.prepare(producer, commit=True)
            while self.twin.transactions[producer].state == "prepared":
                self.send_marker(producer)
            self.prepare(producer, commit=False)
            while self.twin.transactions[producer].state == "prepared":
                self.send_marker(producer)
        self.sync(range(PARTITIONS))
        expected: set[bytes] = set()
        for index in range(PARTITIONS):
            self.look(index)
            assert self.stable[index] == self.high[index] == self.partition(index).log.end_offset
            expected |= {value for _, value in self.read[index]}
        self.clock.skip(10)
        self.receipts = {}
        self.lease(10_000)
        assert self.delivered == expected
        again = set(self.receipts.values())
        assert again >= expected - self.acked - self.acked_by_commit
        # Opened once more, it is the same.
        self.crash()
        self.disk.stop_at = None
        self.lease(10_000)
        assert set(self.receipts.values()) == again


KINDS = """append append append plain prepare prepare marker marker marker sync sync look
lease lease ack hold hold clean snapshot skip power crash""".split()

# What happens next, to whom, and a number that means something to most of it.
steps = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, PRODUCERS - 1),
    st.integers(0, PARTITIONS - 1),
    st.integers(0, 20),
)


def play(machine: Machine, step: tuple[str, int, int, int]) -> None:
    kind, producer, index, number = step
    match kind:
        case "append":
            machine.append(index, producer, 1 + number % 4)
        case "plain":
            machine.append(index, PLAIN, 1 + number % 4)
        case "prepare":
            machine.prepare(producer, commit=number % 3 > 0)
        case "marker":
            machine.send_marker(producer)
        case "sync":
            machine.sync(range(index, PARTITIONS))
        case "look":
            machine.look(index)
        case "lease":
            machine.lease(number + 1)
        case "ack":
            machine.ack()
        case "hold":
            machine.hold(producer, 1 + number % 3)
        case "snapshot":
            machine.partition(index).snapshot(machine.now_ms, force=True)
        case "clean":
            machine.clean(index)
        case "skip":
            machine.clock.skip(number / 10)
        case "power":
            machine.disk.stop_at = machine.disk.operations + 1 + number
        case "crash":
            machine.crash()


@given(st.lists(steps, min_size=30, max_size=120), st.integers(0, 2**32))
def test_readers_of_committed_records_see_whole_transactions_and_nothing_else(
    history: list[tuple[str, int, int, int]], seed: int
) -> None:
    machine = Machine(seed)
    for step in history:
        try:
            play(machine, step)
            if step[0] not in ("look", "power"):
                for index in range(PARTITIONS):
                    machine.look(index)
        except PowerLoss:
            machine.crash()
    try:
        machine.finish()
    except PowerLoss:
        machine.crash()
        machine.finish()
