"""Whatever a batch of a client holds: it is refused as a whole, or each of its records is
delivered, by queues and by streams, and every door can write it.

The records are made byte by byte, with what no builder of ours makes: names of headers that
are not UTF-8, times at the ends of 64 bits, bits without a meaning, numbers that are longer
than need be."""

from __future__ import annotations

from contextlib import closing
from typing import Any, NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.views import DeadLetterView, Record
from headrace.core.errors import HeadraceError
from headrace.core.values import Delivery, StreamRecord
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import Codec, read_header
from headrace.record.attribute_headers import NUMBER_BOUNDS, PRIORITY, REDRIVE_GROUP
from headrace.record.batch import HEADER, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, seal_batch
from headrace.record.columns import decode_columns, open_block
from headrace.record.compression import compress
from headrace.record.varint import encode_varint
from headrace.server.grpc import shown as grpc_shown
from headrace.server.http import shown as http_shown

GROUP = "workers"
ANY_TIME = {"timestamp_after_max_ms": None}
# Plain, read by a queue, read by one in the order of keys, without duplicates.
TOPICS: dict[str, dict[str, Any]] = {
    "streamed": {},
    "queued": {},
    "keyed": {"ordering": "key"},
    "unique": {"dedup": True},
}
NOW_MS = 1_700_000_000_000
INT64 = 2**63


class Piece(NamedTuple):
    """A record as it lies in a batch."""

    attributes: int
    time_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    # The number of bytes that its numbers have beyond what they need.
    padding: int


def number(value: int, padding: int) -> bytes:
    encoded = bytearray(encode_varint(value))
    for _ in range(padding if len(encoded) < 3 else 0):
        encoded[-1] |= 0x80
        encoded.append(0)
    return bytes(encoded)


def sized(data: bytes | None, padding: int) -> bytes:
    return number(-1, 0) if data is None else number(len(data), padding) + data


def encoded(piece: Piece, place: int) -> bytes:
    padding = piece.padding
    body = bytes([piece.attributes]) + number(piece.time_delta, padding) + number(place, padding)
    body += sized(piece.key, padding) + sized(piece.value, padding)
    body += number(len(piece.headers), padding)
    for name, value in piece.headers:
        body += sized(name, padding) + sized(value, padding)
    return number(len(body), padding) + body


class Sent(NamedTuple):
    pieces: list[Piece]
    base_ms: int
    batch: bytearray

    def told(self) -> list[tuple[Any, ...]]:
        """What a reader is to find, as Kafka's own consumers read it."""
        return [
            (
                (self.base_ms + piece.time_delta + INT64) % (2 * INT64) - INT64,
                piece.key,
                piece.value,
                tuple((name.decode(errors="replace"), value) for name, value in piece.headers),
            )
            for piece in self.pieces
        ]


def sent_of(
    pieces: list[Piece], codec: Codec, more_bits: int, base_ms: int, latest_ms: int
) -> Sent:
    block = b"".join(encoded(piece, place) for place, piece in enumerate(pieces))
    records = compress(codec, block) if codec else block
    batch = bytearray(HEADER_BYTES) + records
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_OVERHEAD, 0, MAGIC, 0, codec | more_bits << 7,
        len(pieces) - 1, base_ms, latest_ms, -1, -1, -1, len(pieces),
    )  # fmt: skip
    seal_batch(batch, 0, len(batch))
    return Sent(pieces, base_ms, batch)


names = st.binary(max_size=6) | st.sampled_from(
    [b"", b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"a\0b", "größe".encode()]
)
ours = st.sampled_from([*NUMBER_BOUNDS, PRIORITY, "headrace-foo"]).map(str.encode)
garbage = st.sampled_from([None, b"", b"-1", b"soon", b"\xff", b"1_0", b"9" * 40, b" 1"])
# Any text would be the name of a group.
no_groups = st.tuples(st.just(REDRIVE_GROUP.encode()), st.sampled_from([None, b"", b"\xff"]))
headers = st.tuples(names, st.none() | st.binary(max_size=5)) | st.tuples(ours, garbage) | no_groups
extremes = st.sampled_from([0, 1, -1, INT64 - 1, -INT64, NOW_MS, -NOW_MS, 2**62, -(2**62)])
times = extremes | st.integers(-INT64, INT64 - 1)
pieces = st.builds(
    Piece,
    st.integers(0, 255),
    st.integers(0, 100) | times,
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=20),
    st.lists(headers, max_size=4).map(tuple),
    st.integers(0, 2),
)
batches = st.builds(
    sent_of,
    st.lists(pieces, min_size=1, max_size=4),
    st.sampled_from(list(Codec)),
    st.sampled_from([0, 0, 1, 0xFF]),
    st.just(NOW_MS) | times,
    st.just(NOW_MS) | times,
)


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS


