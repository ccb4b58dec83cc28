"""The indexes: written as Kafka does, believed only when they are true."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from headrace.core.errors import CorruptLog
from headrace.log import Problem
from headrace.log.index import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from tests.unit.log.conftest import Bench

BATCH_BYTES = 61 + 8


def fill(bench: Bench, count: int = 12) -> None:
    """One sealed segment of `count` batches, one per millisecond."""
    for number in range(count):
        bench.append(b"%d" % (number % 10), timestamp_ms=1000 + number)
    bench.log.roll(1000)
    bench.sync()


def content(bench: Bench, suffix: str) -> bytes:
    file = bench.disk.open(bench.name(0, suffix))
    return file.read(file.size(), 0)


def overwrite(bench: Bench, suffix: str, data: bytes) -> None:
    file = bench.disk.open(bench.name(0, suffix), create=True)
    file.truncate(0)
    file.write(data, 0)


def check_reads(bench: Bench, count: int = 12) -> None:
    for offset in range(count):
        assert bench.log.read(offset, 1)[:8] == struct.pack(">q", offset)
        assert bench.log.offset_for_timestamp(1000 + offset) == (offset, 1000 + offset)
    assert bench.log.offset_for_timestamp(1000 + count) is None
    assert bench.log.segments()[0].max_timestamp_ms == 999 + count


def test_index_entries_name_the_last_offset_and_the_position_of_a_batch(bench: Bench) -> None:
    fill(bench)
    entries = list(struct.iter_unpack(">II", content(bench, ".index")))
    # Two batches exceed the interval of 100 bytes, so every second has an entry.
    assert entries == [(offset, offset * BATCH_BYTES) for offset in range(2, 12, 2)]


def test_time_index_entries_name_the_largest_timestamp_so_far(bench: Bench) -> None:
    fill(bench)
    entries = list(struct.iter_unpack(">qI", content(bench, ".timeindex")))
    assert entries == [(1000 + offset, offset) for offset in (2, 4, 6, 8, 10, 11)]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: data[:-12] if len(data) % 12 == 0 else data[:-8],
        lambda data: data[: len(data) // 2 + 1],
        lambda data: bytes(len(data)),
        lambda data: data[::-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data + data[-12:],
        lambda data: data + struct.pack(">III", 50, 60, 70) * 2,
    ],
    ids=["missing", "short", "torn", "zeros", "reversed", "wrong", "repeated", "beyond"],
)
def test_a_damaged_index_is_rebuilt(bench: Bench, suffix: str, change: object) -> None:
    fill(bench)
    bench.log.close()
    assert callable(change)
    overwrite(bench, suffix, change(content(bench, suffix)))
    bench.open()
    check_reads(bench)
    found = [problem for problem in bench.log.verify() if isinstance(problem, Problem)]
    assert found == []


def test_an_entry_that_is_wrong_in_the_middle_is_met_and_rebuilt(bench: Bench) -> None:
    fill(bench)
    bench.log.close()
    data = bytearray(content(bench, ".index"))
    struct.pack_into(">I", data, 12, struct.unpack_from(">I", data, 12)[0] + 3)
    overwrite(bench, ".index", bytes(data))
    bench.open()
    check_reads(bench)


def test_a_time_index_without_its_end_still_knows_the_youngest_record(bench: Bench) -> None:
    fill(bench)
    bench.log.close()
    overwrite(bench, ".timeindex", content(bench, ".timeindex")[:12])
    bench.open()
    # The records are not yet 50 ms old; only the first entries would say so.
    assert bench.log.segments()[0].max_timestamp_ms == 1011


def test_a_time_index_that_lies_about_a_batch_is_rebuilt(bench: Bench) -> None:
    fill(bench)
    bench.log.close()
    # As if everything up to the last record were older than it is.
    overwrite(bench, ".timeindex", struct.pack(">qI", 1001, 11))
    bench.open()
    check_reads(bench)


def test_timestamps_out_of_order_are_found_exactly(bench: Bench) -> None:
    for timestamp_ms in (1000, 5000, 2000, 3000, 6000, 100):
        bench.append(b"x", timestamp_ms=timestamp_ms)
    bench.log.roll(1000)
    bench.append(b"x", timestamp_ms=4000)
    expected = {0: (0, 1000), 1001: (1, 5000), 5001: (4, 6000), 6001: None}
    for _ in range(2):
        for wanted, found in expected.items():
            assert bench.log.offset_for_timestamp(wanted) == found
        assert bench.log.latest_timestamp() == (4, 6000)
        bench.reopen()


def test_a_record_inside_a_batch_is_found_by_its_own_time(bench: Bench) -> None:
    from headrace.record.builder import build_batch
    from headrace.record.record import NewRecord

    records = [NewRecord(None, b"x", timestamp_ms=time) for time in (10, 30, 20, 40)]
    bench.log.append(build_batch(records), 1, 1000)
    assert bench.log.offset_for_timestamp(11) == (1, 30)
    assert bench.log.offset_for_timestamp(31) == (3, 40)
    bench.log.delete_before(2)
    assert bench.log.offset_for_timestamp(0) == (2, 20)


def test_the_active_index_is_saved_now_and_then(bench: Bench) -> None:
    bench.log.settings = type(bench.settings)(segment_bytes=1 << 30)
    for _ in range(5):
        bench.append(b"x" * 1_000_000)
        bench.sync()
    assert bench.disk.exists(bench.name(0, ".index"))
    # Killed, not closed: what is in the file is enough to go on with.
    bench.open()
    assert len(bench.values()) == 5


def test_a_bad_header_on_the_way_names_its_place(bench: Bench) -> None:
    fill(bench)
    bench.log.close()
    bench.damage(bench.name(0), 3 * BATCH_BYTES + 16)
    bench.open()
    with pytest.raises(CorruptLog, match=f"{bench.name(0)} at byte {3 * BATCH_BYTES}:"):
        bench.log.read(3, 1)


def test_indexes_survive_encoding() -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    for number in range(1, 300):
        offsets.append(number * 70_000, number * 5000)
        times.append(number * 10**10, number * 70_000)
    decoded, decoded_times = OffsetIndex.decode(offsets.encode()), TimeIndex.decode(times.encode())
    assert decoded is not None and decoded_times is not None
    assert (decoded.offsets, decoded.positions) == (offsets.offsets, offsets.positions)
    assert decoded_times.timestamps == times.timestamps
    assert offsets.encode(298) == struct.pack(">II", 299 * 70_000, 299 * 5000)
    assert (decoded.floor(69_999), decoded.floor(70_000), decoded.floor(2**32 - 1)) == (-1, 0, 298)
    assert (times.below(10**10), times.below(10**10 + 1)) == (None, 70_000)


def test_a_time_that_does_not_grow_adds_no_entry() -> None:
    times = TimeIndex()
    times.append(10, 1)
    times.append(10, 2)
    times.append(9, 3)
    times.append(11, 1)
    assert len(times) == 1
