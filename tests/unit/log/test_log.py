"""Appending, reading and shortening a log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import DiskFull, InvalidArgument, OffsetOutOfRange, ReadOnly
from headrace.core.settings import Cleanup, TopicSettings
from headrace.log import LogSettings
from headrace.record.batch import read_header, split_batches
from headrace.record.builder import build_batch
from headrace.record.record import NewRecord

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench


def test_batches_get_consecutive_offsets_and_the_epoch(bench: Bench) -> None:
    assert bench.append(b"a", b"b") == (0, 2)
    assert bench.append(b"c", epoch=7) == (2, 3)
    header = read_header(bench.log.read(2, 1))
    assert (header.base_offset, header.leader_epoch) == (2, 7)


def test_several_batches_are_written_with_one_call(bench: Bench) -> None:
    bench.append(b"a")
    writes = []
    bench.disk.on_operation = lambda count, name, path: writes.append((name, path))
    batch = build_batch([NewRecord(None, b"x"), NewRecord(None, b"y")])
    assert bench.log.append(batch + batch, 1, 1000) == (1, 5)
    assert writes == [("write", bench.name(0))]
    assert [header.base_offset for _, header in split_batches(bench.log.read(1, 1000))] == [1, 3]


def test_an_empty_log_reads_as_nothing(bench: Bench) -> None:
    assert bench.log.read(0, 100) == b""
    assert bench.log.begin_sync() is None
    assert bench.log.latest_timestamp() is None
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(1, 100)


def test_a_batch_larger_than_asked_for_is_read_whole(bench: Bench) -> None:
    bench.append(b"x" * 5000)
    bench.append(b"y")
    data = bench.log.read(0, 10)
    assert [header.count for _, header in split_batches(data)] == [1]
    assert len(data) > 5000


def test_a_read_ends_before_the_first_batch_at_or_above_the_end(bench: Bench) -> None:
    for value in (b"a", b"b", b"c"):
        bench.append(value, value)
    for end, last in ((6, 5), (5, 5), (4, 3), (3, 3), (1, 1)):
        *_, (_, header) = split_batches(bench.log.read(0, 1000, end))
        assert header.last_offset == last
    assert bench.log.read(4, 1000, 4) == b""


def test_a_read_inside_a_batch_returns_the_batch(bench: Bench) -> None:
    bench.append(b"a", b"b", b"c")
    assert read_header(bench.log.read(1, 1)).base_offset == 0


def test_sequential_reads_do_not_search_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        bench.append(b"%d" % number)
    searched: list[int] = []
    locate = bench.log.segment_list.locate

    def spy(offset: int) -> object:
        searched.append(offset)
        return locate(offset)

    monkeypatch.setattr(bench.log.segment_list, "locate", spy)
    for offset in range(5):
        assert read_header(bench.log.read(offset, 1)).base_offset == offset
    bench.append(b"more")
    assert read_header(bench.log.read(5, 1)).base_offset == 5
    assert searched == [0]


def test_a_full_segment_is_followed_by_a_new_one(bench: Bench) -> None:
    for _ in range(4):
        bench.append(b"x" * 400)
    assert bench.bases() == [0, 2]
    assert bench.disk.exists(bench.name(0, ".index")) or bench.disk.exists(
        bench.name(0, ".timeindex")
    )
    assert len(bench.values()) == 4


def test_an_old_segment_is_followed_by_a_new_one(bench: Bench) -> None:
    bench.log.settings = replace(bench.settings, segment_ms=100)
    bench.append(b"a", now_ms=1000)
    bench.append(b"b", now_ms=1099)
    bench.append(b"c", now_ms=1100)
    assert bench.bases() == [0, 2]


def test_a_reopened_segment_is_as_old_as_its_first_record(bench: Bench) -> None:
    bench.settings = replace(bench.settings, segment_ms=100)
    bench.append(b"a", timestamp_ms=950)
    bench.reopen()
    bench.append(b"b", now_ms=1040)
    bench.append(b"c", now_ms=1050)
    assert bench.bases() == [0, 2]


def test_rolling_an_empty_segment_does_nothing(bench: Bench) -> None:
    bench.log.roll(1000)
    bench.append(b"a")
    bench.log.roll(1000)
    bench.log.roll(1000)
    assert bench.bases() == [0, 1]


def test_a_failed_append_changes_nothing(bench: Bench) -> None:
    bench.append(b"a")
    bench.disk.fail_writes_after(100)
    with pytest.raises(DiskFull):
        bench.append(b"x" * 300, epoch=5)
    assert (bench.log.end_offset, bench.log.epoch_end(9)) == (1, (1, 1))
    bench.disk.fail_writes_after(None)
    assert bench.append(b"b", epoch=2) == (1, 2)
    assert bench.values() == [b"a", b"b"]
    bench.reopen()
    assert bench.values() == [b"a", b"b"]


def test_no_batch_of_a_failed_append_outlives_it(bench: Bench) -> None:
    batch = build_batch([NewRecord(None, b"x")])
    bench.append(b"a")
    # Two whole batches fit, the third does not.
    bench.disk.fail_writes_after(2 * len(batch) + 40)
    with pytest.raises(DiskFull):
        bench.log.append(batch * 3, 1, 1000)
    bench.disk.fail_writes_after(None)
    bench.open()
    assert bench.values() == [b"a"]
    # As long as the first of the three, so that the second would fit behind it.
    bench.append(b"b")
    bench.open()
    assert bench.values() == [b"a", b"b"]


def test_the_end_is_cut_again_when_it_could_not_be_at_once(bench: Bench) -> None:
    batch = build_batch([NewRecord(None, b"x")])
    bench.append(b"a")
    bench.disk.fail_writes_after(2 * len(batch) + 40)

    def refuse(count: int, name: str, path: str) -> None:
        if name == "truncate":
            raise OSError(5, "input/output error")

    bench.disk.on_operation = refuse
    with pytest.raises(DiskFull):
        bench.log.append(batch * 3, 1, 1000)
    bench.disk.on_operation = None
    bench.disk.fail_writes_after(None)
    bench.append(b"b")
    bench.open()
    assert bench.values() == [b"a", b"b"]


def test_a_follower_keeps_offsets_epochs_and_gaps(bench: Bench) -> None:
    bench.log.append_as_is(
        build_batch([NewRecord(None, b"a")], base_offset=0, leader_epoch=1)
        + build_batch([NewRecord(None, b"b")], base_offset=5, leader_epoch=3)
    )
    assert [record.offset for record in bench.records()] == [0, 5]
    assert bench.log.end_offset == 6
    assert read_header(bench.log.read(2, 1)).base_offset == 5
    assert (bench.log.epoch_end(1), bench.log.epoch_end(3)) == ((1, 5), (3, 6))
    bench.reopen()
    assert (bench.log.epoch_end(1), bench.log.epoch_end(3)) == ((1, 5), (3, 6))


def test_a_follower_refuses_what_does_not_continue_its_log(bench: Bench) -> None:
    bench.append(b"a", b"b", epoch=4)
    for offset, epoch in ((1, 4), (2, 3)):
        batch = build_batch([NewRecord(None, b"x")], base_offset=offset, leader_epoch=epoch)
        with pytest.raises(InvalidArgument, match="does not continue"):
            bench.log.append_as_is(batch)
    with pytest.raises(InvalidArgument):
        bench.log.append_as_is(b"not a batch")
    assert bench.log.end_offset == 2


def test_truncation_drops_whole_batches_segments_and_epochs(bench: Bench) -> None:
    for epoch in (1, 2, 3):
        bench.append(b"x" * 300, b"y" * 300, epoch=epoch)
        bench.log.roll(1000)
    bench.sync()
    bench.log.truncate_to(3)
    assert bench.log.end_offset == bench.log.synced_end == 2
    assert bench.bases() == [0, 2]
    assert bench.log.epoch_end(9) == (1, 2)
    assert bench.append(b"z", epoch=4) == (2, 3)
    bench.reopen()
    assert bench.values() == [b"x" * 300, b"y" * 300, b"z"]
    assert bench.log.epoch_end(1) == (1, 2)


def test_truncation_below_the_start_is_refused(bench: Bench) -> None:
    bench.append(b"a", b"b", b"c")
    bench.log.delete_before(2)
    with pytest.raises(OffsetOutOfRange):
        bench.log.truncate_to(1)
    bench.log.truncate_to(2)
    assert (bench.log.start_offset, bench.log.end_offset) == (2, 2)
    assert bench.append(b"d") == (2, 3)
    assert bench.values() == [b"d"]


def test_a_log_continues_elsewhere_after_a_reset(bench: Bench) -> None:
    bench.append(b"a", b"b")
    bench.sync()
    for offset in (50, 10):
        bench.log.reset_to(offset)
        assert (bench.log.start_offset, bench.log.end_offset) == (offset, offset)
        assert bench.append(b"c") == (offset, offset + 1)
        bench.sync()
        bench.reopen()
        assert [record.offset for record in bench.records()] == [offset]


def test_deletion_moves_the_start_for_good(bench: Bench) -> None:
    for _ in range(3):
        bench.append(b"x" * 300, b"y" * 300)
        bench.log.roll(1000)
    bench.log.delete_before(3)
    assert (bench.log.start_offset, bench.bases()) == (3, [2, 4, 6])
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(2, 100)
    bench.reopen()
    assert (bench.log.start_offset, bench.bases()[0]) == (3, 2)
    assert bench.values() == [b"y" * 300, b"x" * 300, b"y" * 300]


def test_deleting_everything_leaves_an_empty_log_that_goes_on(bench: Bench) -> None:
    bench.append(b"a", b"b")
    bench.log.delete_before(2)
    assert bench.log.size_bytes == 0
    bench.reopen()
    assert (bench.log.start_offset, bench.log.end_offset) == (2, 2)
    assert bench.append(b"c") == (2, 3)
    with pytest.raises(OffsetOutOfRange):
        bench.log.delete_before(4)


def test_a_read_only_log_sees_all_and_changes_nothing(bench: Bench) -> None:
    bench.append(b"a")
    bench.sync()
    bench.append(b"b")
    operations = bench.disk.operations
    reader = bench.open(read_only=True)
    assert bench.values() == [b"a", b"b"]
    assert reader.offset_for_timestamp(0) == (0, 1000)
    for call in (
        lambda: bench.append(b"c"),
        lambda: reader.truncate_to(0),
        lambda: reader.delete_before(1),
        lambda: reader.expire(0, 0),
        lambda: reader.compact(0, 0),
    ):
        with pytest.raises(ReadOnly):
            call()
    reader.close()
    assert bench.disk.operations == operations


def test_few_sealed_segments_stay_open(bench: Bench) -> None:
    for _ in range(20):
        bench.append(b"x")
        bench.log.roll(1000)
    bench.sync()
    assert len(bench.values()) == 20
    opened = [segment for segment in bench.log.segment_list if segment.take_file() is not None]
    assert len(opened) <= 5


def test_settings_come_from_the_topic() -> None:
    topic = TopicSettings(segment_bytes=5000, cleanup="compact", retention_ms=None)
    settings = LogSettings.of(topic)
    assert (settings.segment_bytes, settings.compact, settings.retention_ms) == (5000, True, None)


@pytest.mark.parametrize(
    ("cleanup", "lag_ms", "segment_ms"),
    [
        ("compact", 5_000, 5_000),
        ("compact,delete", 5_000, 5_000),
        ("compact", 90_000, 60_000),
        ("compact", None, 60_000),
        # Of what is not compacted the lag says nothing.
        ("delete", 5_000, 60_000),
    ],
)
def test_what_is_written_to_is_closed_in_time_to_be_compacted(
    cleanup: Cleanup, lag_ms: int | None, segment_ms: int
) -> None:
    topic = TopicSettings(segment_ms=60_000, cleanup=cleanup, compaction_lag_max_ms=lag_ms)
    assert LogSettings.of(topic).segment_ms == segment_ms


@pytest.mark.parametrize("epoch", [0, 1, 2, 3, 4, 5, 6])
def test_the_end_of_an_epoch_is_the_start_of_the_next_known_one(bench: Bench, epoch: int) -> None:
    bench.append(b"a", b"b", epoch=1)
    bench.append(b"c", epoch=3)
    bench.append(b"d", epoch=5)
    expected = {0: (-1, -1), 1: (1, 2), 2: (1, 2), 3: (3, 3), 4: (3, 3), 5: (5, 4), 6: (5, 4)}
    assert bench.log.epoch_end(epoch) == expected[epoch]
    bench.reopen()
    assert bench.log.epoch_end(epoch) == expected[epoch]


def test_space_is_reserved_ahead_without_growing_the_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.log.settings = replace(bench.settings, segment_bytes=8 << 20)
    bench.append(b"x")
    reserved: list[int] = []
    monkeypatch.setattr(bench.log.segment_list.active.file(), "reserve", reserved.append)
    for _ in range(6):
        bench.append(b"x" * 600_000)
    assert reserved[0] >= 1 << 20 and reserved == sorted(reserved)
    assert len(reserved) < 5 and reserved[-1] <= 8 << 20
