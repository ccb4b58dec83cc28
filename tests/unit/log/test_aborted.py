"""The index of aborted transactions: complete for any range, and never believed blindly."""

from __future__ import annotations

import struct

import pytest
from tests.unit.log.conftest import Bench

from headrace.log import AbortedTransaction
from headrace.log.aborted import PartSummary
from headrace.record.builder import build_batch, build_control_batch
from headrace.record.control import ControlKind
from headrace.record.record import NewRecord


class Twin:
    """Writes transactions to a log, notes the aborted, and knows them by heart."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []

    def write(self, producer: int, size: int = 100) -> None:
        batch = build_batch(
            [NewRecord(None, bytes(size))],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        first, _ = self.bench.log.append(batch, 1, 1000)
        self.open.setdefault(producer, first)

    def end(self, producer: int, kind: ControlKind = ControlKind.ABORT) -> None:
        batch = build_control_batch(
            kind,
            base_offset=0,
            leader_epoch=0,
            timestamp_ms=1000,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        marker, end = self.bench.log.append(batch, 1, 1000)
        first = self.open.pop(producer)
        if kind is ControlKind.ABORT:
            stable = min(self.open.values(), default=end)
            aborted = AbortedTransaction(producer, first, marker, stable)
            self.aborted.append(aborted)
            self.bench.log.aborted.note(aborted, self.bench.log.segment_list.active.base_offset)


@pytest.fixture
def twin(bench: Bench) -> Twin:
    made = Twin(bench)
    for number in range(40):
        made.write(number % 3)
        made.write(3 + number % 2)
        if number % 4 == 3:
            made.end(number % 3)
        if number % 7 == 6:
            made.end(3 + number % 2, ControlKind.COMMIT)
    for producer in sorted(made.open):
        made.end(producer)
    assert len(bench.bases()) > 5
    assert len(made.aborted) > 10
    return made


def test_a_range_is_answered_with_all_that_touch_it(bench: Bench, twin: Twin) -> None:
    end = bench.log.end_offset
    for first in range(end):
        for last in range(first + 1, end + 1):
            found = bench.log.aborted.between(first, last)
            needed = [
                each
                for each in twin.aborted
                if each.first_offset < last and each.last_offset >= first
            ]
            assert found == needed


def test_a_file_holds_entries_of_34_bytes_in_the_order_of_markers(bench: Bench, twin: Twin) -> None:
    bench.log.aborted.save()
    found = []
    for base in bench.bases():
        name = bench.name(base, ".txnindex")
        if bench.disk.exists(name):
            file = bench.disk.open(name, read_only=True)
            content = file.read(file.size(), 0)
            file.close()
            for version, *fields in struct.iter_unpack(">hqqqq", content):
                assert version == 0
                found.append(AbortedTransaction(*fields))
    assert found == twin.aborted


def test_an_index_is_known_again_by_its_summary(bench: Bench, twin: Twin) -> None:
    bench.log.aborted.save()
    summary = bench.log.aborted.summary()
    log = bench.reopen()
    log.aborted.adopt(summary)
    assert log.aborted.between(0, log.end_offset) == twin.aborted
    assert log.aborted.summary() == summary


def test_a_file_that_does_not_match_the_summary_is_made_again(bench: Bench, twin: Twin) -> None:
    bench.log.aborted.save()
    summary = bench.log.aborted.summary()
    log = bench.reopen()
    wrong = [PartSummary(line.base_offset, line.entries, line.crc ^ 1) for line in summary]
    log.aborted.adopt(wrong)
    assert log.aborted.between(0, log.end_offset) == twin.aborted
    assert log.aborted.summary() == summary


def test_what_is_noted_on_top_of_a_file_that_was_made_again_is_there_once(
    bench: Bench, twin: Twin
) -> None:
    summary = bench.log.aborted.summary()
    log = bench.reopen()
    # Nothing was saved: every line is wrong.
    log.aborted.adopt(summary)
    twin.write(50)
    twin.end(50)
    assert log.aborted.between(0, log.end_offset) == twin.aborted


def test_cutting_the_log_takes_back_what_its_markers_said(bench: Bench, twin: Twin) -> None:
    bench.log.aborted.save()
    for end in range(bench.log.end_offset - 1, 0, -3):
        bench.log.truncate_to(end)
        left = [each for each in twin.aborted if each.last_offset < bench.log.end_offset]
        assert bench.log.aborted.between(0, end) == left
        bench.log.aborted.save()
        summary = bench.log.aborted.summary()
        log = bench.reopen()
        log.aborted.adopt(summary)
        assert log.aborted.between(0, end) == left


def test_deleting_old_segments_takes_their_entries_along(bench: Bench, twin: Twin) -> None:
    bench.log.aborted.save()
    start = bench.bases()[4]
    bench.log.delete_before(start)
    left = [each for each in twin.aborted if each.last_offset >= start]
    assert bench.log.aborted.between(0, bench.log.end_offset) == left
    names = [name for name in bench.disk.list(bench.path) if name.endswith(".txnindex")]
    assert min(names) >= f"{start:020d}"
    bench.log.reset_to(bench.log.end_offset)
    assert not bench.log.aborted
