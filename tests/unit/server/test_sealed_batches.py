"""One batch, and every way in which it can come: Kafka's Produce, alone and in a run, calls of
the SDK, gRPC, and a handle in the same process. All of them refuse it for the same reason."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.twins import both
from tests.unit.server import connected
from tests.unit.server.connected import (
    PATIENCE_SECONDS,
    PRODUCE,
    PRODUCE_VERSION,
    Producing,
)
from tests.unit.server.test_remote_session import Client

from headrace.calls import Face
from headrace.core.errors import CorruptLog, HeadraceError
from headrace.core.settings import HOUR_MS
from headrace.core.values import Outgoing, PlacedBatch
from headrace.engine import contents, conversion
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.node import Node
from headrace.record import Codec, NewRecord, build_batch, read_header
from headrace.record.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    seal_batch,
)
from headrace.record.reader import read_block
from headrace.server.grpc.messages import Messages
from headrace.server.kafka import produce_runs
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.testing.fault_disk import FaultDisk
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC = "orders"


@pytest.fixture(params=both("headrace.wire.kafka.produce_run.read_run"), autouse=True)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_runs, "read_run", request.param)


class Verdict(NamedTuple):
    """Why a batch was refused: Kafka's code or ours, and what was said."""

    code: int | str
    text: str


TAKEN = Verdict(0, "")


# Batches.


def batch_of(*times_ms: int, value: bytes = b"x", **options: Any) -> bytearray:
    records = [NewRecord(b"key", value, (), each) for each in times_ms or (-1,)]
    return build_batch(records, **options)


def altered(batch: bytearray, *, attributes: int = 0, **fields: int) -> bytearray:
    """With another header, and the checksum that belongs to it."""
    header = read_header(batch)
    header = header._replace(attributes=header.attributes | attributes, **fields)
    HEADER.pack_into(batch, 0, *header)
    seal_batch(batch, 0, len(batch))
    return batch


def damaged() -> bytearray:
    batch = batch_of()
    batch[-1] ^= 1
    return batch


def nonsense(codec: Codec = Codec.NONE) -> bytearray:
    batch = batch_of(codec=codec)
    batch[HEADER_BYTES:] = bytes(len(batch) - HEADER_BYTES)
    return altered(batch)


def many_headers() -> bytearray:
    return build_batch([NewRecord(b"key", b"x", (("", b""),) * 129)])


# What may be wrong with a partition, or with the disk below it.

Spoil = Callable[[Broker, FaultDisk, Partition], object]


def no_spoil(broker: Broker, disk: FaultDisk, at: Partition) -> None:
    pass


def resign(broker: Broker, disk: FaultDisk, at: Partition) -> None:
    at.resign()


def rot(broker: Broker, disk: FaultDisk, at: Partition) -> None:
    at.stop(CorruptLog("there is rot"))


def reach_the_floor(broker: Broker, disk: FaultDisk, at: Partition) -> None:
    broker.space.floor_bytes, broker.space._left = 1024 * 1024, 0
    disk.fail_writes_after(0)


def failing(number: int) -> Spoil:
    def spoil(broker: Broker, disk: FaultDisk, at: Partition) -> None:
        def fail(_: int, name: str, path: str) -> None:
            if name == "write" and path.startswith(at.path):
                raise OSError(number, os.strerror(number), path)

        disk.on_operation = fail

    return spoil


class Bad(NamedTuple):
    """A batch that is refused: by which code of Kafka's, by which of ours, and saying what."""

    batch: Callable[[], bytes | bytearray]
    kafka: Error
    ours: str
    says: str
    settings: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    spoil: Spoil = no_spoil


NUMBERED: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
LARGE = partial(batch_of, value=bytes(5_000))
PACKED = partial(batch_of, value=bytes(5_000), codec=Codec.ZSTD)
STORAGE = Error.KAFKA_STORAGE_ERROR
NOT_LED = (Error.NOT_LEADER_OR_FOLLOWER, "fenced-leader", "another node leads")
IMPOSSIBLE = (Error.INVALID_RECORD, "invalid-argument")
IMPOSSIBLE_TIME = (Error.INVALID_TIMESTAMP, "invalid-argument")
UNSOUND = (Error.INVALID_RECORD, "corrupt-batch")
TOO_LARGE = (Error.MESSAGE_TOO_LARGE, "record-too-large", "send smaller batches")
PLAIN = {"compression": "uncompressed", "record_bytes_max": 1_000}

