"""A batch of kilobytes can hold millions of records and headers: it is read in parts,
and a record has no more headers than a message may have."""

from __future__ import annotations

import random
import tracemalloc
from itertools import chain

import pytest

from headrace.core import limits
from headrace.record import (
    BatchParts,
    Codec,
    NewRecord,
    Record,
    build_batch,
    build_sparse_batch,
    read_header,
    read_parts,
    read_raw_records,
    read_records,
    reader,
)

EMPTY_HEADER = ("", b"")


def test_a_record_has_at_most_as_many_headers_as_a_dead_letter() -> None:
    bomb = build_batch([NewRecord(None, b"v", (EMPTY_HEADER,) * 200_000)], codec=Codec.ZSTD)
    (record,) = read_records(bomb)
    assert record == Record(0, -1, None, b"v", (EMPTY_HEADER,) * limits.HEADERS_READ_MAX)


def test_a_record_has_at_most_as_many_bytes_of_headers_as_a_dead_letter() -> None:
    quarter = ("n", b"x" * (limits.HEADER_BYTES_READ_MAX // 4))
    (record,) = read_records(build_batch([NewRecord(None, b"v", (quarter,) * 8)]))
    assert record.headers == (quarter,) * 3


def test_headers_within_the_limits_are_all_there() -> None:
    headers = tuple((f"name-{number}", b"x" * 400) for number in range(limits.HEADERS_MAX))
    (record,) = read_records(build_batch([NewRecord(None, b"v", headers)]))
    assert record.headers == headers


@pytest.mark.parametrize("headers", [(), (EMPTY_HEADER,) * 100])
def test_parts_are_bounded_and_together_they_are_the_whole(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    batch = build_batch([NewRecord(b"k", b"v", headers)] * 2_000, codec=Codec.ZSTD)
    header = read_header(batch)
    parts = BatchParts(batch, header)
    found = []
    while not parts.is_over:
        found.append(parts.read(cost_max=50_000))
        assert 0 < parts.cost < 2_000_000
        assert parts.next_offset == found[-1][-1].offset + 1
    assert len(found) > 3
    assert list(chain.from_iterable(found)) == read_records(batch)
    assert list(chain.from_iterable(read_parts(batch, header))) == read_records(batch)


def test_parts_begin_where_they_are_asked_to() -> None:
    batch = build_batch([NewRecord(b"k", b"%d" % number) for number in range(1_000)])
    parts = BatchParts(batch, read_header(batch))
    assert parts.read(700) == read_records(batch)[700:]
    assert parts.is_over
    assert parts.next_offset == 1_000


def test_a_part_of_a_bomb_costs_no_more_than_a_part_of_another_batch() -> None:
    bomb = build_batch([NewRecord(None, b"v", (EMPTY_HEADER,) * 100)] * 5_000, codec=Codec.ZSTD)
    assert len(bomb) < 60_000
    tracemalloc.start()
    try:
        BatchParts(bomb, read_header(bomb)).read()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # It has half a million headers: decoded at once they take 50 MB.
    assert peak < 15 * 1024 * 1024


def test_what_is_copied_keeps_headers_beyond_the_limits() -> None:
    batch = build_batch([NewRecord(b"k", b"v", (EMPTY_HEADER,) * 1_000)] * 3)
    header = read_header(batch)
    copied = build_sparse_batch(read_raw_records(batch, header), header)
    assert copied == batch


@pytest.mark.parametrize("step", [1, 3])
def test_a_part_ends_where_it_is_asked_to(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    # Places are marked on the way, so that going back begins at one of them.
    monkeypatch.setattr(reader, "_MARKED_BYTES", 100)
    batch = build_batch([NewRecord(b"k", b"%d" % number) for number in range(1_000)])
    header = read_header(batch)
    kept = [each for each in read_raw_records(batch, header) if not each.offset % step]
    batch = build_sparse_batch(kept, header)
    header = read_header(batch)
    parts, whole = BatchParts(batch, header), read_records(batch)
    randomly = random.Random(step)
    for _ in range(500):
        start = randomly.randrange(1_000)
        stop = randomly.randrange(start + 1, 1_001)
        if parts.next_offset > start:
            parts.rewind()
        assert parts.read(start, stop=stop) == [
            each for each in whole if start <= each.offset < stop
        ]
