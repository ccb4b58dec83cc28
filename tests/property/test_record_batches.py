"""Batches round-trip, and whatever else is read is refused in one way only."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatch
from headrace.record import (
    DEFAULT_ATTRIBUTES,
    HEADER_BYTES,
    Codec,
    Headers,
    NewRecord,
    Record,
    build_batch,
    build_sparse_batch,
    build_values_batch,
    check_batch,
    compress,
    decompress,
    encode_headers,
    read_attributes,
    read_control,
    read_header,
    read_records,
    scan_attributes,
    split_batches,
)
from headrace.record.varint import decode_varint, encode_varint, varint_size

int64s = st.integers(-(2**63), 2**63 - 1)
# Around the places where a number takes one byte more.
sizes = st.sampled_from([0, 1, 2, 62, 63, 64, 65, 200, 8190, 8191, 8192, 9000])
short_bytes = st.binary(max_size=80)
any_bytes = short_bytes | st.builds(lambda size: b"x" * size, sizes)
header_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "headrace-priority",
        "headrace-deliver-at",
        "headrace-delay-ms",
        "headrace-ttl-ms",
        "headrace-max-attempts",
        "headrace-visibility-ms",
        "headrace-dedup-id",
        "headrace-redrive-group",
        "headrace-",
    ]
)
header_values = (
    st.none() | short_bytes | st.builds(lambda n: b"%d" % n, st.integers(-2, 2**64) | sizes)
)
headers = st.lists(st.tuples(header_names, header_values), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**45) | st.integers(1_700_000_000_000, 1_700_000_009_000)
new_records = st.builds(
    NewRecord,
    key=st.none() | any_bytes,
    value=st.none() | any_bytes | st.just(b"headrace-priority"),
    headers=headers,
    timestamp_ms=timestamps,
)
batches_of_records = st.lists(new_records, min_size=1, max_size=12)
codecs = st.sampled_from(Codec)
offsets = st.integers(0, 2**62)


def placed(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + delta, record.timestamp_ms, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    ]


@given(int64s)
def test_varints_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert varint_size(value) == len(encoded)


@given(batches_of_records, offsets, codecs)
def test_records_round_trip(records: list[NewRecord], base_offset: int, codec: Codec) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    header = check_batch(batch)
    assert header.size_bytes == len(batch)
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in records)
    assert read_records(batch, header) == placed(records, base_offset)


@given(st.lists(any_bytes, min_size=1, max_size=100), timestamps, headers)
def test_the_fast_builder_equals_the_general_one(
    values: list[bytes], timestamp_ms: int, shared: Headers
) -> None:
    general = build_batch([NewRecord(None, value, shared, timestamp_ms) for value in values])
    assert build_values_batch(values, timestamp_ms, headers=encode_headers(shared)) == general


@given(batches_of_records, offsets, codecs, st.none() | timestamps, st.data())
def test_any_part_of_a_batch_keeps_its_place(
    records: list[NewRecord],
    base_offset: int,
    codec: Codec,
    delete_horizon_ms: int | None,
    data: st.DataObject,
) -> None:
    template = read_header(build_batch(records, base_offset=base_offset, producer_id=1))
    kept = [record for record in placed(records, base_offset) if data.draw(st.booleans())]
    sparse = build_sparse_batch(kept, template, codec=codec, delete_horizon_ms=delete_horizon_ms)
    header = check_batch(sparse)
    assert read_records(sparse) == kept
    assert (header.base_offset, header.next_offset) == (base_offset, template.next_offset)
    assert header.delete_horizon_ms == delete_horizon_ms


@given(st.lists(st.tuples(batches_of_records, codecs), max_size=4))
def test_batches_back_to_back_split_where_they_were_joined(
    parts: list[tuple[list[NewRecord], Codec]],
) -> None:
    batches = [build_batch(records, codec=codec) for records, codec in parts]
    joined = b"".join(batches)
    assert [
        joined[position : position + header.size_bytes]
        for position, header in split_batches(joined)
    ] == batches


@given(batches_of_records, offsets, codecs)
def test_a_scan_finds_what_opening_every_record_finds(
    records: list[NewRecord], base_offset: int, codec: Codec
) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    naive = [
        (record.offset, attributes)
        for record in read_records(batch)
        if (attributes := read_attributes(record.headers, record.timestamp_ms))
        != DEFAULT_ATTRIBUTES
    ]
    assert scan_attributes(batch) == naive


@given(headers, int64s)
def test_no_header_is_too_strange_to_be_read(strange: Headers, timestamp_ms: int) -> None:
    attributes = read_attributes(strange, timestamp_ms)
    assert 0 <= attributes.lane <= 4
    assert attributes.deliver_at_ms >= 0
    assert attributes.expires_at_ms >= 0


# Damage.


def read_in_every_way(batch: bytes) -> None:
    """Nothing but CorruptBatch may come out of any reader."""
    with suppress(CorruptBatch):
        check_batch(batch)
    with suppress(CorruptBatch):
        list(split_batches(batch))
    with suppress(CorruptBatch):
        read_control(batch)
    with suppress(CorruptBatch):
        scan_attributes(batch)
    with suppress(CorruptBatch):
        header = read_header(batch)
        records = read_records(batch, header)
        # What was accepted makes sense: it can be written and read again.
        again = build_sparse_batch(records, header)
        assert read_records(again) == records


@st.composite
def damaged(draw: st.DrawFn, original: bytes, start: int = 0) -> bytes:
    """A few bytes changed, removed, added or moved, from `start` on."""
    damage = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(start, len(damage)))
        length = draw(st.integers(0, 4))
        damage[position : position + length] = draw(st.binary(max_size=4))
    return bytes(damage)


@given(batches_of_records, codecs, st.data())
def test_a_damaged_batch_is_read_or_refused(
    records: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    batch = bytes(build_batch(records, codec=codec))
    read_in_every_way(data.draw(damaged(batch)))


@given(batches_of_records, codecs, st.data())
def test_damaged_records_under_a_sound_header_are_read_or_refused(
    records: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    batch = bytes(build_batch(records, codec=codec))
    damage = bytearray(data.draw(damaged(batch, HEADER_BYTES)))
    damage[8:12] = (len(damage) - 12).to_bytes(4, "big")
    read_in_every_way(bytes(damage))


@given(batches_of_records, codecs, st.data())
def test_damage_inside_a_compressed_block_is_read_or_refused(
    records: list[NewRecord], codec: Codec, data: st.DataObject
) -> None:
    batch = bytes(build_batch(records))
    block = compress(codec, data.draw(damaged(batch, HEADER_BYTES))[HEADER_BYTES:])
    damage = bytearray(batch[:HEADER_BYTES] + block)
    damage[8:12] = (len(damage) - 12).to_bytes(4, "big")
    damage[22] |= codec
    read_in_every_way(bytes(damage))


@given(st.binary(max_size=300), st.integers(0, 40), codecs, st.booleans())
def test_arbitrary_bytes_under_a_sound_header_are_read_or_refused(
    block: bytes, count: int, codec: Codec, control: bool
) -> None:
    batch = bytearray(build_values_batch([b""] * 40, 0)[:HEADER_BYTES]) + block
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= codec | (0x20 if control else 0)
    batch[57:61] = count.to_bytes(4, "big")
    read_in_every_way(bytes(batch))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_read_or_refused(junk: bytes) -> None:
    read_in_every_way(junk)


@given(st.lists(new_records, min_size=1, max_size=3), codecs)
def test_a_batch_cut_at_any_byte_is_refused(records: list[NewRecord], codec: Codec) -> None:
    batch = bytes(build_batch(records, codec=codec))
    # All of the header, and as much of a large batch as is worth the time.
    for size in [*range(min(len(batch), 300)), len(batch) - 1]:
        for read in (check_batch, read_records):
            try:
                read(batch[:size])
            except CorruptBatch:
                continue
            raise AssertionError(f"{read.__name__} accepted {size} of {len(batch)} bytes")


@given(st.sampled_from([codec for codec in Codec if codec]), st.binary(max_size=2_000), st.data())
def test_damaged_compression_is_undone_or_refused(
    codec: Codec, content: bytes, data: st.DataObject
) -> None:
    assert decompress(codec, compress(codec, content)) == content
    limit = data.draw(st.integers(0, 4_000))
    with suppress(CorruptBatch):
        damage = data.draw(damaged(compress(codec, content)))
        assert len(decompress(codec, damage, limit)) <= limit
