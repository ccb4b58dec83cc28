"""Attacks on the Kafka door. Each function is one round of one attack."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random

import zstandard
from tests.hostile.target import KEYS, Target, frame, raw_frame
from tests.unit.wire.request_fields import ARRAYS, Field, element, sent

from headrace.core import limits
from headrace.record import NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES, seal_batch
from headrace.record.varint import encode_varint
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated import (
    add_partitions_to_txn_request,
    api_versions_request,
    consumer_group_heartbeat_request,
    create_topics_request,
    delete_topics_request,
    fetch_request,
    init_producer_id_request,
    join_group_request,
    metadata_request,
    produce_request,
    share_fetch_request,
    share_group_heartbeat_request,
)

# A topic with a queue group, so that the node looks into what is published; see `client`.
BOMBED = "bombed"
NOW_MS = 1_700_000_000_000
MEGABYTE = 1024 * 1024
ZSTD = 4


# What is small on the wire and large in memory.


async def compression_bombs(target: Target) -> None:
    """Kilobytes that hold exactly as much as is allowed, and much more."""
    async with target.connect(target.kafka) as peer:
        for value_bytes in (limits.DECOMPRESSED_BYTES_MAX, 8 * limits.DECOMPRESSED_BYTES_MAX):
            await peer.send(produce(_bomb(value_bytes, 0)))
            await peer.take_frame()
        for _ in range(3):
            await peer.send(produce(_bomb(limits.RECORD_BYTES_MAX - 1024, 0)))
            await peer.take_frame()


async def header_bombs(target: Target) -> None:
    """One record with two million empty headers, in 13 KB."""
    async with target.connect(target.kafka) as peer:
        for _ in range(20):
            await peer.send(produce(_bomb(10, 2_000_000)))
            await peer.take_frame()


async def metadata_of_900_000_names(target: Target) -> None:
    async with target.connect(target.kafka) as peer:
        await peer.send(_many_names(900_000))
        await peer.take_frame()


async def metadata_at_the_limit(target: Target) -> None:
    """As many names as are allowed, none of which there is, again and again."""
    async with target.connect(target.kafka) as peer:
        for _ in range(3):
            await peer.send(_many_names(limits.REQUEST_ARRAY_MAX))
            await peer.take_frame()


async def arrays_that_never_end(target: Target) -> None:
    """Every API in its last version, with a body that announces huge arrays."""
    for key, api in APIS.items():
        for body in (b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff", b"\0\x01\x86\xa0" * 4_000):
            async with target.connect(target.kafka) as peer:
                with contextlib.suppress(OSError, EOFError, TimeoutError):
                    await peer.send(raw_frame(key, api.last, body * 3))
                    async with asyncio.timeout(1):
                        await peer.take_frame()


async def arrays_at_their_limit(target: Target) -> None:
    """Any request with one of its arrays as long as it may be, and one longer."""
    for field in random.sample(ARRAYS, 3):
        for beyond in (0, 1):
            async with target.connect(target.kafka) as peer:
                with contextlib.suppress(OSError, EOFError, TimeoutError):
                    await peer.send(_long_request(field, beyond))
                    async with asyncio.timeout(5):
                        await peer.take_frame()


async def join_group_with_a_megabyte(target: Target) -> None:
    """Groups that each keep a megabyte of what their only member says of itself."""
    metadata = bytes(limits.MEMBER_BYTES_MAX - 1024)
    async with target.connect(target.kafka) as peer:
        for _ in range(50):
            await peer.send(
                frame(
                    "JoinGroup",
                    join_group_request.JoinGroupRequest(
                        target.fresh("group"), 1_800_000, 1_800_000, "", None, "consumer",
                        (join_group_request.JoinGroupRequestProtocol("range", metadata),),
                    ),
                    version=2,
                )
            )  # fmt: skip
            await peer.take_frame()


async def catastrophic_patterns(target: Target) -> None:
    """Regular expressions that take other engines for ever."""
    patterns = ("(a+)+$", "(a|aa)+$", "(.*)*x", "((a*)*)*b", "(.{0,99}){0,99}z", "[" * 1_000)
    async with target.connect(target.kafka) as peer:
        for pattern in patterns:
            group, member = target.fresh("pattern"), target.fresh("member")
            asked = consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(
                group, member, 0, rebalance_timeout_ms=60_000, topic_partitions=(),
                subscribed_topic_names=(), subscribed_topic_regex=pattern,
            )  # fmt: skip
            await peer.send(frame("ConsumerGroupHeartbeat", asked))
            await peer.take_frame()


# What is no request at all.


async def bad_frames(target: Target) -> None:
    """Random bytes, impossible lengths, good requests with a byte changed."""
    chance = random.Random()
    good = frame("Metadata", metadata_request.MetadataRequest(None))
    for number in range(30):
        async with target.connect(target.kafka) as peer:
            payload = bytearray(good)
            if number % 3 == 0:
                payload = bytearray(chance.randbytes(chance.randrange(4, 2_000)))
            elif number % 3 == 1:
                payload[chance.randrange(len(payload))] = chance.randrange(256)
            else:
                payload[:4] = chance.choice(((-1).to_bytes(4, "big", signed=True), b"\x7f" * 4))
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                await peer.send(bytes(payload))
                async with asyncio.timeout(0.2):
                    await peer.take_frame()


async def names_that_are_no_text(target: Target) -> None:
    """Invalid UTF-8 wherever a request has a name."""
    for name in ("Metadata", "FindCoordinator", "DescribeGroups", "DeleteTopics"):
        async with target.connect(target.kafka) as peer:
            with contextlib.suppress(OSError, EOFError, TimeoutError):
                await peer.send(
                    raw_frame(KEYS[name], APIS[KEYS[name]].first, b"\0\0\0\1\0\4\xff\xfe\xc0\x80")
                )
                async with asyncio.timeout(1):
                    await peer.take_frame()


# What asks for much, and takes or ends none of it.


async def pipelined_flood(target: Target) -> None:
    """Ten thousand requests at once over one connection, whose answers are taken."""
    asked = frame("ApiVersions", api_versions_request.ApiVersionsRequest("hostile", "1"), 3)
    async with target.connect(target.kafka) as peer:
        peer.writer.write(asked * 10_000)
        for _ in range(10_000):
            await peer.take_frame()


async def readers_that_never_read(target: Target) -> None:
    """Fetches of all there is, hundreds at once, over connections that take nothing."""
    asked = _fetch(BOMBED, wait_ms=0) * 200
    async with target.crowd(target.kafka, 100) as peers:
        for peer in peers:
            peer.go_deaf()
            peer.writer.write(asked)
        await target.pause(10)


async def fetches_that_are_abandoned(target: Target) -> None:
    """Long polls whose clients leave without a word."""
    for _ in range(5):
        async with target.crowd(target.kafka, 100) as peers:
            for peer in peers:
                await peer.send(_fetch("quiet", wait_ms=30_000))


async def fetch_sessions_that_are_dropped(target: Target) -> None:
    """Sessions with as many partitions as a request can name, each new and none closed."""
    async with target.connect(target.kafka) as peer:
        for _ in range(5):
            parts = tuple(
                fetch_request.FetchPartition(number, fetch_offset=0, partition_max_bytes=1)
                for number in range(limits.REQUEST_ARRAY_MAX - 10)
            )
            topic = fetch_request.FetchTopic(target.fresh("none"), partitions=parts)
            asked = fetch_request.FetchRequest(session_epoch=0, topics=(topic,))
            await peer.send(frame("Fetch", asked, version=11))
            await peer.take_frame()


async def share_sessions_that_are_dropped(target: Target) -> None:
    for _ in range(20):
        async with target.connect(target.kafka) as peer:
            group, member = target.fresh("share"), target.fresh("member")
            joining = share_group_heartbeat_request.ShareGroupHeartbeatRequest(
                group, member, 0, None, ("quiet",)
            )
            await peer.send(frame("ShareGroupHeartbeat", joining))
            await peer.take_frame()
            opening = share_fetch_request.ShareFetchRequest(
                group, member, 0, max_wait_ms=30_000, min_bytes=1, max_records=500
            )
            await peer.send(frame("ShareFetch", opening))


async def transactions_that_are_left(target: Target) -> None:
    """A partition whose transaction nobody ends."""
    async with target.connect(target.kafka) as peer:
        for _ in range(10):
            name = target.fresh("transaction")
            asked = init_producer_id_request.InitProducerIdRequest(name, 600_000)
            producer_id = -1
            # The transaction of that name that was left before is ended first, and who finds
            # it open asks again.
            while producer_id < 0:
                await peer.send(frame("InitProducerId", asked, version=3))
                answer = await peer.take_frame()
                producer_id = int.from_bytes(answer[11:19], "big", signed=True)
            topic = add_partitions_to_txn_request.AddPartitionsToTxnTopic("quiet", (0,))
            adding = add_partitions_to_txn_request.AddPartitionsToTxnRequest(
                name, producer_id, 0, (topic,)
            )
            await peer.send(frame("AddPartitionsToTxn", adding, version=3))
            await peer.take_frame()


async def topics_made_and_deleted(target: Target) -> None:
    async with target.connect(target.kafka) as peer:
        for _ in range(10):
            name = target.fresh("brief")
            made = create_topics_request.CreatableTopic(name, 3, 1)
            await peer.send(
                frame("CreateTopics", create_topics_request.CreateTopicsRequest((made,)))
            )
            await peer.take_frame()
            gone = delete_topics_request.DeleteTopicState(name)
            await peer.send(
                frame("DeleteTopics", delete_topics_request.DeleteTopicsRequest((gone,)))
            )
            await peer.take_frame()


async def topics_made_by_asking(target: Target) -> None:
    """Names that Metadata makes topics of, until the rate says no."""
    async with target.connect(target.kafka) as peer:
        names = tuple(
            metadata_request.MetadataRequestTopic(name=target.fresh("auto")) for _ in range(20)
        )
        await peer.send(frame("Metadata", metadata_request.MetadataRequest(names)))
        await peer.take_frame()
        gone = tuple(delete_topics_request.DeleteTopicState(each.name) for each in names)
        await peer.send(frame("DeleteTopics", delete_topics_request.DeleteTopicsRequest(gone)))
        await peer.take_frame()


# Requests.


def produce(batch: bytes, topic: str = BOMBED) -> bytes:
    data = produce_request.TopicProduceData(
        topic, partition_data=(produce_request.PartitionProduceData(0, batch),)
    )
    return frame("Produce", produce_request.ProduceRequest(None, -1, 30_000, (data,)), version=9)


def _fetch(topic: str, wait_ms: int) -> bytes:
    part = fetch_request.FetchPartition(0, fetch_offset=0, partition_max_bytes=2**31 - 1)
    asked = fetch_request.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=(fetch_request.FetchTopic(topic, partitions=(part,)),),
    )
    return frame("Fetch", asked, version=11)


@functools.cache
def _bomb(value_bytes: int, headers: int) -> bytes:
    """A batch of one record with so many empty headers, compressed."""
    record = (
        b"\0\0\0\x01" + encode_varint(value_bytes) + bytes(value_bytes)
        + encode_varint(headers) + b"\0\x01" * headers
    )  # fmt: skip
    block = zstandard.compress(encode_varint(len(record)) + record)
    batch = build_batch([NewRecord(None, b"", (), NOW_MS)])
    batch[HEADER_BYTES:] = block
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= ZSTD
    seal_batch(batch, 0, len(batch))
    return bytes(batch)


@functools.cache
def _long_request(field: Field, beyond: int) -> bytes:
    most = limits.REQUEST_ARRAY_MAX
    if field.is_plain:
        most = limits.REQUEST_ELEMENTS_MAX - len(field.path) + 1
    elements = tuple(element(field.element, number) for number in range(most + beyond))
    # Some numbers are bytes, and cannot all be different.
    alike = elements[:1] * len(elements)
    newest = next(sent(field, elements, "long"), None) or next(sent(field, alike, "long"))
    return raw_frame(field.key, *newest)


@functools.cache
def _many_names(count: int) -> bytes:
    names = tuple(
        metadata_request.MetadataRequestTopic(name=f"name-{number}") for number in range(count)
    )
    asked = metadata_request.MetadataRequest(names, allow_auto_topic_creation=False)
    return frame("Metadata", asked, version=8)