BAD = {
    "nothing": Bad(lambda: b"", *UNSOUND, "no records"),
    "cut off": Bad(lambda: batch_of()[:-1], Error.CORRUPT_MESSAGE, "corrupt-batch", "cut off"),
    "damaged": Bad(damaged, Error.CORRUPT_MESSAGE, "corrupt-batch", "checksum"),
    "two": Bad(lambda: batch_of() * 2, *IMPOSSIBLE, "one batch at a time"),
    "a marker": Bad(lambda: altered(batch_of(), attributes=CONTROL), *IMPOSSIBLE, "control"),
    "empty": Bad(lambda: altered(batch_of(), count=0), *IMPOSSIBLE, "N records for N off"),
    "a gap": Bad(lambda: altered(batch_of(1, 2), count=1), *IMPOSSIBLE, "N records for N off"),
    "without a number": Bad(lambda: altered(batch_of(), **NUMBERED), *IMPOSSIBLE, "numbers its"),
    "stamped": Bad(
        lambda: altered(batch_of(), attributes=LOG_APPEND_TIME), *IMPOSSIBLE_TIME, "of appending"
    ),
    "compacted": Bad(
        lambda: altered(batch_of(), attributes=DELETE_HORIZON), *IMPOSSIBLE_TIME, "of appending"
    ),
    "too large": Bad(LARGE, *TOO_LARGE, {"record_bytes_max": 1_000}),
    "too large in its topic's codec": Bad(PACKED, *TOO_LARGE, PLAIN),
    "nonsense": Bad(nonsense, *UNSOUND, "cannot be read"),
    "nonsense that is compressed": Bad(partial(nonsense, Codec.LZ4), *UNSOUND, ""),
    "many headers": Bad(
        many_headers, Error.MESSAGE_TOO_LARGE, "record-too-large", "headers", {"dedup": True}
    ),
    "of tomorrow": Bad(partial(batch_of, 2**45), *IMPOSSIBLE_TIME, "timestamp_after_max_ms"),
    "of yesterday": Bad(
        partial(batch_of, 1), *IMPOSSIBLE_TIME, "before_max", {"timestamp_before_max_ms": HOUR_MS}
    ),
    "to another node": Bad(batch_of, *NOT_LED, spoil=resign),
    # What this node says of it is nothing that the one which leads would not say.
    "too large, to another node": Bad(LARGE, *NOT_LED, {"record_bytes_max": 1_000}, resign),
    "nonsense, to another node": Bad(nonsense, *NOT_LED, spoil=resign),
    "to rot": Bad(batch_of, STORAGE, "corrupt-log", "there is rot", spoil=rot),
    "no room left": Bad(batch_of, STORAGE, "disk-full", "publishing stops", spoil=reach_the_floor),
    "no room": Bad(batch_of, STORAGE, "disk-full", "No space left", spoil=failing(errno.ENOSPC)),
    "a failing disk": Bad(
        batch_of, STORAGE, "sync-failed", "check the disk", spoil=failing(errno.EIO)
    ),
    "no files": Bad(batch_of, STORAGE, "too-many-files", "ulimit -n", spoil=failing(errno.EMFILE)),
}


# The ways.

Way = Callable[[Producing, bytes], Awaitable[Verdict]]


async def produced(node: Producing, requests: list[bytes]) -> list[Any]:
    """The answers to all partitions of these requests."""
    node.send(b"".join(requests))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(frames := node.line.frames()) < len(requests):
            await asyncio.sleep(0)
    node.line.sent = b""
    found: list[Any] = []
    for frame in frames:
        _, at = decode_response_header(PRODUCE, PRODUCE_VERSION, frame)
        answer: Any = decode_response(PRODUCE, PRODUCE_VERSION, frame, at)
        found += answer.responses[0].partition_responses
    return found


def verdict_of(answer: Any) -> Verdict:
    return Verdict(answer.error_code, answer.error_message or "")


async def by_request(node: Producing, batch: bytes) -> Verdict:
    # Nothing is known of this connection's requests yet, so it cannot be a run.
    [answer] = await produced(node, [node.request(batch)])
    return verdict_of(answer)


async def by_run(node: Producing, batch: bytes) -> Verdict:
    good = bytes(batch_of())
    answers = await produced(node, [node.request(each) for each in (good, good, batch, good)])
    assert {answers[at].error_code for at in (0, 1, 3)} <= {0, answers[2].error_code}
    return verdict_of(answers[2])


