"""Real producers to real consumers: every codec, headers, nulls, timestamps, acks."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet
from tests.interop.wire_client import fresh_name


def untyped(module: str) -> Any:
    """Neither client has types, and kafka-python warns of its own old calls."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return import_module(module)


aiokafka = untyped("aiokafka")
kafka = untyped("kafka")

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
AT_MS = 1_700_000_123_456
Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
ROWS: list[Row] = [
    (b"key", b"value", AT_MS, ()),
    (None, b"no key", AT_MS + 1, (("trace", b"abc"), ("trace", b"twice"), ("empty", b""))),
    (b"no value", None, AT_MS - 60_000, (("null", None),)),
    (b"", b"", AT_MS + 2, ()),
    (b"\0\xff", bytes(range(256)) * 40, AT_MS + 3, (("bytes", b"\0\xff"),)),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("clients") / "data", "--partitions", "1")
    yield process
    process.stop()


@pytest.fixture
def topic(shared: NodeProcess) -> str:
    name = fresh_name()
    make_topic(shared.bootstrap, name, 1)
    return name


# Writing.


def write_confluent(bootstrap: str, topic: str, rows: list[Row], codec: str, acks: Any) -> None:
    producer = Producer({**quiet(bootstrap), "compression.type": codec, "acks": acks})
    for key, value, timestamp_ms, headers in rows:
        producer.produce(topic, value, key, 0, timestamp=timestamp_ms, headers=list(headers))
    assert producer.flush(30) == 0


def write_kafka_python(bootstrap: str, topic: str, rows: list[Row], codec: str, acks: Any) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks,
        enable_idempotence=acks == "all",
    )
    sent = [
        producer.send(topic, value, key, list(headers), 0, timestamp_ms)
        for key, value, timestamp_ms, headers in rows
    ]
    producer.flush(30)
    assert all(each.succeeded() for each in sent)
    producer.close()


def write_aiokafka(bootstrap: str, topic: str, rows: list[Row], codec: str, acks: Any) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks,
            enable_idempotence=acks == "all",
        )
        await producer.start()
        try:
            for key, value, timestamp_ms, headers in rows:
                await producer.send(topic, value, key, 0, timestamp_ms, list(headers))
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(write())


# Reading.


