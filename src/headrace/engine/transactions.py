"""Transactions: what every transactional id is doing, in a compacted topic of its own.

    key     the transactional id, UTF-8
    value   the transaction, msgpack (docs/formats/transactions.md), or null: forgotten

The table is built by reading that topic from its start. What is in memory is what
was appended last; nobody is told of it, and nothing is done about it, before that is
synced. So one request never waits for another's sync, and a crash takes back only
what nobody knows.

An end takes two syncs:

    decision     here: commit or abort, and where
      | synced
    markers      in each of its partitions, and for offsets in the topic of cursors
      | synced
    completion   here, not waited for: without it the markers are written once more

A recovery that finds a decision without its completion writes the markers again; a
partition takes a repeated one for what it is. A marker for a partition that another node
leads stays owed, and so does one that was not safe when the lead was lost: it is written,
once more, when the partition is led here. Only a deleted topic is owed none.

The table is that of the node that leads its topic. Any other refuses (NOT_COORDINATOR), and
reads it again when it leads.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

import msgspec

from headrace.core import limits
from headrace.core.errors import CorruptLog, DiskFull, FencedLeader, HeadraceError
from headrace.core.settings import TopicSettings
from headrace.engine.catalog import TRANSACTION_TOPIC
from headrace.engine.coordinator.transaction import (
    Claim,
    Place,
    Transaction,
    TransactionError,
    first_transaction,
)
from headrace.engine.cursor import Cursors
from headrace.engine.ending import Ending, Written
from headrace.engine.partition import Appended, Partition
from headrace.engine.records import iterate_batches
from headrace.engine.topics import Topics
from headrace.record import NewRecord, build_batch, read_header, read_records

# How long an id that nobody uses is remembered, unless the node is told otherwise.
UNUSED_MS = 7 * 24 * 60 * 60 * 1000
# How many completions share a batch, which is far below a batch's limit.
COMPLETED_AT_ONCE = 100
# Ids that are forgotten at a time: others wait for their turn meanwhile.
FORGOTTEN_AT_ONCE = 1_000
# Transactions that are one call from begin to end. What a crash has left open of them
# nobody will ever go on with.
OWN_PREFIX = "headrace-"


# The order of the transaction's fields is on disk.
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Transaction] = msgspec.msgpack.Decoder(Transaction)


class _Entry:
    """What is known of one transactional id."""

    __slots__ = ("end", "ending", "transaction")

    def __init__(self, transaction: Transaction, end: int) -> None:
        self.transaction = transaction
        # The end of the log behind it: what has to be synced before it counts.
        self.end = end
        self.ending: Ending | None = None


class Transactions:
    def __init__(
        self, topics: Topics, cursors: Cursors, new_producer_id: Callable[[int], int]
    ) -> None:
        self._topics = topics
        self._cursors = cursors
        self._new_producer_id = new_producer_id
        self._entries: dict[str, _Entry] = {}
        self._endings: list[Ending] = []
        self.unused_ms = UNUSED_MS
        # Another node leads the topic, and is the coordinator.
        self._is_away = False
        # Told of every deadline of an open transaction, for who sets a timer.
        self.on_deadline: Callable[[int], None] | None = None
        # When each that is open has to end, by the clock as it is set now.
        self._deadlines: dict[str, int] = {}
        # How many were ended since the start, by what became of them.
        self.ended = {"committed": 0, "aborted": 0}
        # Names of our own whose last transaction is over, the longest unused first.
        self.idle: deque[str] = deque()

    # The table.

    def load(self) -> None:
        partition = self._partition()
        if partition is None:
            return
        log = partition.log
        for data, position in iterate_batches(log, log.start_offset, log.end_offset):
            header = read_header(data, position)
            for record in read_records(data[position : position + header.size_bytes], header):
                name = (record.key or b"").decode()
                if record.value is None:
                    self._entries.pop(name, None)
                else:
                    self._entries[name] = _Entry(decode_transaction(record.value), 0)
        for name, entry in self._entries.items():
            self._follow(name, entry)

    def _partition(self) -> Partition | None:
        topic = self._topics.catalog.topics.get(TRANSACTION_TOPIC)
        return None if topic is None else self._topics.partitions(topic)[0]

    def ensure_topic(self, now_ms: int) -> Partition:
        """Where transactions are written, made if it is not there."""
        partition = self._partition()
        if partition is None:
            settings = TopicSettings(cleanup="compact", retention_ms=None, segment_bytes=1 << 20)
            topic = self._topics.create(TRANSACTION_TOPIC, 1, settings, now_ms, internal=True)
            partition = self._topics.partitions(topic)[0]
        return partition

    def _write(self, changed: Sequence[tuple[str, Transaction | None]], now_ms: int) -> int:
        """As one batch; the end of the log behind it."""
        partition = self.ensure_topic(now_ms)
        batch = build_batch(
            [
                NewRecord(
                    name.encode(),
                    None if transaction is None else _encoder.encode(transaction),
                    (),
                    now_ms,
                )
                for name, transaction in changed
            ]
        )
        return partition.append(batch, read_header(batch), now_ms).next_offset

    def _change(
        self, name: str, changed: Transaction | TransactionError, now_ms: int
    ) -> Transaction | TransactionError:
        """Write down what is new, and begin what follows from it."""
        entry = self._entries.get(name)
        if isinstance(changed, TransactionError):
            return changed
        if entry is None:
            entry = self._entries[name] = _Entry(changed, self._write([(name, changed)], now_ms))
        elif changed is not entry.transaction:
            entry.end = self._write([(name, changed)], now_ms)
            entry.transaction = changed
        self._follow(name, entry)
        return changed

    def _follow(self, name: str, entry: _Entry) -> None:
        transaction = entry.transaction
        if transaction.deadline_ms is not None:
            if name not in self._deadlines:
                self._deadlines[name] = transaction.deadline_ms
                if self.on_deadline is not None:
                    self.on_deadline(transaction.deadline_ms)
            return
        self._deadlines.pop(name, None)
        if transaction.is_ending and entry.ending is None:
            entry.ending = Ending(name, transaction)
            self._endings.append(entry.ending)

    # Requests.

    def init(
        self, name: str, timeout_ms: int, claim: Claim | None, now_ms: int
    ) -> Transaction | TransactionError:
        """A producer that may begin: Empty. PrepareAbort, or CONCURRENT_TRANSACTIONS,
        when it has to ask again after `ending_of` is done."""
        if not 0 < len(name) <= limits.TRANSACTIONAL_ID_CHARACTERS_MAX:
            return TransactionError.INVALID_REQUEST
        if self._is_away:
            return TransactionError.NOT_COORDINATOR
        entry = self._entries.get(name)
        if entry is None:
            if len(self._entries) >= limits.TRANSACTIONAL_IDS_MAX:
                return TransactionError.POLICY_VIOLATION
            first = first_transaction(self._new_producer_id(now_ms), timeout_ms, now_ms)
            return self._change(name, first, now_ms)
        changed = entry.transaction.on_init(
            timeout_ms, claim, now_ms, lambda: self._new_producer_id(now_ms)
        )
        return self._change(name, changed, now_ms)

    def add(
        self, name: str, producer_id: int, epoch: int, places: Set[Place], now_ms: int
    ) -> Transaction | TransactionError:
        entry = self._entries.get(name)
        if entry is None or self._is_away:
            return self._unknown()
        changed = entry.transaction.on_add(producer_id, epoch, places, now_ms)
        return self._change(name, changed, now_ms)

    def end(
        self, name: str, producer_id: int, epoch: int, *, commit: bool, bumps: bool, now_ms: int
    ) -> Transaction | TransactionError:
        """What it is now, which counts when `ending_of` is done, if there is one."""
        entry = self._entries.get(name)
        if entry is None or self._is_away:
            return self._unknown()
        changed = entry.transaction.on_end(
            producer_id,
            epoch,
            commit=commit,
            bumps=bumps,
            now_ms=now_ms,
            new_producer_id=lambda: self._new_producer_id(now_ms),
        )
        return self._change(name, changed, now_ms)

    def abort(self, name: str, now_ms: int) -> Transaction | TransactionError:
        """An operator ends what is open; its producer is fenced."""
        entry = self._entries.get(name)
        if entry is None or self._is_away:
            return self._unknown()
        return self._change(name, entry.transaction.on_abort(now_ms), now_ms)

    def abort_hanging(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        now_ms: int,
    ) -> Appended:
        """An operator ends what is open in a partition of which no coordinator knows. Its
        marker names no coordinator later than this one, which would be fenced by it.
        FencedProducer, FencedCoordinator as `Partition.end_transaction`."""
        decisions = self._partition()
        latest = 0 if decisions is None else decisions.epoch
        ended = partition.end_transaction(
            producer_id,
            producer_epoch,
            commit=False,
            coordinator_epoch=min(coordinator_epoch, latest),
            now_ms=now_ms,
        )
        self._cursors.on_marker(partition, producer_id, False, ended.next_offset)
        return ended

    def check_write(
        self, name: str, producer_id: int, epoch: int, place: Place
    ) -> TransactionError:
        entry = self._entries.get(name)
        if entry is None or self._is_away:
            return self._unknown()
        return entry.transaction.check_write(producer_id, epoch, place)

    def _unknown(self) -> TransactionError:
        if self._is_away:
            return TransactionError.NOT_COORDINATOR
        return TransactionError.INVALID_PRODUCER_ID_MAPPING

    # Waiting.

    def ending_of(self, name: str) -> Ending | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.ending

    def depends(self, name: str) -> list[tuple[Partition, int]]:
        """What has to be safe before anybody hears of what this id is now."""
        entry, partition = self._entries.get(name), self._partition()
        if entry is None or partition is None or partition.high_watermark >= entry.end:
            return []
        return [(partition, entry.end)]

    # Ends.

    def advance(self, now_ms: int) -> set[Partition]:
        """Every end goes on as far as it can now; the partitions that were
        written to and wait to be synced."""
        dirty: set[Partition] = set()
        if not self._endings:
            return dirty
        written = [ending for ending in self._endings if self._go_on(ending, dirty, now_ms)]
        for start in range(0, len(written), COMPLETED_AT_ONCE):
            self._complete(written[start : start + COMPLETED_AT_ONCE], now_ms)
        self._endings = [ending for ending in self._endings if not ending.is_done]
        return dirty

    def pending(self) -> list[Ending]:
        return list(self._endings)

    def _go_on(self, ending: Ending, dirty: set[Partition], now_ms: int) -> bool:
        """Whether its marker is safe wherever it belongs."""
        entry = self._entries[ending.name]
        decisions = self._partition()
        assert decisions is not None
        if decisions.high_watermark < entry.end:
            return False
        ending.is_blocked = False
        ending.look_again()
        left = []
        for place in ending.left:
            if place[0] not in self._topics.catalog.topics_by_id:
                continue  # Its topic is gone, and with it what was written there.
            partition = self._topics.find(*place)
            try:
                if partition is None:
                    raise FencedLeader("another node leads it")
                self._write_marker(ending, partition, decisions.epoch, now_ms)
            except (HeadraceError, OSError):
                left.append(place)
                ending.is_blocked = True
            else:
                dirty.add(partition)
        ending.left = left
        return not left and all(written.is_safe for written in ending.written)

    def _write_marker(
        self, ending: Ending, partition: Partition, coordinator_epoch: int, now_ms: int
    ) -> None:
        transaction = ending.transaction
        commit = transaction.is_commit
        written = partition.end_transaction(
            transaction.producer_id,
            transaction.epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
        )
        end = written.next_offset
        self._cursors.on_marker(partition, transaction.producer_id, commit, end)
        ending.written.append(Written(partition, partition.reign, end, written.state_end))

    def _complete(self, endings: list[Ending], now_ms: int) -> None:
        """Several ends that came with one sync are written down together."""
        completed = [(ending.name, ending.transaction.on_written(now_ms)) for ending in endings]
        try:
            end = self._write(completed, now_ms)
        except (HeadraceError, OSError):
            for ending in endings:
                ending.is_blocked = True
            return
        for ending, (name, transaction) in zip(endings, completed, strict=True):
            entry = self._entries[name]
            entry.end = end
            entry.transaction = ending.transaction = transaction
            entry.ending = None
            ending.is_done = True
            self.ended["committed" if transaction.is_commit else "aborted"] += 1

    # Leadership.

    def on_resigned(self, partition: Partition) -> None:
        """Another node leads a partition from now on. If it is that of the table, that node
        ends what was decided: here nothing of it is known to last."""
        if partition is self._partition():
            for ending in self._endings:
                ending.is_lost = True
            self._endings = []
            self._deadlines = {}
            self.idle.clear()
            self._is_away = True

    def on_led_again(self, partition: Partition) -> None:
        if partition is self._partition():
            self._entries = {}
            self.load()
            self._is_away = False

    def resume(self, now_ms: int) -> None:
        """Finish, at open, what a crash left between decision and completion, and
        give up what was a call that nobody carries out any more."""
        for name in sorted(self._deadlines):
            # It may have begun while the clock was ahead: no longer than all its time.
            timeout_ms = self._entries[name].transaction.timeout_ms
            self._deadlines[name] = min(self._deadlines[name], now_ms + timeout_ms)
            if name.startswith(OWN_PREFIX):
                self._change(name, self._entries[name].transaction.on_abort(now_ms), now_ms)
        partition = self._partition()
        if partition is not None:
            partition.log.sync_now()
            partition.on_synced(now_ms)
        for _ in range(2):
            for partition in sorted(self.advance(now_ms), key=lambda each: each.path):
                partition.log.sync_now()
                if partition.state is not None:
                    partition.state.log.sync_now()
                partition.on_synced(now_ms)
        self._cursors.on_synced()

    # Time.

    def tick(self, now_ms: int) -> list[str]:
        """Decide against what has been open for too long; whose it was."""
        late = sorted(name for name, due_ms in self._deadlines.items() if due_ms <= now_ms)
        for name in late:
            self._change(name, self._entries[name].transaction.on_abort(now_ms), now_ms)
        return late

    def on_clock_set(self, by_ms: int) -> None:
        self._deadlines = {name: due_ms + by_ms for name, due_ms in self._deadlines.items()}

    def unfinished(self) -> list[Transaction]:
        """What is open, or decided and on its way."""
        return [self._entries[name].transaction for name in self.unfinished_names()]

    def unfinished_names(self) -> set[str]:
        return {*self._deadlines, *(ending.name for ending in self._endings)}

    def next_deadline_ms(self) -> int | None:
        return min(self._deadlines.values(), default=None)

    def forget_unused(self, now_ms: int) -> tuple[Partition, int] | None:
        """What has to be synced, if any were forgotten; the rest comes next time."""
        if self._is_away:
            return None
        unused = [
            name
            for name, entry in self._entries.items()
            if entry.transaction.is_unused(now_ms, self.unused_ms)
        ][:FORGOTTEN_AT_ONCE]
        end = None
        # That there is no room to forget them is no reason to fail.
        with contextlib.suppress(DiskFull):
            for start in range(0, len(unused), COMPLETED_AT_ONCE):
                names = unused[start : start + COMPLETED_AT_ONCE]
                end = self._write([(name, None) for name in names], now_ms)
                for name in names:
                    del self._entries[name]
        partition = self._partition()
        return None if end is None or partition is None else (partition, end)

    # Looking.

    def find(self, name: str) -> Transaction | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.transaction

    def items(self) -> Iterator[tuple[str, Transaction]]:
        for name, entry in self._entries.items():
            yield name, entry.transaction

    def producer_ids_end(self) -> int:
        """Behind every producer id that is written down here. Its reservation is
        another log's, and a loss of power may have taken that alone."""
        ids = (max(each.producer_id, each.next_producer_id) for _, each in self.items())
        return max(ids, default=-1) + 1

    def owners(self, producer_ids: Iterable[int]) -> dict[int, str]:
        """Transactional ids by their producer ids."""
        wanted = set(producer_ids)
        return {
            transaction.producer_id: name
            for name, transaction in self.items()
            if transaction.producer_id in wanted
        }


def decode_transaction(data: bytes) -> Transaction:
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptLog(
            f"a transaction cannot be read ({error}); it may come from a newer Headrace"
        ) from error