async def by_call(node: Producing, batch: bytes) -> Verdict:
    placed = PlacedBatch(TOPIC, 0, bytearray(batch))
    try:
        [stored] = await Client(node.door).ask("publish_batches", [placed])
    except HeadraceError as error:
        return Verdict(error.code, str(error))
    return TAKEN if stored.refusal is None else Verdict(*stored.refusal[:2])


async def by_grpc(node: Producing, batch: bytes) -> Verdict:
    request = pb.PublishBatchRequest(topic=TOPIC, batch=bytes(batch))
    try:
        calls: Any = SimpleNamespace(calls=Calls(node.service, door="grpc"))
        await Messages().publish_batch(request, calls)
    except HeadraceError as error:
        return Verdict(error.code, str(error))
    return TAKEN


BY_KAFKA: tuple[Way, ...] = (by_request, by_run)
BY_US: tuple[Way, ...] = (by_call, by_grpc)


def plainly(text: str, path: str) -> str:
    """Without what differs from one directory, and from one moment, to the other."""
    return re.sub(r"\d+", "N", text.replace(path, "PATH"))


def through_a_node(way: Way, bad: Bad) -> Verdict:
    verdicts: list[Verdict] = []
    disk = FaultDisk()

    async def scenario(node: Producing) -> None:
        await by_call(node, bytes(batch_of()))
        at = node.broker.topics.partition(node.topic, 0)
        assert at.high_watermark == 1
        bad.spoil(node.broker, disk, at)
        verdict = await way(node, bytes(bad.batch()))
        disk.on_operation = None
        disk.fail_writes_after(None)
        # Those that are good, around it, are taken where none is refused for another reason.
        around = 3 if way is by_run and bad.spoil is no_spoil else 0
        assert at.log.end_offset == 1 + around
        verdicts.append(verdict._replace(text=plainly(verdict.text, at.path)))

    connected.play(partial(Producing, disk, **bad.settings), scenario)
    return verdicts[0]


def through_a_handle(bad: Bad) -> Verdict:
    disk = FaultDisk()
    with closing(Node.open(":memory:", disk=disk)) as node:
        node.create_topic(TOPIC, partitions=2, settings=bad.settings)
        node.publish_batch(TOPIC, 0, batch_of())
        broker = node._broker
        at = broker.topics.partition(broker.topics.named(TOPIC), 0)
        bad.spoil(broker, disk, at)
        try:
            [outcome] = node.publish_batches([PlacedBatch(TOPIC, 0, bytearray(bad.batch()))])
        except HeadraceError as error:
            outcome = error
        disk.on_operation = None
        disk.fail_writes_after(None)
        assert at.log.end_offset == 1
    if not isinstance(outcome, HeadraceError):
        return TAKEN
    return Verdict(outcome.code, plainly(str(outcome), at.path))


# The table.


