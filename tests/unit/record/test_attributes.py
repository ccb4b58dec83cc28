"""Queue attributes: strict in writing, lenient in reading, fast in finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.errors import CorruptBatch, InvalidArgument
from headrace.record import (
    DEFAULT_ATTRIBUTES,
    HEADER_BYTES,
    LANES,
    Attributes,
    Codec,
    ControlKind,
    NewRecord,
    attribute_headers,
    build_batch,
    build_control_batch,
    build_values_batch,
    may_have_attributes,
    parse_priority,
    read_attributes,
    read_header,
    scan_attributes,
    stamp_append_time,
)

NOW_MS = 1_700_000_000_000


def test_a_record_without_headers_has_the_default_attributes() -> None:
    assert read_attributes((), NOW_MS) == DEFAULT_ATTRIBUTES == Attributes()
    assert DEFAULT_ATTRIBUTES.lane == parse_priority("normal")


def test_every_attribute_that_is_written_is_read() -> None:
    headers = attribute_headers(
        priority="critical",
        delay_ms=5_000,
        ttl_ms=60_000,
        max_attempts=7,
        visibility_ms=90_000,
        dedup_id=b"\x00\xff",
        redrive_group="größe",
    )
    assert read_attributes(headers, NOW_MS) == Attributes(
        lane=0,
        deliver_at_ms=NOW_MS + 5_000,
        expires_at_ms=NOW_MS + 60_000,
        ttl_ms=60_000,
        max_attempts=7,
        visibility_ms=90_000,
        redrive_group="größe",
        dedup_id=b"\x00\xff",
        delay_ms=5_000,
    )


def test_what_is_not_given_writes_no_header() -> None:
    assert attribute_headers() == ()
    assert attribute_headers(delay_ms=1) == (("headrace-delay-ms", b"1"),)
    assert attribute_headers(priority="HIGH") == (("headrace-priority", b"1"),)


@pytest.mark.parametrize(("lane", "name"), list(enumerate(LANES)))
def test_a_priority_is_a_name_or_a_number(lane: int, name: str) -> None:
    assert parse_priority(name) == parse_priority(name.upper()) == lane
    assert parse_priority(lane) == parse_priority(str(lane)) == lane
    for value in (name, name.title(), str(lane)):
        assert read_attributes((("headrace-priority", value.encode()),), 0).lane == lane


@pytest.mark.parametrize("value", ["urgent", "", "5", "-1", 5, -1, True, 1.0, None, "\ud800"])
def test_a_priority_that_does_not_exist_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        parse_priority(value)


def test_a_moment_wins_over_a_delay() -> None:
    for moment in (123, 0):
        headers = (("headrace-deliver-at", b"%d" % moment), ("headrace-delay-ms", b"5"))
        assert read_attributes(headers, NOW_MS).deliver_at_ms == moment
        assert read_attributes(headers[::-1], NOW_MS).deliver_at_ms == moment


def test_a_moment_and_a_delay_together_are_not_written() -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        attribute_headers(deliver_at_ms=NOW_MS, delay_ms=5)


def test_a_record_without_timestamp_has_neither_delay_nor_expiry() -> None:
    headers = attribute_headers(priority=0, delay_ms=5, ttl_ms=5)
    assert read_attributes(headers, -1) == Attributes(lane=0)


def test_times_beyond_all_bounds_stop_at_the_largest() -> None:
    headers = attribute_headers(delay_ms=limits.TIMESTAMP_MS_MAX, ttl_ms=limits.TIMESTAMP_MS_MAX)
    attributes = read_attributes(headers, NOW_MS)
    assert attributes.deliver_at_ms == attributes.expires_at_ms == limits.TIMESTAMP_MS_MAX


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headrace-priority", b"urgent"),
        ("headrace-priority", b"05"),
        ("headrace-priority", b""),
        ("headrace-deliver-at", b"tomorrow"),
        ("headrace-deliver-at", b"-5"),
        ("headrace-delay-ms", b" 5"),
        ("headrace-delay-ms", b"5_000"),
        ("headrace-delay-ms", "٣".encode()),
        ("headrace-delay-ms", b"9" * 5_000),
        ("headrace-delay-ms", b"9" * 19),
        ("headrace-ttl-ms", b"0"),
        ("headrace-ttl-ms", b"1.5"),
        ("headrace-max-attempts", b"0"),
        ("headrace-max-attempts", b"256"),
        ("headrace-visibility-ms", b"43200001"),
        ("headrace-dedup-id", b""),
        ("headrace-dedup-id", bytes(129)),
        ("headrace-redrive-group", b"\xff"),
        ("headrace-redrive-group", b""),
        ("headrace-redrive-group", b"g" * 250),
        ("headrace-unknown", b"1"),
        ("Headrace-Priority", b"0"),
    ],
)
def test_what_makes_no_sense_counts_as_absent(name: str, value: bytes) -> None:
    assert read_attributes(((name, value),), NOW_MS) == DEFAULT_ATTRIBUTES
    assert read_attributes(((name, None),), NOW_MS) == DEFAULT_ATTRIBUTES


def test_the_last_header_that_makes_sense_counts() -> None:
    headers = tuple(("headrace-priority", value) for value in (b"low", b"high", b"nonsense", None))
    assert read_attributes(headers, NOW_MS).lane == parse_priority("high")


@pytest.mark.parametrize(
    "wrong",
    [
        {"deliver_at_ms": -1},
        {"deliver_at_ms": limits.TIMESTAMP_MS_MAX + 1},
        {"delay_ms": -1},
        {"delay_ms": 1.5},
        {"delay_ms": "5"},
        {"delay_ms": True},
        {"ttl_ms": 0},
        {"max_attempts": 0},
        {"max_attempts": limits.ATTEMPTS_MAX + 1},
        {"visibility_ms": 0},
        {"visibility_ms": limits.VISIBILITY_MS_MAX + 1},
        {"dedup_id": b""},
        {"dedup_id": bytes(limits.DEDUP_ID_BYTES_MAX + 1)},
        {"dedup_id": "text"},
        {"redrive_group": ""},
        {"redrive_group": "g" * (limits.NAME_CHARACTERS_MAX + 1)},
        {"redrive_group": b"bytes"},
        {"redrive_group": "\ud800"},
        {"priority": "urgent"},
    ],
)
def test_a_value_out_of_its_range_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        attribute_headers(**wrong)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_scan_finds_the_records_that_differ(codec: Codec, kind: Callable[[bytes], bytes]) -> None:
    records = [NewRecord(b"k", b"v" * 100, (("other", b"x"),), NOW_MS + n) for n in range(300)]
    records[5] = NewRecord(None, None, attribute_headers(priority=0), NOW_MS)
    records[200] = NewRecord(b"k" * 70, b"v" * 9_000, attribute_headers(delay_ms=10), NOW_MS + 200)
    records[299] = NewRecord(b"", b"", (("a", None), *attribute_headers(delay_ms=10)), NOW_MS - 9)
    batch = kind(bytes(build_batch(records, base_offset=1_000, codec=codec)))
    assert may_have_attributes(batch, read_header(batch))
    assert scan_attributes(batch) == [
        (1_005, Attributes(lane=0)),
        (1_200, Attributes(deliver_at_ms=NOW_MS + 210, delay_ms=10)),
        (1_299, Attributes(deliver_at_ms=NOW_MS + 1, delay_ms=10)),
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_without_the_prefix_is_not_opened(kind: Callable[[bytes], bytes]) -> None:
    batch = build_values_batch([b"value", b"headrace"], NOW_MS)
    # Damage that opening would notice.
    batch[HEADER_BYTES] = 0x7F
    buffer = kind(bytes(batch))
    assert not may_have_attributes(buffer, read_header(buffer))
    assert scan_attributes(buffer) == []


def test_the_prefix_in_a_value_or_key_means_nothing() -> None:
    batch = build_batch(
        [
            NewRecord(None, b"headrace-priority: 0", (), NOW_MS),
            NewRecord(b"headrace-priority", b"0", (("note", b"headrace-ttl-ms"),), NOW_MS),
            NewRecord(None, b"headrace-", attribute_headers(priority="low"), NOW_MS),
        ]
    )
    assert may_have_attributes(batch, read_header(batch))
    assert scan_attributes(batch) == [(2, Attributes(lane=3))]


def test_headers_that_say_the_default_are_not_listed() -> None:
    batch = build_batch([NewRecord(None, b"", attribute_headers(priority="normal"), NOW_MS)])
    assert scan_attributes(batch) == []


def test_a_scan_counts_from_the_append_time() -> None:
    batch = build_batch([NewRecord(None, b"", attribute_headers(delay_ms=10), NOW_MS)])
    stamp_append_time(batch, NOW_MS + 1_000)
    assert scan_attributes(batch) == [(0, Attributes(deliver_at_ms=NOW_MS + 1_010, delay_ms=10))]


def test_a_control_batch_has_no_attributes() -> None:
    batch = build_control_batch(
        ControlKind.COMMIT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=0,
        producer_id=int.from_bytes(b"headrac", "big"),
        producer_epoch=0,
        coordinator_epoch=0,
    )
    assert not may_have_attributes(batch, read_header(batch))
    assert scan_attributes(batch) == []


def test_another_batch_behind_this_one_is_not_searched() -> None:
    plain = build_values_batch([b"x"], NOW_MS)
    other = build_batch([NewRecord(None, b"", attribute_headers(priority=0), NOW_MS)])
    for buffer in (plain + other, memoryview(plain + other)):
        assert not may_have_attributes(buffer, read_header(plain))
        assert scan_attributes(buffer) == []


def test_a_scan_refuses_what_it_stumbles_over() -> None:
    batch = build_batch([NewRecord(None, b"v", attribute_headers(priority=0), NOW_MS)])
    # The value's length now reaches beyond the record.
    batch[HEADER_BYTES + 5] = 0x7E
    with pytest.raises(CorruptBatch):
        scan_attributes(batch)


def test_a_scan_refuses_bytes_behind_the_headers_of_a_record() -> None:
    batch = build_batch([NewRecord(None, b"v", attribute_headers(priority=0), NOW_MS)])
    # The record, and the batch, now end one byte later than the headers do.
    batch[HEADER_BYTES] += 2
    batch[11] += 1
    batch += b"\0"
    with pytest.raises(CorruptBatch, match="ends at byte"):
        scan_attributes(batch)


def test_a_scan_refuses_offsets_that_are_not_the_batchs_own() -> None:
    headers = attribute_headers(priority=0)
    batch = build_batch([NewRecord(None, b"v", headers, NOW_MS)] * 2, base_offset=7)
    first_delta = HEADER_BYTES + 3
    second_delta = first_delta + (len(batch) - HEADER_BYTES) // 2
    assert (batch[first_delta], batch[second_delta]) == (0, 2)
    for delta in (0, 4):
        batch[second_delta] = delta
        with pytest.raises(CorruptBatch, match="out of order"):
            scan_attributes(batch)