def streamed(node: Node, topic: str) -> list[StreamRecord]:
    found: list[StreamRecord] = []
    position, end = 0, -1
    while position != end:
        records, end = node.read(topic, 0, position)
        found += records
        position, end = end, position
    return found


def told(record: StreamRecord | Delivery) -> tuple[Any, ...]:
    at_ms = record.created_at_ms if isinstance(record, Delivery) else record.timestamp_ms
    return at_ms, record.key, record.value, record.headers


def check_doors(record: StreamRecord | Delivery) -> None:
    """Each writes it, whatever it holds."""
    if isinstance(record, Delivery):
        msgspec.json.encode(http_shown.shown_delivery(record))
        [shown] = grpc_shown.shown_deliveries([record])
    else:
        msgspec.json.encode(http_shown.shown_record(record))
        shown = grpc_shown.shown_record(record)
        assert Record[Any](record).timestamp is not None
    assert shown.SerializeToString()


@given(batches, st.sampled_from(sorted(TOPICS)))
def test_what_is_accepted_is_delivered_by_every_reader(sent: Sent, topic: str) -> None:
    count = len(sent.pieces)
    with closing(Node.open(":memory:", disk=MemoryDisk(), clock=StillClock())) as node:
        node.create_topic(topic, partitions=1, settings=ANY_TIME | TOPICS[topic])
        if topic != "streamed":
            node.open_queue(GROUP, [topic], "ann")
        try:
            node.publish_batch(topic, 0, bytearray(sent.batch))
        except HeadraceError:
            assert not streamed(node, topic)
            return
        records = streamed(node, topic)
        assert [told(each) for each in records] == sent.told()
        for record in records:
            check_doors(record)
            assert node.trace(f"{topic}:0:{record.offset}").published_at_ms == record.timestamp_ms
        block = open_block(sent.batch, read_header(sent.batch))
        assert decode_columns([block], 0, count, with_headers=True).rows == count
        if topic == "streamed":
            # A group that comes later goes over what is there.
            node.open_queue(GROUP, [topic], "ann")
        leased = node.lease(GROUP, [topic], "ann", 100)
        while topic == "keyed" and len(leased) < count:
            # Of one key one at a time.
            node.ack(GROUP, [each.receipt for each in leased])
            more = node.lease(GROUP, [topic], "ann", 100)
            assert more
            leased += more
        leased.sort(key=lambda each: each.offset)
        assert [told(each) for each in leased] == sent.told()
        for delivery in leased:
            check_doors(delivery)


@given(batches)
def test_what_is_accepted_and_given_up_is_a_dead_letter(sent: Sent) -> None:
    with closing(Node.open(":memory:", disk=MemoryDisk(), clock=StillClock())) as node:
        node.create_topic("queued", partitions=1, settings=ANY_TIME)
        node.open_queue(GROUP, ["queued"], "ann")
        try:
            node.publish_batch("queued", 0, bytearray(sent.batch))
        except HeadraceError:
            return
        leased = node.lease(GROUP, ["queued"], "ann", 100)
        node.reject(GROUP, [each.receipt for each in leased], reason="no")
        letters = node.dead_letters("queued")
        found = [(each.created_at_ms, each.key, each.value, each.headers) for each in letters]
        assert sorted(found, key=repr) == sorted(sent.told(), key=repr)
        for letter in letters:
            assert letter.source.offset in range(len(sent.pieces))
            assert DeadLetterView(letter).created_at is not None
            msgspec.json.encode(http_shown.shown_letter(letter))
            assert grpc_shown.shown_letter(letter).SerializeToString()
