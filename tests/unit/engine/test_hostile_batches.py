"""Batches that are small on the wire and vast inside: a queue refuses them where it sees
them come, and where they are in the log already it goes on, within bounds."""

from __future__ import annotations

import contextlib
import functools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.errors import CorruptBatch, RecordTooLarge, UnknownMessage
from headrace.core.values import Outgoing, PlacedBatch
from headrace.engine import contents
from headrace.engine.records import KeptBlocks
from headrace.record import Codec, NewRecord, build_batch
from headrace.record.batch import HEADER_BYTES, seal_batch

TOPIC = "orders"
GROUP = "workers"
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MEGABYTES = 1024 * 1024


@functools.cache
def many_headers(count: int = 200_000, codec: Codec = Codec.ZSTD) -> bytes:
    return bytes(build_batch([NewRecord(b"k", b"bomb", (("", b""),) * count)], codec=codec))


def nonsense() -> bytes:
    batch = build_batch([NewRecord(None, b"x" * 100)] * 3)
    batch[HEADER_BYTES] = 0x7E
    seal_batch(batch, 0, len(batch))
    return bytes(batch)


@functools.cache
def vast(codec: Codec = Codec.ZSTD) -> bytes:
    """More inside than is opened."""
    large = NewRecord(None, bytes(limits.RECORD_BYTES_MAX - 99))
    return bytes(build_batch([large] * 3, codec=codec))


