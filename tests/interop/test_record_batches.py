"""Our batches against three independent implementations, in both directions.

    aiokafka, compiled     aiokafka, plain Python     kafka-python

Uncompressed, the same records must make the same bytes. Compressed, each side
must read what the other wrote; kafka-python joins for gzip only, since its other
codecs need libraries that nothing else here uses.
"""

from __future__ import annotations

import importlib
import struct
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.record import (
    Codec,
    ControlKind,
    NewRecord,
    Record,
    build_batch,
    build_control_batch,
    build_sparse_batch,
    build_values_batch,
    check_batch,
    encode_headers,
    read_control,
    read_header,
    read_records,
    stamp_append_time,
)


def untyped(module: str) -> Any:
    """Neither client has types, and kafka-python warns of its own old calls."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return importlib.import_module(module)


kafka_python = untyped("kafka.record.default_records")
aiokafka_python = untyped("aiokafka.record.default_records")
aiokafka_compiled = untyped("aiokafka.record._crecords.default_records")
aiokafka_control = untyped("aiokafka.record.control_record")


class Implementation(NamedTuple):
    name: str
    builder: Any
    reader: Any
    codecs: tuple[Codec, ...]


IMPLEMENTATIONS = [
    Implementation(
        "aiokafka-compiled",
        aiokafka_compiled.DefaultRecordBatchBuilder,
        aiokafka_compiled.DefaultRecordBatch,
        tuple(Codec),
    ),
    Implementation(
        "aiokafka-python",
        aiokafka_python._DefaultRecordBatchBuilderPy,
        aiokafka_python._DefaultRecordBatchPy,
        tuple(Codec),
    ),
    Implementation(
        "kafka-python",
        kafka_python.DefaultRecordBatchBuilder,
        kafka_python.DefaultRecordBatch,
        (Codec.NONE, Codec.GZIP),
    ),
]
every_implementation = pytest.mark.parametrize(
    "theirs", IMPLEMENTATIONS, ids=[theirs.name for theirs in IMPLEMENTATIONS]
)
with_codecs = pytest.mark.parametrize(
    ("theirs", "codec"),
    [(theirs, codec) for theirs in IMPLEMENTATIONS for codec in theirs.codecs],
    ids=lambda value: value.name,
)

NOW_MS = 1_700_000_000_000
RECORDS = [
    NewRecord(b"key", b"value" * 30, (("trace", b"abc"), ("empty", b"")), NOW_MS),
    NewRecord(None, b"no key", (), NOW_MS - 5_000),
    NewRecord(b"tombstone", None, (("null", None),), NOW_MS + 10_000_000),
    NewRecord(b"", b"", (("größe", b"\x00\xff"), ("twice", b"1"), ("twice", b"2")), NOW_MS),
    NewRecord(None, None, (), NOW_MS),
    NewRecord(b"k" * 100, b"v" * 20_000, (), NOW_MS + 1),
]


def build_theirs(
    theirs: Implementation,
    records: Iterable[NewRecord],
    codec: Codec = Codec.NONE,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    builder = theirs.builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 26,
    )
    for offset, record in enumerate(records):
        appended = builder.append(
            offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
        assert appended is not None
    return bytes(builder.build())


def read_theirs(theirs: Implementation, batch: bytes) -> list[Record]:
    reader = theirs.reader(batch)
    assert reader.validate_crc()
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name, value) for name, value in record.headers),
        )
        for record in reader
    ]


def without_leader_epoch(batch: bytes) -> bytes:
    """The broker assigns it; what a producer writes there differs between clients."""
    return batch[:12] + batch[16:]


def placed(records: Iterable[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + delta, record.timestamp_ms, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    ]


@every_implementation
def test_uncompressed_batches_are_the_same_bytes(theirs: Implementation) -> None:
    ours = bytes(build_batch(RECORDS))
    assert without_leader_epoch(ours) == without_leader_epoch(build_theirs(theirs, RECORDS))


@every_implementation
def test_the_fast_builder_makes_the_same_bytes(theirs: Implementation) -> None:
    headers = (("headrace-priority", b"high"),)
    values = [b"v" * (n % 130) for n in range(9_000)]
    ours = bytes(build_values_batch(values, NOW_MS, headers=encode_headers(headers)))
    records = [NewRecord(None, value, headers, NOW_MS) for value in values]
    assert without_leader_epoch(ours) == without_leader_epoch(build_theirs(theirs, records))


@every_implementation
@pytest.mark.parametrize("transactional", [False, True])
def test_producer_fields_are_the_same_bytes(theirs: Implementation, transactional: bool) -> None:
    producer = (2**40, 7, 2**31 - 3)
    ours = build_batch(
        RECORDS,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )
    built = build_theirs(theirs, RECORDS, producer=producer, transactional=transactional)
    assert without_leader_epoch(bytes(ours)) == without_leader_epoch(built)


@with_codecs
def test_we_read_what_they_write(theirs: Implementation, codec: Codec) -> None:
    batch = build_theirs(theirs, RECORDS, codec)
    assert check_batch(batch).codec == codec
    assert read_records(batch) == placed(RECORDS)


@with_codecs
def test_they_read_what_we_write(theirs: Implementation, codec: Codec) -> None:
    batch = bytes(build_batch(RECORDS, base_offset=12_345, codec=codec))
    assert check_batch(batch).codec == codec
    assert read_theirs(theirs, batch) == placed(RECORDS, 12_345)


@with_codecs
def test_they_read_large_batches_of_ours(theirs: Implementation, codec: Codec) -> None:
    # Several blocks of every codec's framing.
    values = [b"%d" % n * 50 for n in range(5_000)]
    batch = bytes(build_values_batch(values, NOW_MS, codec=codec))
    assert [record.value for record in read_theirs(theirs, batch)] == values


@every_implementation
def test_they_read_the_header_as_we_do(theirs: Implementation) -> None:
    batch = bytes(
        build_batch(
            RECORDS,
            base_offset=99,
            leader_epoch=3,
            producer_id=8,
            producer_epoch=9,
            base_sequence=10,
            transactional=True,
        )
    )
    ours, read = read_header(batch), theirs.reader(batch)
    assert read.base_offset == ours.base_offset
    assert read.crc == ours.crc
    assert read.attributes == ours.attributes
    assert read.is_transactional and not read.is_control_batch
    assert read.last_offset_delta == ours.last_offset_delta
    assert read.next_offset == ours.next_offset
    assert read.first_timestamp == ours.base_timestamp_ms
    assert read.max_timestamp == ours.max_timestamp_ms
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (8, 9, 10)


@every_implementation
def test_they_read_append_times_as_we_do(theirs: Implementation) -> None:
    batch = build_batch(RECORDS)
    stamp_append_time(batch, NOW_MS + 77)
    read = read_theirs(theirs, bytes(batch))
    assert {record.timestamp_ms for record in read} == {NOW_MS + 77}
    assert read == read_records(batch)


@with_codecs
def test_they_read_sparse_batches(theirs: Implementation, codec: Codec) -> None:
    whole = build_batch(RECORDS, base_offset=50, producer_id=1, base_sequence=0)
    kept = read_records(whole)[1::2]
    sparse = bytes(
        build_sparse_batch(kept, read_header(whole), codec=codec, delete_horizon_ms=NOW_MS - 1)
    )
    assert read_theirs(theirs, sparse) == kept
    assert theirs.reader(sparse).next_offset == 50 + len(RECORDS)


@every_implementation
def test_they_read_an_emptied_batch(theirs: Implementation) -> None:
    template = read_header(build_batch(RECORDS, base_offset=50, codec=Codec.ZSTD))
    empty = bytes(build_sparse_batch([], template))
    assert read_theirs(theirs, empty) == []
    assert theirs.reader(empty).next_offset == 50 + len(RECORDS)


@every_implementation
@pytest.mark.parametrize("kind", list(ControlKind))
def test_they_understand_our_markers(theirs: Implementation, kind: ControlKind) -> None:
    batch = bytes(
        build_control_batch(
            kind,
            base_offset=31,
            leader_epoch=1,
            timestamp_ms=NOW_MS,
            producer_id=5,
            producer_epoch=6,
            coordinator_epoch=7,
        )
    )
    reader = theirs.reader(batch)
    assert reader.validate_crc()
    assert reader.is_control_batch and reader.is_transactional
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (5, 6, -1)
    [marker] = list(reader)
    assert (marker.offset, marker.timestamp) == (31, NOW_MS)
    commit = kind is ControlKind.COMMIT
    expected = aiokafka_control.COMMIT_MARKER if commit else aiokafka_control.ABORT_MARKER
    assert aiokafka_control.ControlRecord.parse(marker.key) == expected
    assert struct.unpack(">hi", marker.value) == (0, 7)


@every_implementation
def test_a_marker_in_their_bytes_is_understood(theirs: Implementation) -> None:
    key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 12)
    batch = bytearray(
        build_theirs(
            theirs,
            [NewRecord(key, value, (), NOW_MS)],
            producer=(5, 6, -1),
            transactional=True,
        )
    )
    ours = build_control_batch(
        ControlKind.COMMIT,
        base_offset=0,
        leader_epoch=0,
        timestamp_ms=NOW_MS,
        producer_id=5,
        producer_epoch=6,
        coordinator_epoch=12,
    )
    # Their builders cannot set the control bit, which the checksum covers.
    batch[22] |= 0x20
    assert batch[21:] == ours[21:]
    marker = read_control(bytes(batch))
    assert (marker.kind, marker.coordinator_epoch) == (ControlKind.COMMIT, 12)


small_bytes = st.none() | st.binary(max_size=200)
any_records = st.lists(
    st.builds(
        NewRecord,
        key=small_bytes,
        value=small_bytes,
        headers=st.lists(
            st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), small_bytes),
            max_size=3,
        ).map(tuple),
        timestamp_ms=st.integers(1, 2**45),
    ),
    min_size=1,
    max_size=20,
)


@every_implementation
@given(records=any_records)
def test_any_records_make_the_same_bytes(theirs: Implementation, records: list[NewRecord]) -> None:
    ours = bytes(build_batch(records))
    assert without_leader_epoch(ours) == without_leader_epoch(build_theirs(theirs, records))
    assert read_theirs(theirs, ours) == placed(records)


@with_codecs
@given(records=any_records)
def test_any_records_cross_over_compressed(
    theirs: Implementation, codec: Codec, records: list[NewRecord]
) -> None:
    assert read_records(build_theirs(theirs, records, codec)) == placed(records)
    assert read_theirs(theirs, bytes(build_batch(records, codec=codec))) == placed(records)
