"""Batches of clients are held to the limits of messages, without being decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.twins import both

from headrace.core import limits
from headrace.record import NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES
from headrace.record.compression import Codec
from headrace.record.record_limits import (
    CORRUPT,
    KEYED,
    LIMITS,
    LONG_HEADERS,
    LONG_KEY,
    LONG_RECORD,
    MANY_HEADERS,
    NO_KEY,
    PART,
    WITHIN,
)
from headrace.record.varint import encode_varint as varint

Find = Callable[[bytes, int, int, int], tuple[int, int]]
Places = list[tuple[int, int]]
FindInPlain = Callable[[bytes, int, int], tuple[int, Places, Places]]
twins = pytest.mark.parametrize("find", both("headrace.record.record_limits.find_fault"))

PLAIN = NewRecord(b"key", b"value", (("name", b"content"), ("none", None)), 5)


def with_headers(count: int, size: int = 0) -> NewRecord:
    return NewRecord(None, b"v", (("", b"x" * size),) * count)


def block_of(*records: NewRecord) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


def block_beyond(record_bytes: int) -> bytes:
    """One record of so many bytes, which `build_batch` does not make."""
    for value_bytes in range(record_bytes - 20, record_bytes):
        value = varint(value_bytes) + bytes(value_bytes)
        body = b"\0\0\0" + varint(-1) + value + b"\0"
        if len(body) == record_bytes:
            return varint(record_bytes) + body
    raise AssertionError("no value makes it so long")


def fault_of(find: Find, block: bytes, count: int, rules: int) -> int:
    return find(block, count, rules, 0)[0]


@twins
@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (PLAIN, WITHIN),
        (NewRecord(None, None), WITHIN),
        (NewRecord(b"k" * limits.KEY_BYTES_MAX, b""), WITHIN),
        (NewRecord(b"k" * (limits.KEY_BYTES_MAX + 1), b""), LONG_KEY),
        (with_headers(limits.HEADERS_MAX), WITHIN),
        (with_headers(limits.HEADERS_MAX + 1), MANY_HEADERS),
        (with_headers(64, limits.HEADER_BYTES_MAX // 64), WITHIN),
        (with_headers(1, limits.HEADER_BYTES_MAX + 1), LONG_HEADERS),
    ],
)
def test_every_limit_holds_at_its_border(find: Find, record: NewRecord, fault: int) -> None:
    block = block_of(PLAIN, record, PLAIN)
    assert fault_of(find, block, 3, LIMITS) == fault
    # Where no queue reads the topic there are none.
    assert fault_of(find, block, 3, 0) == WITHIN


@twins
def test_a_record_that_is_too_long_is_found_whatever_makes_it_so(find: Find) -> None:
    """A compressed batch of a kilobyte can hold it. No letter could be written of it."""
    most = limits.RECORD_BYTES_MAX
    assert fault_of(find, block_beyond(most), 1, LIMITS) == WITHIN
    beyond = block_beyond(most + 1)
    assert fault_of(find, beyond, 1, LIMITS) == LONG_RECORD
    assert fault_of(find, beyond, 1, 0) == WITHIN
    # Its length alone says so.
    assert fault_of(find, beyond[:100], 1, LIMITS | PART) == LONG_RECORD


@twins
def test_records_that_do_not_fill_their_bytes_are_corrupt(find: Find) -> None:
    block = block_of(PLAIN, PLAIN)
    for rules in (0, LIMITS):
        assert fault_of(find, block, 2, rules) == WITHIN
        assert fault_of(find, block, 1, rules) == fault_of(find, block, 3, rules) == CORRUPT
        assert {fault_of(find, block[:end], 2, rules) for end in range(len(block))} == {CORRUPT}


@twins
def test_offsets_that_are_not_one_behind_the_other_are_corrupt(find: Find) -> None:
    block = bytearray(block_of(PLAIN, PLAIN, PLAIN))
    # Behind length, attributes and time.
    second = len(block) // 3 + 3
    assert block[second] == 2
    for delta in (0, 1, 4):
        block[second] = delta
        assert fault_of(find, bytes(block), 3, 0) == CORRUPT


@twins
def test_records_without_a_key_are_found_where_that_matters(find: Find) -> None:
    block = block_of(PLAIN, NewRecord(b"", None), NewRecord(None, b"v"))
    assert fault_of(find, block, 3, KEYED) == NO_KEY
    assert fault_of(find, block, 3, LIMITS) == WITHIN
    assert fault_of(find, block_of(PLAIN, NewRecord(b"", None)), 2, KEYED | LIMITS) == WITHIN


@pytest.mark.parametrize("find_in_plain", both("headrace.record.record_limits.find_fault_in_plain"))
def test_plain_batches_are_gone_over_and_compressed_ones_named(find_in_plain: FindInPlain) -> None:
    plain, packed = build_batch([PLAIN] * 3), build_batch([PLAIN], codec=Codec.ZSTD)
    run = plain + packed + plain + packed
    places = [(1, len(plain)), (3, 2 * len(plain) + len(packed))]
    assert find_in_plain(bytes(run), 0, 10_000) == (WITHIN, places, [])
    assert find_in_plain(b"", 0, 1) == (WITHIN, [], [])
    run[len(plain) + len(packed) - 1] ^= 0xFF
    for bytes_max in (0, 1, 20, len(plain) - HEADER_BYTES - 1):
        assert find_in_plain(bytes(run), 0, bytes_max) == (WITHIN, places, [])
    run[len(plain) + len(packed) + HEADER_BYTES] = 0x7E
    assert find_in_plain(bytes(run), 0, 10_000) == (CORRUPT, [], [])


def block_at(times: Sequence[int]) -> bytes:
    return block_of(*[NewRecord(None, b"v", (), each) for each in times])


@twins
def test_the_latest_time_is_found_wherever_it_stands(find: Find) -> None:
    for times in ([5, 9, 7], [9, 5, 7], [5, 7, 9], [5, -9, 9], [-5, 9, 9], [2**63 - 1, 9, 9]):
        assert find(block_at(times), 3, 0, times[0]) == (WITHIN, max(times))
    # None has any.
    assert find(block_at([-7, -1, -9]), 3, 0, -7) == (WITHIN, -1)
    assert find(block_at([0, 1]), 2, 0, 2**63 - 1) == (WITHIN, 2**63 - 1)
    # Of what is corrupt no time is known.
    assert find(block_at([5, 9]), 3, 0, 5) == (CORRUPT, -1)


@twins
def test_of_a_beginning_the_latest_time_is_that_of_what_is_there(find: Find) -> None:
    block = block_at([5, 9, 7])
    found = [find(block[:end], 3, PART, 5)[1] for end in range(len(block) + 1)]
    assert found == sorted(found)
    assert (found[0], found[3], found[-1]) == (-1, 5, 9)


@pytest.mark.parametrize("find_in_plain", both("headrace.record.record_limits.find_fault_in_plain"))
@pytest.mark.parametrize(("says", "bytes_max", "is_wrong"), [
    (9, 10_000, False), (8, 10_000, True), (10, 10_000, True), (-1, 10_000, True),
    (9, 20, False), (10, 20, False), (8, 20, True),
])  # fmt: skip
def test_batches_that_say_another_latest_time_are_named(
    find_in_plain: FindInPlain, says: int, bytes_max: int, is_wrong: bool
) -> None:
    batch = build_batch([NewRecord(None, b"v", (), each) for each in (5, 9, 7)])
    lying = bytearray(batch)
    lying[35:43] = says.to_bytes(8, "big", signed=True)
    wrong = [(len(batch), 9)] if is_wrong else []
    assert find_in_plain(bytes(batch + lying), 0, bytes_max) == (WITHIN, [], wrong)
