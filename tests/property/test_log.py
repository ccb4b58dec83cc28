"""The log against a plain list, through clean stops, losses of power and compaction."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.core.errors import DiskFull, OffsetOutOfRange
from headrace.log import Log, LogSettings, Problem, SyncTicket
from headrace.record.batch import split_batches
from headrace.record.builder import build_batch
from headrace.record.reader import read_records
from headrace.record.record import NewRecord
from headrace.testing.fault_disk import FaultDisk

# offset, key, value, timestamp
Row = tuple[int, bytes | None, bytes | None, int]

SETTINGS = LogSettings(
    segment_bytes=2000,
    segment_ms=10_000,
    index_interval_bytes=200,
    retention_ms=None,
    tombstone_ms=50,
)

records = st.lists(
    st.tuples(
        st.sampled_from([None, b"a", b"b", b"c"]),
        st.one_of(st.none(), st.integers(0, 700)),
        st.integers(-300, 300),
    ),
    min_size=1,
    max_size=4,
)


def sync(disk: FaultDisk, log: Log, ticket: SyncTicket | None) -> None:
    if ticket is not None:
        for file in ticket.files:
            file.sync()
        for folder in ticket.directories:
            disk.sync_directory(folder)
        log.on_synced(ticket)


def rows_of(log: Log, max_bytes: int = 1000) -> list[Row]:
    """All records, read the way a consumer reads."""
    found: list[Row] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, max_bytes)
        if not data:
            break
        for position, header in split_batches(data):
            offset = header.next_offset
            for record in read_records(memoryview(data)[position:], header):
                row = (record.offset, record.key, record.value, record.timestamp_ms)
                found.append(row)
    return [row for row in found if row[0] >= log.start_offset]


class LogMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now_ms = 1_000_000
        self.disk = FaultDisk()
        self.settings = SETTINGS
        self.log = Log.open(self.disk, "t/0", self.settings, self.now_ms)
        self.rows: list[Row] = []
        self.epoch = 0
        self.epochs: list[tuple[int, int]] = []
        self.ticket: SyncTicket | None = None

    def batches(self, groups: list[list[tuple[bytes | None, int | None, int]]]) -> bytearray:
        return bytearray().join(
            build_batch(
                [
                    NewRecord(
                        key,
                        None if size is None else bytes([size % 251]) * size,
                        timestamp_ms=self.now_ms + skew_ms,
                    )
                    for key, size, skew_ms in group
                ]
            )
            for group in groups
        )

    @rule(groups=st.lists(records, min_size=1, max_size=3), raise_epoch=st.booleans())
    def append(
        self, groups: list[list[tuple[bytes | None, int | None, int]]], raise_epoch: bool
    ) -> None:
        self.now_ms += 10
        self.epoch += raise_epoch
        first, following = self.log.append(self.batches(groups), self.epoch, self.now_ms)
        if not self.epochs or self.epochs[-1][0] < self.epoch:
            self.epochs.append((self.epoch, first))
        offset = first
        for group in groups:
            for key, size, skew_ms in group:
                value = None if size is None else bytes([size % 251]) * size
                self.rows.append((offset, key, value, self.now_ms + skew_ms))
                offset += 1
        assert following == offset == self.log.end_offset

    @rule(groups=st.lists(records, min_size=1, max_size=3), room=st.integers(0, 150))
    def append_to_a_full_disk(
        self, groups: list[list[tuple[bytes | None, int | None, int]]], room: int
    ) -> None:
        before = self.log.end_offset
        batches = self.batches(groups)
        self.disk.fail_writes_after(min(room, len(batches) - 1))
        with pytest.raises(DiskFull):
            self.log.append(batches, self.epoch + 1, self.now_ms)
        self.disk.fail_writes_after(None)
        assert self.log.end_offset == before

    @rule()
    def sync(self) -> None:
        sync(self.disk, self.log, self.log.begin_sync())
        assert self.log.synced_end == self.log.end_offset

    @precondition(lambda self: self.ticket is None)
    @rule()
    def begin_sync(self) -> None:
        self.ticket = self.log.begin_sync()

    @precondition(lambda self: self.ticket is not None)
    @rule()
    def finish_sync(self) -> None:
        sync(self.disk, self.log, self.ticket)
        self.ticket = None

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        span = self.log.end_offset - self.log.start_offset
        offset = self.log.start_offset + int(part * span)
        self.log.truncate_to(offset)
        assert self.log.end_offset <= offset
        self.rows = [row for row in self.rows if row[0] < self.log.end_offset]
        if self.log.end_offset < self.log.start_offset:
            raise AssertionError("the end is below the start")

    @rule(part=st.floats(0, 1))
    def delete_before(self, part: float) -> None:
        span = self.log.end_offset - self.log.start_offset
        self.log.delete_before(self.log.start_offset + int(part * span))
        self.rows = [row for row in self.rows if row[0] >= self.log.start_offset]

    @rule(part=st.floats(0, 1), retention_ms=st.integers(1, 400))
    def expire(self, part: float, retention_ms: int) -> None:
        span = self.log.end_offset - self.log.start_offset
        keep_from = self.log.start_offset + int(part * span)
        self.log.settings = replace(self.settings, retention_ms=retention_ms)
        infos = {info.base_offset: info for info in self.log.segments()}
        for base in self.log.expire(self.now_ms, keep_from):
            assert infos[base].next_offset <= keep_from
            assert infos[base].max_timestamp_ms + retention_ms < self.now_ms
        self.log.settings = self.settings
        self.rows = [row for row in self.rows if row[0] >= self.log.start_offset]

    @rule(keys_max=st.integers(1, 5))
    def compact(self, keys_max: int) -> None:
        self.now_ms += 30
        end = self.log.end_offset
        for _ in self.log.compact(self.now_ms, end, keys_max=keys_max):
            pass
        assert self.log.end_offset == end
        left = rows_of(self.log)
        kept = set(left)
        assert kept <= set(self.rows)
        latest = {row[1]: row for row in self.rows}
        for row in self.rows:
            if row not in kept:
                key, value = row[1], row[2]
                # Only superseded records and old tombstones may be missing.
                assert key is not None
                assert value is None or latest[key][0] > row[0]
        self.rows = left

    @rule()
    def reopen(self) -> None:
        synced_end, end = self.log.synced_end, self.log.end_offset
        self.log.close()
        self.ticket = None
        self.log = Log.open(self.disk, "t/0", self.settings, self.now_ms)
        assert self.log.end_offset == end
        assert synced_end <= self.log.synced_end == end

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        synced_end, start = self.log.synced_end, self.log.start_offset
        self.disk = self.disk.crash(Random(seed))
        self.ticket = None
        self.log = Log.open(self.disk, "t/0", self.settings, self.now_ms)
        assert self.log.end_offset >= synced_end
        assert self.log.synced_end == self.log.end_offset
        assert self.log.start_offset == start
        self.rows = [row for row in self.rows if row[0] < self.log.end_offset]

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        log = self.log
        assert rows_of(log) == self.rows
        assert log.start_offset <= log.synced_end or log.start_offset <= log.end_offset
        assert log.synced_end <= log.end_offset

    @invariant()
    def knows_where_each_epoch_ended(self) -> None:
        log = self.log
        self.epochs = [entry for entry in self.epochs if entry[1] < log.end_offset]
        ends = [start for _, start in self.epochs[1:]] + [log.end_offset]
        for (epoch, _), end in zip(self.epochs, ends, strict=False):
            if end > log.start_offset:
                assert log.epoch_end(epoch) == (epoch, end)

    @invariant()
    def every_offset_can_be_read(self) -> None:
        offsets = [row[0] for row in self.rows]
        for offset in offsets:
            data = self.log.read(offset, 1)
            ((_, header),) = split_batches(data)
            assert header.base_offset <= offset <= header.last_offset
        with pytest.raises(OffsetOutOfRange):
            self.log.read(self.log.end_offset + 1, 1)

    @invariant()
    def timestamps_are_found(self) -> None:
        for wanted in {row[3] for row in self.rows[::5]} | {0, self.now_ms + 1000}:
            expected = next(((row[0], row[3]) for row in self.rows if row[3] >= wanted), None)
            assert self.log.offset_for_timestamp(wanted) == expected

    @invariant()
    def verification_finds_nothing(self) -> None:
        found = [found for found in self.log.verify() if isinstance(found, Problem)]
        # Index files are hints: after a loss of power they may be anything.
        assert [problem for problem in found if problem.is_data] == []

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


LogMachine.TestCase.settings = settings(stateful_step_count=25)
TestLog = LogMachine.TestCase