@pytest.fixture(params=[False, True])
def in_a_thread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether what is not plain is looked into, and converted, in a thread."""
    if request.param:
        monkeypatch.setattr(contents.Light, "bytes", 0)
        monkeypatch.setattr(conversion, "SPOT_BYTES", 0)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("in_a_thread")
def test_a_batch_is_refused_for_the_same_reason_whichever_way_it_comes(name: str) -> None:
    bad = BAD[name]
    verdicts = {way.__name__: through_a_node(way, bad) for way in (*BY_KAFKA, *BY_US)}
    verdicts["by_handle"] = through_a_handle(bad)
    codes = {way: verdict.code for way, verdict in verdicts.items()}
    assert codes == {
        way: bad.kafka if way in ("by_request", "by_run") else bad.ours for way in codes
    }
    [text] = {verdict.text for verdict in verdicts.values()}
    assert bad.says in text


def keyless() -> bytearray:
    return build_batch([NewRecord(None, b"x")])


# What is meant to differ: the batch, Kafka's verdict and ours.
MEANT = {
    # Of Kafka's clients the whole batch counts, of ours the record.
    "a record of just that size": Bad(
        partial(batch_of, value=bytes(1_000)), Error.MESSAGE_TOO_LARGE, "", "",
        {"record_bytes_max": 1_003},
    ),
    "no keys in a compacted topic": Bad(
        keyless, Error.INVALID_RECORD, "", "", {"cleanup": "compact"}
    ),
    "of a transaction": Bad(
        lambda: batch_of(transactional=True, base_sequence=0, **NUMBERED),
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "invalid-argument", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_what_kafkas_clients_and_ours_are_told_differs_where_that_is_meant(name: str) -> None:
    bad = MEANT[name]
    for ways, code in ((BY_KAFKA, bad.kafka), (BY_US, bad.ours)):
        for way in ways:
            found: list[Verdict] = []

            async def scenario(
                node: Producing, way: Way = way, found: list[Verdict] = found
            ) -> None:
                found.append(await way(node, bytes(bad.batch())))

            connected.play(partial(Producing, None, **bad.settings), scenario)
            assert found[0].code == (code or 0)


# Several at once.


def asked_of_both(node: Producing) -> bytes:
    parts = tuple(PartitionProduceData(index, bytes(batch_of())) for index in (0, 1))
    data = TopicProduceData(TOPIC, partition_data=parts)
    body = encode_request(PRODUCE, PRODUCE_VERSION, ProduceRequest(None, -1, 1000, (data,)))
    return b"".join(encode_request_frame(PRODUCE, PRODUCE_VERSION, 1, "app", body))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("door", ["kafka", "sdk"])
def test_what_the_disk_refuses_of_one_partition_is_told_of_that_one_alone(
    door: str, number: int
) -> None:
    disk = FaultDisk()

    async def scenario(node: Producing) -> None:
        first, second = node.broker.topics.partitions(node.topic)
        failing(number)(node.broker, disk, second)
        if door == "kafka":
            good, refused = await produced(node, [asked_of_both(node)])
            assert (good.error_code, refused.error_code) == (0, STORAGE)
        else:
            placed = [PlacedBatch(TOPIC, index, batch_of()) for index in (0, 1)]
            good, refused = await Client(node.door).ask("publish_batches", placed)
            assert good.refusal is None
            assert refused.refusal is not None
        # What was answered is there, for everybody.
        assert first.high_watermark == 1
        disk.on_operation = None
        assert (await by_request(node, bytes(batch_of()))) == TAKEN

    connected.play(partial(Producing, disk), scenario)


async def by_message(node: Producing, batch: bytes) -> Verdict:
    """As HTTP publishes: the node makes the batch."""
    message = Outgoing(batch, partition=0)
    try:
        await Calls(node.service).run(Face.publish, TOPIC, [message])
    except HeadraceError as error:
        return Verdict(error.code, str(error))
    return TAKEN


@pytest.mark.parametrize("way", [*BY_KAFKA, *BY_US, by_message])
def test_a_sync_that_fails_while_something_is_appended_ends_the_node(way: Way) -> None:
    """A new segment syncs the names of those before, whatever the topic's durability. The next
    sync may succeed, and what the first one lost would count as safe."""
    disk = FaultDisk()

    async def scenario(node: Producing) -> None:
        large = bytes(batch_of(value=bytes(1_000)))
        assert (await by_request(node, large)) == TAKEN
        disk.fail_syncs = True
        verdict = await way(node, large)
        disk.fail_syncs = False
        assert verdict.code in (STORAGE, "sync-failed")
        assert node.service.failed.done()
        assert (await by_request(node, large)).code == STORAGE

    settings: dict[str, Any] = {"durability": "os", "segment_bytes": 1_024}
    connected.play(partial(Producing, disk, **settings), scenario)


# What costs much.


@pytest.mark.parametrize("way", [by_request, by_call, by_grpc])
def test_a_batch_that_its_header_refuses_is_not_opened(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def note(batch: Any, header: Any, bytes_max: int) -> bytes:
        opened.append(header.count)
        return read_block(batch, header, bytes_max)

    monkeypatch.setattr(contents, "read_block", note)
    monkeypatch.setattr(contents.Light, "bytes", 0)

    async def scenario(node: Producing) -> None:
        stamped = altered(PACKED(), attributes=LOG_APPEND_TIME)
        assert (await way(node, bytes(stamped))) != TAKEN
        assert opened == []
        assert (await way(node, bytes(PACKED()))) == TAKEN
        assert opened == [1]

    # Where duplicates are dropped, batches are opened.
    connected.play(partial(Producing, None, dedup=True), scenario)


@pytest.mark.parametrize("way", [by_request, by_call, by_grpc])
def test_a_batch_that_is_opened_for_its_times_is_opened_once(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def note(batch: Any, header: Any) -> bytes:
        opened.append(header.count)
        return read_block(batch, header)

    monkeypatch.setattr(conversion, "read_block", note)
    monkeypatch.setattr(conversion, "SPOT_BYTES", 0)

    async def scenario(node: Producing) -> None:
        now_ms = node.service.clock.now_ms()
        assert (await way(node, bytes(batch_of(now_ms, now_ms - 1)))) == TAKEN
        assert opened == [2]

    connected.play(partial(Producing, None, timestamp_before_max_ms=HOUR_MS), scenario)