def read_confluent(bootstrap: str, topic: str, count: int) -> list[Row]:
    consumer = Consumer({**quiet(bootstrap), "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 30)
        assert messages, f"{len(found)} of {count} came"
        for message in messages:
            assert message.error() is None
            given: Any = message.headers() or ()
            headers = tuple((name, value) for name, value in given)
            found.append((message.key(), message.value(), message.timestamp()[1], headers))
    consumer.close()
    return found


def read_kafka_python(bootstrap: str, topic: str, count: int) -> list[Row]:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = []
    for record in consumer:
        found.append((record.key, record.value, record.timestamp, tuple(record.headers)))
        if len(found) == count:
            break
    consumer.close()
    return found


def read_aiokafka(bootstrap: str, topic: str, count: int) -> list[Row]:
    async def read() -> list[Row]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            async with asyncio.timeout(30):
                records = [await consumer.getone() for _ in range(count)]
            return [(each.key, each.value, each.timestamp, tuple(each.headers)) for each in records]
        finally:
            await consumer.stop()

    return asyncio.run(read())


WRITERS = {
    "confluent": write_confluent,
    "kafka-python": write_kafka_python,
    "aiokafka": write_aiokafka,
}
READERS = {
    "confluent": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
}


# kafka-python leaves the other codecs to libraries of their own.
PAIRS = [
    (client, codec)
    for client in WRITERS
    for codec in CODECS
    if client != "kafka-python" or codec in ("none", "gzip")
]


@pytest.mark.parametrize(("writer", "codec"), PAIRS)
def test_what_any_client_writes_every_client_reads(
    shared: NodeProcess, topic: str, writer: str, codec: str
) -> None:
    rows = ROWS
    if writer == "kafka-python":
        # It refuses to write a header without a value.
        rows = [row for row in ROWS if all(value is not None for _, value in row[3])]
    WRITERS[writer](shared.bootstrap, topic, rows, codec, "all")
    for name, read in READERS.items():
        if (name, codec) in PAIRS:
            assert read(shared.bootstrap, topic, len(rows)) == rows, name


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("writer", WRITERS)
def test_every_kind_of_acks_arrives(
    shared: NodeProcess, topic: str, writer: str, acks: Any
) -> None:
    WRITERS[writer](shared.bootstrap, topic, ROWS[:1] * 20, "none", acks)
    assert read_confluent(shared.bootstrap, topic, 20) == ROWS[:1] * 20


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_writes_and_reads(shared: NodeProcess, topic: str, codec: str) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    word = codec.encode()
    lines = b"".join(b"key-%d:%s\n" % (number, word * number) for number in range(100))
    common = [kcat, "-q", "-b", shared.bootstrap, "-t", topic, "-p", "0", "-K", ":"]
    write = [*common, "-P", "-z", codec, "-H", "origin=kcat"]
    subprocess.run(write, input=lines, check=True, timeout=60)
    read = subprocess.run(
        [*common, "-C", "-e", "-o", "beginning"], check=True, timeout=60, capture_output=True
    )
    assert read.stdout == lines
    stored = b"".join(path.read_bytes() for path in shared.data.rglob("*.log"))
    if codec != "none":
        # It compressed: librdkafka of this age silently does not, unless it finds
        # the versions of Produce that it looks for.
        assert word * 99 not in stored


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("writer", WRITERS)
def test_ids_that_were_published_are_left_out_and_every_client_reads_on(
    shared: NodeProcess, writer: str, codec: str
) -> None:
    topic = fresh_name()
    make_topic(shared.bootstrap, topic, 1, {"headrace.dedup": "true"})

    def row(number: int) -> Row:
        return None, b"%d" % number, AT_MS, (("headrace-dedup-id", b"id-%d" % number),)

    # Of batches that are made anew some is left, or nothing.
    for numbers in ((0, 1, 2), (1, 3, 1), (0, 1, 2, 3), (2,), (4,)):
        WRITERS[writer](shared.bootstrap, topic, list(map(row, numbers)), codec, "all")
    for name, read in READERS.items():
        found = [value for _, value, _, _ in read(shared.bootstrap, topic, 5)]
        assert found == [b"0", b"1", b"2", b"3", b"4"], name


def test_a_topic_is_made_when_somebody_writes_to_it(shared: NodeProcess) -> None:
    name = fresh_name()
    write_confluent(shared.bootstrap, name, ROWS[:1], "none", "all")
    assert read_confluent(shared.bootstrap, name, 1) == ROWS[:1]


def test_a_message_too_large_is_refused_and_the_next_one_is_not(
    shared: NodeProcess, topic: str
) -> None:
    outcomes: list[KafkaError | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        outcomes.append(error)

    producer = Producer({**quiet(shared.bootstrap), "message.max.bytes": 10_000_000})
    producer.produce(topic, b"x" * 2_000_000, partition=0, callback=on_delivery)
    assert producer.flush(30) == 0
    producer.produce(topic, b"small", partition=0, callback=on_delivery)
    assert producer.flush(30) == 0
    assert outcomes[0] is not None
    assert outcomes[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert outcomes[1] is None


@pytest.mark.parametrize("name", ["__trace", "__consumer_offsets"])
def test_a_producer_to_a_topic_of_the_nodes_own_is_told_so(shared: NodeProcess, name: str) -> None:
    told: list[Any] = []
    # Without an answer it would go on for five minutes.
    producer = Producer(quiet(shared.bootstrap))
    try:
        producer.produce(name, b"v", on_delivery=lambda error, _: told.append(error))
    except KafkaException as error:
        # The client was told before it had taken the message, and has an error of its own.
        assert error.args[0].code() == KafkaError._UNKNOWN_TOPIC
        return
    assert producer.flush(60) == 0
    assert [each.code() for each in told] == [KafkaError.TOPIC_EXCEPTION]


def test_topics_with_two_underscores_belong_to_users(shared: NodeProcess) -> None:
    name = f"__debezium-heartbeat.{fresh_name()}"
    write_confluent(shared.bootstrap, name, ROWS, "none", "all")
    assert len(read_confluent(shared.bootstrap, name, len(ROWS))) == len(ROWS)


def test_records_without_a_key_are_named_where_a_topic_is_compacted(shared: NodeProcess) -> None:
    name = fresh_name()
    make_topic(shared.bootstrap, name, 1, {"cleanup.policy": "compact"})
    told: list[int | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        told.append(None if error is None else error.code())

    for batch_size, others in ((1_000_000, KafkaError._INVALID_DIFFERENT_RECORD), (1, None)):
        settings = {"linger.ms": 1_000, "batch.size": batch_size}
        producer = Producer({**quiet(shared.bootstrap), **settings})
        for number in range(20):
            key = b"k" if number % 10 else None
            producer.produce(name, b"v", key, 0, on_delivery=on_delivery)
        assert producer.flush(60) == 0
        assert told.count(KafkaError.INVALID_RECORD) == 2
        assert told.count(others) == 18
        told.clear()
