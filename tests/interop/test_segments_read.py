"""The node's files are Kafka's: readers that others wrote find in them what was sent."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet


def untyped(module: str) -> Any:
    """Neither client has types, and kafka-python warns of its own old calls."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return import_module(module)


batches = untyped("aiokafka.record.default_records")
kafka_records = untyped("kafka.record")

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

TOPIC = "orders"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write(bootstrap: str) -> list[bytes]:
    values = []
    for codec in CODECS:
        producer = Producer({**quiet(bootstrap), "compression.type": codec, "linger.ms": 1})
        for number in range(500):
            value = f"{codec} {number}".encode()
            producer.produce(
                TOPIC, value, key=b"k%d" % number, partition=0, headers=[("codec", codec)]
            )
            values.append(value)
        assert producer.flush(30) == 0
    return values


def segment_of(node: NodeProcess) -> Path:
    paths = [path for path in node.data.glob("topics/*/0/*.log") if path.stat().st_size]
    assert len(paths) == 1
    return paths[0]


def cut(data: bytes) -> list[bytes]:
    """Batches by the length that each says it has, as the format's description puts it."""
    batches = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big", signed=True)
        assert len(data) >= size > 61
        batches.append(data[:size])
        data = data[size:]
    return batches


def test_other_readers_find_every_record_in_the_segment(node: NodeProcess) -> None:
    make_topic(node.bootstrap, TOPIC, 1)
    values = write(node.bootstrap)
    node.stop()
    data = segment_of(node).read_bytes()
    assert segment_of(node).name == "0" * 20 + ".log"

    offsets, found, plain, codecs = [], [], [], set()
    for raw in cut(data):
        batch = batches.DefaultRecordBatch(bytearray(raw))
        assert batch.validate_crc()
        codecs.add(batch.compression_type)
        for record in batch:
            offsets.append(record.offset)
            found.append(record.value)
            if batch.compression_type in (0, 1):
                plain.append(record.value)
            assert dict(record.headers)["codec"].decode() in CODECS
    assert found == values
    assert offsets == list(range(len(values)))
    assert codecs == {0, 1, 2, 3, 4}

    # kafka-python leaves all codecs but gzip to libraries of their own.
    readable = b"".join(raw for raw in cut(data) if raw[22] & 7 in (0, 1))
    records = kafka_records.MemoryRecords(readable)
    again = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        again += [record.value for record in batch]
    assert again == plain
    assert len(plain) >= 1_000


def test_indexes_point_at_batches(node: NodeProcess) -> None:
    make_topic(node.bootstrap, TOPIC, 1)
    write(node.bootstrap)
    node.stop()
    path = segment_of(node)
    data = path.read_bytes()
    starts = {}
    position = 0
    for raw in cut(data):
        starts[position] = int.from_bytes(raw[:8], "big")
        position += len(raw)
    index = path.with_suffix(".index").read_bytes()
    assert index
    assert len(index) % 8 == 0
    for at in range(0, len(index), 8):
        delta = int.from_bytes(index[at : at + 4], "big")
        place = int.from_bytes(index[at + 4 : at + 8], "big")
        # An entry names the batch that begins at its position, by an offset in it.
        assert place in starts
        assert starts[place] <= delta
