"""Batches of clients, before they are appended: held to the limits of messages, and what
queues have to know of them is what a scan of the appended batch finds."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.errors import CorruptBatch, RecordTooLarge
from headrace.engine import contents, foreign
from headrace.engine.contents import (
    SOUND,
    Checks,
    Contents,
    Heavy,
    ImpossibleId,
    Light,
    Wanted,
    look_into,
)
from headrace.engine.scan import scan_batch
from headrace.engine.unreadable import Unreadable
from headrace.record import (
    Codec,
    NewRecord,
    attribute_headers,
    build_batch,
    check_batch,
    read_header,
    stamp_append_time,
)
from headrace.record.batch import HEADER_BYTES, LENGTH_OVERHEAD, seal_batch
from headrace.record.compression import compress
from headrace.record.reader import read_block
from headrace.record.record_limits import UnsoundRecords

QUEUE = Wanted(True, True, False, False)
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
PLAIN = NewRecord(b"key", b"value", (("name", b"content"), ("none", None)), 5)
HIGH, LOW = (
    NewRecord(None, b"v", attribute_headers(priority=priority)) for priority in ("high", "low")
)


class Scanner:
    looks_for = (True, False)


SCANNER: Any = Scanner()


def look(batch: bytes | bytearray, wanted: Wanted = QUEUE) -> Contents:
    [found] = Heavy(batch, wanted).look()
    return found


def look_lightly(*batches: bytes | bytearray) -> list[bool]:
    """Whether each was looked into, in one call."""
    light = Light()
    found = [look_into(batch, SCANNER, None, light) for batch in batches]
    return [not isinstance(each, Heavy) for each in found]


@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSED])
def test_records_beyond_the_limits_are_refused_whatever_the_codec(codec: Codec) -> None:
    look(build_batch([PLAIN] * 3, codec=codec))
    large = NewRecord(None, b"v", (("", b""),) * 200_000)
    with pytest.raises(RecordTooLarge, match="128 headers"):
        look(build_batch([PLAIN, large], codec=codec))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_holds_more_than_is_opened_is_refused(codec: Codec) -> None:
    large = [NewRecord(None, bytes(limits.RECORD_BYTES_MAX - 100))] * 3
    with pytest.raises(RecordTooLarge, match="send smaller batches"):
        look(build_batch(large, codec=codec))


def test_nonsense_behind_a_good_checksum_is_corrupt() -> None:
    batch = build_batch([PLAIN])
    batch[HEADER_BYTES] = 0x7E
    with pytest.raises(CorruptBatch):
        look(batch)


@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_contents_are_what_a_scan_of_the_appended_batch_finds(
    codec: Codec, attributes: bool, keys: bool
) -> None:
    records = [PLAIN, HIGH, HIGH, LOW, PLAIN, NewRecord(b"k", b"", attribute_headers(ttl_ms=9), 7)]
    batch = build_batch(
        records, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )
    # A client may write any offset.
    batch[:8] = (77).to_bytes(8, "big")
    found = look(batch, Wanted(True, attributes, keys, False))
    assert found.counts_from_append == attributes
    batch[:8] = (1_000).to_bytes(8, "big")
    stamp_append_time(batch, 500)
    header = read_header(batch)
    scanned = scan_batch(
        batch, header, 1_000, attributes=attributes, keys=keys, unreadable=Unreadable()
    )
    assert found.at(500).scan(header) == scanned
    assert bool(scanned.rows) == attributes


def test_a_batch_whose_offsets_make_no_sense_is_refused() -> None:
    batch = build_batch([HIGH, HIGH])
    # The second record's offset delta, behind its length, attributes and time.
    second = batch.index(bytes(batch[HEADER_BYTES : HEADER_BYTES + 3]), HEADER_BYTES + 1)
    batch[second + 3] = 0
    seal_batch(batch, 0, len(batch))
    with pytest.raises(UnsoundRecords):
        look(batch)
    # One that was appended before that was so holds no message.
    header, noted = read_header(batch), Unreadable()
    scanned = scan_batch(batch, header, 0, attributes=True, keys=False, unreadable=noted)
    assert scanned.absent == [0, 2]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_holds_much_is_not_looked_into_on_the_spot(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def note(batch: Any, header: Any, bytes_max: int) -> bytes:
        opened.append(bytes_max)
        return read_block(batch, header, bytes_max)

    monkeypatch.setattr(contents, "read_block", note)
    bomb = build_batch([NewRecord(None, bytes(15 << 20))] * 2, codec=codec)
    assert look_lightly(bomb) == [False]
    # Not more was uncompressed than is on the spot.
    assert opened == [contents.LIGHT_BYTES]


def test_one_call_has_one_sum_of_what_it_looks_into_on_the_spot() -> None:
    batch = build_batch([NewRecord(None, bytes(contents.LIGHT_BYTES // 4))], codec=Codec.ZSTD)
    small = build_batch([PLAIN], codec=Codec.ZSTD)
    assert look_lightly(*[batch] * 5, small) == [True] * 3 + [False] * 3
    half = build_batch([HIGH] * (contents.LIGHT_RECORDS // 2))
    assert look_lightly(half, half, half) == [True, True, False]
    # Of what has nothing to be decoded there may be much more.
    assert look_lightly(build_batch([PLAIN] * 20 * contents.LIGHT_RECORDS)) == [True]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_what_has_to_be_noted_of_a_batch_has_a_bound(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BATCH_NOTES_MAX", 100)
    look(build_batch([HIGH] * 1_000, codec=codec))
    look(build_batch([HIGH, LOW] * 50, codec=codec))
    with pytest.raises(RecordTooLarge, match="100 changes of attributes"):
        look(build_batch([HIGH, LOW] * 51, codec=codec))
    for wanted in (Wanted(True, True, True, False), Wanted(True, False, False, True)):
        look(build_batch([PLAIN] * 100, codec=codec), wanted)
        with pytest.raises(RecordTooLarge, match="100 records"):
            look(build_batch([PLAIN] * 101, codec=codec), wanted)


@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSED])
def test_nonsense_is_refused_though_no_queue_reads_it(codec: Codec) -> None:
    sound = build_batch([PLAIN] * 3, codec=codec)
    assert look_into(sound, None, None, Light()) == ()
    inside = bytearray(build_batch([PLAIN] * 3)[HEADER_BYTES:])
    inside[0] = 0x7E
    unsound = sound[:HEADER_BYTES] + compress(codec, inside)
    struct.pack_into(">i", unsound, 8, len(unsound) - LENGTH_OVERHEAD)
    cut_off = sound[:-3]
    struct.pack_into(">i", cut_off, 8, len(cut_off) - LENGTH_OVERHEAD)
    for batch in (unsound, cut_off):
        for place in (batch, sound + batch, batch + sound):
            with pytest.raises(UnsoundRecords):
                look_into(place, None, None, Light())
        assert look_into(batch, None, None, Light(), Checks("none")) == ()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_nonsense_behind_the_beginning_of_a_large_batch_is_found_where_that_is_wanted(
    codec: Codec,
) -> None:
    inside = bytearray(build_batch([PLAIN] * 10_000)[HEADER_BYTES:])
    # The last header has no value; now it has one of an impossible length.
    assert inside[-1] == 1
    inside[-1] = 3
    batch = build_batch([PLAIN] * 10_000, codec=codec)[:HEADER_BYTES] + compress(codec, inside)
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    with pytest.raises(UnsoundRecords):
        look_into(batch, None, None, Light(), Checks("all"))
    # Blocks of snappy are opened whole in any case.
    if codec != Codec.SNAPPY:
        assert look_into(batch, None, None, Light()) == ()
    inside[0] ^= 2
    batch = batch[:HEADER_BYTES] + compress(codec, inside)
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    with pytest.raises(UnsoundRecords):
        look_into(batch, None, None, Light())


@pytest.mark.parametrize("codec", [Codec.NONE, *COMPRESSED])
def test_records_without_keys_are_refused_where_all_need_one(codec: Codec) -> None:
    keyed, keyless = (
        build_batch([PLAIN, NewRecord(key, b"v")], codec=codec) for key in (b"", None)
    )
    for scanner in (None, SCANNER):
        for batch in (keyed, keyless):
            assert not isinstance(look_into(batch, scanner, None, Light()), Heavy)
        look_into(keyed, scanner, None, Light(), Checks(keyed=True))
        with pytest.raises(UnsoundRecords, match="key"):
            look_into(keyless, scanner, None, Light(), Checks(keyed=True))


def test_a_run_is_cut_where_too_much_would_be_opened_on_the_spot() -> None:
    quarter = NewRecord(None, bytes(contents.LIGHT_BYTES // 4))
    plain, packed = build_batch([PLAIN]), build_batch([quarter], codec=Codec.ZSTD)
    for scanner in (None, SCANNER):
        light = Light()
        run = plain + packed + packed + plain + packed + plain + packed
        assert isinstance(look_into(run, scanner, None, light, Checks("all")), Heavy)
        assert light.batches == 6


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_nobody_could_open_is_refused_though_no_queue_reads_it(codec: Codec) -> None:
    most = limits.DECOMPRESSED_BYTES_MAX // 1024**2
    below, beyond = (
        build_batch([NewRecord(None, bytes(1024**2))] * count, codec=codec)
        for count in (most // 2, most)
    )
    assert look_into(below, None, None, Light(), Checks("none")) == ()
    for checks in (Checks("none"), Checks("all"), SOUND):
        light = Light()
        small = build_batch([PLAIN], codec=codec)
        found = look_into(small + beyond, None, None, light, checks)
        assert isinstance(found, Heavy)
        # The one in front of it can be appended without it.
        assert light.batches == 1
        with pytest.raises(RecordTooLarge, match="send smaller batches"):
            found.look()


def test_what_only_might_hold_too_much_is_taken_when_it_does_not() -> None:
    """Nonsense too, where nobody goes over it: a Kafka consumer gets it as it is."""
    batch = build_batch([NewRecord(None, bytes(64 * 1024))], codec=Codec.ZSTD)
    batch += bytes(4096)
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD)
    seal_batch(batch, 0, len(batch))
    found = look_into(batch, None, None, Light(), Checks("none"))
    assert isinstance(found, Heavy)
    assert [each.fault for each in found.look()] == [""]


@pytest.mark.parametrize("ids", [False, True])
def test_contents_count_from_the_time_that_the_batch_is_given(ids: bool) -> None:
    asked = [
        attribute_headers(delay_ms=60, priority="high"),
        attribute_headers(delay_ms=60, priority="high", ttl_ms=90),
        attribute_headers(ttl_ms=90),
        attribute_headers(deliver_at_ms=1_000, ttl_ms=90),
        attribute_headers(delay_ms=10**15),
        (),
    ]
    if ids:
        asked.append(attribute_headers(dedup_id=b"7"))
    # Also of records without a time of their own.
    batch = build_batch([NewRecord(None, b"", each, n - 2) for n, each in enumerate(asked)])
    found = look(batch, Wanted(True, True, False, ids))
    assert found.counts_from_append
    assert [each.id for each in found.ids] == [b"7"] * ids
    stamp_append_time(batch, 500)
    header = read_header(batch)
    scanned = scan_batch(batch, header, 0, attributes=True, keys=False, unreadable=Unreadable())
    assert found.at(500).scan(header) == scanned
    assert [row.deliver_at_ms for row in scanned.rows[:2]] == [560, 560]
    assert [row.expires_at_ms for row in scanned.rows[1:4]] == [590, 590, 590]


@pytest.mark.parametrize(
    ("dropped", "extent"),
    [({0}, 6), ({1, 2}, 6), ({0, 3, 5}, 6), ({0, 3, 5}, 5), ({4, 5}, 6), ({4, 5}, 4),
     ({1, 2, 3, 4, 5}, 1), (set(range(6)), 6)],
)  # fmt: skip
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_contents_without_some_records_are_those_of_the_batch_without_them(
    codec: Codec, dropped: set[int], extent: int
) -> None:
    asked = [attribute_headers(priority="high", ttl_ms=60)] * 3 + [attribute_headers(delay_ms=5)]
    records = [NewRecord(b"k", b"v" * 300, each, 7) for each in asked] + [PLAIN, HIGH]
    batch = build_batch(records, codec=codec)
    found = look(batch, Wanted(True, True, True, True))
    rest = foreign._cut(batch, read_header(batch).with_append_time(500), dropped, extent)
    header = check_batch(rest)
    assert (header.count, header.last_offset_delta) == (6 - len(dropped), extent - 1)
    scanned = scan_batch(rest, header, 0, attributes=True, keys=True, unreadable=Unreadable())
    assert found.without(dropped, extent).at(500).scan(header) == scanned


def test_nothing_else_in_a_batch_needs_the_time_of_appending() -> None:
    moment = NewRecord(None, b"", attribute_headers(deliver_at_ms=1_000, visibility_ms=5))
    assert not look(build_batch([PLAIN, HIGH, moment])).counts_from_append


@pytest.mark.parametrize("value", [None, b"", b"x" * 129, b"x" * 10_000])
@pytest.mark.parametrize("ids", [False, True])
def test_an_id_that_no_topic_takes_is_refused(ids: bool, value: bytes | None) -> None:
    batch = build_batch([PLAIN, NewRecord(None, b"", (("headrace-dedup-id", value),))])
    with pytest.raises(ImpossibleId, match="1 to 128 bytes"):
        look(batch, Wanted(True, True, False, ids))


def test_an_id_is_refused_where_nobody_looks_at_it() -> None:
    batch = build_batch([PLAIN, NewRecord(None, b"", attribute_headers(dedup_id=b"7"))])
    with pytest.raises(ImpossibleId, match="dedup=true"):
        look(batch)
    look(batch, Wanted(True, True, False, True))