@contextlib.contextmanager
def at_most(megabytes: int) -> Iterator[None]:
    """What is done in here takes no more memory than this."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < megabytes * MEGABYTES


def append(bench: Any, batch: bytes | bytearray, partition: int = 0) -> None:
    bench.node.publish_batch(TOPIC, partition, bytearray(batch))


def read_values(bench: Any, count: int = 1_000) -> list[bytes]:
    return [each.value for each in bench.node.lease(GROUP, [TOPIC], "ann", count)]


@pytest.mark.parametrize("topic", [{}, {"dedup": True}, {"ordering": "key"}])
@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_that_a_queue_reads_refuses_records_beyond_the_limits(
    bench: Any, codec: Codec, topic: dict[str, Any]
) -> None:
    bench.make(topic=topic)
    with pytest.raises(RecordTooLarge, match="128 headers"):
        append(bench, many_headers(129, codec))
    with pytest.raises(RecordTooLarge, match="smaller batches"):
        append(bench, vast(codec))
    with pytest.raises(CorruptBatch):
        append(bench, nonsense())
    bench.node.publish(TOPIC, [Outgoing(b"good")])
    assert read_values(bench) == [b"good"]


def test_one_bad_batch_of_a_call_keeps_none_of_the_others_back(bench: Any) -> None:
    bench.make()
    good = [build_batch([NewRecord(None, b"%d" % number)]) for number in range(2)]
    batches = [good[0], bytearray(many_headers(129)), good[1]]
    placed = [PlacedBatch(TOPIC, 0, batch) for batch in batches]
    first, refused, last = bench.node.publish_batches(placed)
    assert isinstance(refused, RecordTooLarge)
    assert (first.offset, last.offset) == (0, 1)


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
def test_headers_beyond_the_limits_that_are_in_the_log_are_delivered_within_them(
    bench: Any, ordering: str
) -> None:
    bench.node.create_topic(TOPIC, partitions=1, settings={"ordering": ordering})
    for _ in range(10):
        append(bench, many_headers())
    # Two million headers are 200 MB.
    with at_most(30):
        bench.node.open_queue(GROUP, [TOPIC], "ann")
        leased = bench.node.lease(GROUP, [TOPIC], "ann", 1_000)
    assert leased
    assert all(each.value == b"bomb" for each in leased)
    assert all(len(each.headers) == limits.HEADERS_READ_MAX for each in leased)


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("bad", [nonsense, vast])
def test_a_batch_in_the_log_that_cannot_be_opened_is_skipped_and_noted(
    bench: Any, bad: Any, ordering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.node.create_topic(TOPIC, partitions=1, settings={"ordering": ordering})
    bench.node.publish(TOPIC, [Outgoing(b"before")])
    with monkeypatch.context() as patched:
        # As a version that did not look has stored it.
        patched.setattr(contents, "may_hold_more", lambda *_: False)
        patched.setattr(contents, "_check_records", lambda *_: True)
        append(bench, bad())
    bench.node.publish(TOPIC, [Outgoing(b"behind")])
    bench.node.open_queue(GROUP, [TOPIC], "ann")
    assert read_values(bench) == [b"before", b"behind"]
    unreadable = bench.partition().records.unreadable
    assert unreadable.count == 1
    [noted] = unreadable.known()
    assert unreadable.take_untold() == [noted]
    assert (noted.start, noted.end) == (1, 4)
    assert noted.why
    assert unreadable.take_untold() == []


@pytest.mark.parametrize("bad", [nonsense, vast])
def test_a_trace_says_that_a_batch_cannot_be_opened(
    bench: Any, bad: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "may_hold_more", lambda *_: False)
    monkeypatch.setattr(contents, "_check_records", lambda *_: True)
    bench.node.create_topic(TOPIC, partitions=1)
    append(bench, bad())
    with pytest.raises(UnknownMessage, match="cannot be read: of its batch, ."):
        bench.node.trace(f"{TOPIC}:0:2")


def test_a_lease_has_one_bound_in_bytes_whatever_the_number_of_messages(bench: Any) -> None:
    bench.node.create_topic(TOPIC, partitions=4)
    batch = build_batch([NewRecord(None, bytes(4 * MEGABYTES))], codec=Codec.ZSTD)
    for number in range(24):
        append(bench, batch, number % 4)
    bench.node.open_queue(GROUP, [TOPIC], "ann")
    seen = 0
    with at_most((limits.LEASE_BYTES_MAX + limits.DECODED_BYTES_KEPT_MAX) // MEGABYTES + 30):
        while leased := bench.node.lease(GROUP, [TOPIC], "ann", 1_000):
            assert sum(len(each.value) for each in leased) <= limits.LEASE_BYTES_MAX
            bench.node.ack(GROUP, [each.receipt for each in leased])
            seen += len(leased)
            del leased
    assert seen == 24


def test_a_message_larger_than_the_bound_of_a_lease_is_leased_alone(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LEASE_BYTES_MAX", 1_000)
    bench.make()
    for _ in range(3):
        bench.node.publish(TOPIC, [Outgoing(b"x" * 5_000)])
    for _ in range(3):
        assert len(read_values(bench)) == 1
    assert not read_values(bench)


def test_a_batch_of_very_many_records_is_read_in_parts(bench: Any) -> None:
    bench.node.create_topic(TOPIC, partitions=1)
    append(bench, build_batch([NewRecord(None, b"v")] * 100_000, codec=Codec.ZSTD))
    bench.node.open_queue(GROUP, [TOPIC], "ann")
    with at_most(12):
        assert len(read_values(bench, 64)) == 64
        found, offset = bench.node.read(TOPIC, 0, 90_000, count_max=10, bytes_max=1_000)
    assert [record.offset for record in found] == list(range(90_000, 90_010))
    assert offset == 90_010


def test_what_readers_keep_is_bounded_together() -> None:
    class Reader:
        def __init__(self) -> None:
            self.dropped: list[int] = []

        def drop(self, start: int) -> None:
            self.dropped.append(start)
            kept.remove(self, start)  # type: ignore[arg-type]

    kept = KeptBlocks(1_000)
    first, second = Reader(), Reader()
    for start in range(3):
        kept.add(first, start, 300)  # type: ignore[arg-type]
    kept.add(second, 7, 500)  # type: ignore[arg-type]
    assert (first.dropped, second.dropped) == ([0, 1], [])
    assert kept.size_bytes == 800
