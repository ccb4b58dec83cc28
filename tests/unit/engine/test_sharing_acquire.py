"""Share groups at the engine: who gets what, in which batches."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.unit.engine.conftest import Bench
from tests.unit.engine.share_bench import Shares, offsets_in, publish_batch

from headrace.core import limits
from headrace.core.errors import TooManyLeases
from headrace.core.values import Outgoing
from headrace.engine.sharing import ACCEPT, RELEASE
from headrace.record import (
    Codec,
    NewRecord,
    attribute_headers,
    build_batch,
    check_batch,
    compression,
    read_records,
    reader,
)

PRIORITIES = ("critical", "high", "normal", "low", "background")


def publish_lanes(bench: Bench, lanes: list[str]) -> None:
    """One message for each of these priorities, in this order."""
    messages = [Outgoing(b"x", None, attribute_headers(priority=lane)) for lane in lanes]
    bench.node.publish(bench.topic, messages)


@pytest.fixture
def shares(bench: Bench) -> Shares:
    return Shares(bench)


# Acquiring.


def test_what_one_member_acquired_no_other_gets(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 10)
    assert shares.acquire("m1", 6) == [(0, 6, 1)]
    assert shares.acquire("m2", 6) == [(6, 10, 1)]
    assert shares.acquire("m3") == []


def test_ranges_ascend_whatever_the_lanes(bench: Bench, shares: Shares) -> None:
    bench.make()
    for number in range(8):
        bench.publish(b"x", priority="critical" if number % 3 == 2 else "low")
    [found] = shares.acquire_all()
    assert found.ranges == sorted(found.ranges)
    assert found.ranges == [(0, 8, 1)]
    assert offsets_in(found) == list(range(8))


def test_urgent_messages_come_in_an_earlier_answer(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 100, priority="background")
    bench.publish(*[b"x"] * 10, priority="critical")
    assert shares.acquire("m1", 10) == [(100, 110, 1)]


def test_mixed_priorities_do_not_make_an_answer_smaller(bench: Bench, shares: Shares) -> None:
    bench.make()
    lanes = [PRIORITIES[number % 5] for number in range(1_200)]
    for lane in PRIORITIES:
        # Each lane lies in runs of one, between the others.
        assert lanes.count(lane) == 240
    publish_lanes(bench, lanes)
    [found] = shares.acquire_all("m1", 500)
    given = [offset for start, end, _ in found.ranges for offset in range(start, end)]
    assert len(given) == 500 and len(found.ranges) > 100
    assert set(given) <= set(offsets_in(found))
    # What is acknowledged range by range, as clients do it, is done.
    shares.settle(*[(start, end - 1, [ACCEPT]) for start, end, _ in found.ranges])
    taken = sum(end - start for start, end, _ in shares.acquire("m1", 700))
    assert taken == 700


def test_ranges_of_an_answer_are_limited_and_the_urgent_ones_first(
    bench: Bench, shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 64
    monkeypatch.setattr(limits, "SHARE_RANGES_MAX", most)
    bench.make()
    publish_lanes(bench, ["critical" if n % 2 else "background" for n in range(3 * most)])
    # All others first, so that nothing that is left touches anything else.
    found = shares.acquire("m1", most + 10)
    assert len(found) <= most
    assert found == sorted(found)
    critical = [start for start, end, _ in found for start in range(start, end) if start % 2]
    assert len(critical) > sum(end - start for start, end, _ in found) // 2
    rest = shares.acquire("m2", 500)
    taken = sum(end - start for start, end, _ in [*found, *rest])
    while more := shares.acquire("m2", 500):
        taken += sum(end - start for start, end, _ in more)
    assert taken == 3 * most


def test_deliveries_split_ranges(bench: Bench, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((1, 2, [RELEASE]))
    shares.close("m1")
    assert shares.acquire() == [(0, 1, 1), (1, 3, 2), (3, 4, 1)]


def test_a_large_answer_is_cut_and_the_rest_stays_ready(bench: Bench, shares: Shares) -> None:
    bench.make()
    for _ in range(10):
        bench.publish(b"x" * 1000)
    assert shares.acquire("m1", bytes_max=2500) == [(0, 2, 1)]
    assert shares.acquire("m1", bytes_max=1) == [(2, 3, 1)]
    assert shares.acquire("m1") == [(3, 10, 1)]


def test_a_member_holds_no_more_than_the_group_allows(bench: Bench, shares: Shares) -> None:
    bench.make(group={"leases_per_consumer_max": 3})
    bench.publish(*[b"x"] * 5)
    assert shares.acquire("m1") == [(0, 3, 1)]
    with pytest.raises(TooManyLeases):
        shares.acquire("m1")
    assert shares.acquire("m2") == [(3, 5, 1)]


def test_a_delayed_message_is_acquired_when_it_is_due(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(b"later", delay_ms=1000)
    bench.publish(b"now")
    assert shares.acquire() == [(1, 2, 1)]
    bench.skip(1000)
    assert shares.acquire() == [(0, 1, 1)]


def test_an_expired_message_is_not_acquired(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(b"soon over", ttl_ms=500)
    bench.publish(b"stays")
    bench.skip(501)
    assert shares.acquire() == [(1, 2, 1)]
    assert bench.state(0) == "expired"


# Batches.


@pytest.mark.parametrize("codec", range(5))
def test_a_small_bite_of_a_large_batch_is_cut_out(bench: Bench, shares: Shares, codec: int) -> None:
    bench.make()
    publish_batch(bench, 3, codec=codec)
    publish_batch(bench, 1000, codec=codec)
    [small] = shares.acquire_all(count=3)
    assert offsets_in(small) == [0, 1, 2]
    for start in (3, 13):
        [found] = shares.acquire_all(count=10)
        assert found.ranges == [(start, start + 10, 1)]
        [batch] = found.batches
        header = check_batch(batch)
        records = read_records(batch, header)
        assert [record.offset for record in records] == list(range(start, start + 10))
        assert [record.value for record in records] == [
            b"value %d" % (offset - 3) for offset in range(start, start + 10)
        ]
        assert [record.key for record in records] == [
            b"k%d" % (offset - 3) for offset in range(start, start + 10)
        ]
        assert records[0].headers == (("h", b"v"),)
        assert records[0].timestamp_ms == 1000 + start - 3


def test_a_good_part_of_a_batch_is_sent_whole(bench: Bench, shares: Shares) -> None:
    bench.make()
    publish_batch(bench, 100)
    [found] = shares.acquire_all(count=25)
    assert found.ranges == [(0, 25, 1)]
    assert offsets_in(found) == list(range(100))


def test_single_messages_of_one_batch_are_cut_out_together(bench: Bench, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    publish_batch(bench, 100)
    shares.acquire()
    shares.settle((0, 9, [ACCEPT]), (10, 10, [RELEASE]), (11, 49, [ACCEPT]), (50, 50, [RELEASE]))
    shares.settle((51, 99, [ACCEPT]))
    [found] = shares.acquire_all()
    assert found.ranges == [(10, 11, 2), (50, 51, 2)]
    assert offsets_in(found) == [10, 50]


def test_records_that_compaction_took_are_not_acquired(bench: Bench, shares: Shares) -> None:
    bench.make(topic={"cleanup": "compact", "segment_bytes": 1024})
    for number in range(30):
        bench.publish(b"%d" % number + b"x" * 200, key=b"same" if number % 2 else b"k%d" % number)
    with bench.node._writing() as (now_ms, _):
        partition = bench.partition()
        for _ in partition.log.compact(now_ms, partition.log.synced_end):
            pass
    found = shares.acquire_all(bytes_max=2**20)
    given = [o for each in found for start, end, _ in each.ranges for o in range(start, end)]
    assert given == offsets_in(found[0])
    assert 0 in given and 1 not in given
    shares.settle(*[(start, end - 1, [ACCEPT]) for start, end, _ in found[0].ranges])
    assert shares.acquire() == []
    assert bench.partition().views[1].window.start == 30


# Opening.

OPENED_BYTES_MAX = 20_000


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each batch had that was opened for members."""
    sizes: list[int] = []
    decompress = compression.decompress

    def note(*given: Any) -> bytes:
        block = decompress(*given)
        sizes.append(len(block))
        return block

    monkeypatch.setattr(reader, "decompress", note)
    monkeypatch.setattr(limits, "LEASE_OPENED_BYTES_MAX", OPENED_BYTES_MAX)
    return sizes


def publish_between(bench: Bench, lane: str, **others: Any) -> None:
    """One small message and four large ones, in a batch of some hundred bytes."""
    records = [NewRecord(None, b"x", attribute_headers(priority=lane))]
    records += [NewRecord(None, bytes(2_000), attribute_headers(**others))] * 4
    bench.node.publish_batch(bench.topic, 0, build_batch(records, codec=Codec.LZ4))


def test_what_one_answer_opens_is_bounded_and_the_rest_comes_with_the_next(
    bench: Bench, shares: Shares, opened: list[int]
) -> None:
    bench.make()
    for _ in range(20):
        publish_between(bench, "critical", priority="normal")
    given: list[int] = []
    while len(given) < 20:
        opened.clear()
        found = shares.acquire("m1", 20 - len(given))
        assert found and sum(opened) <= OPENED_BYTES_MAX + max(opened, default=0)
        given += [start for start, _, _ in found]
    assert given == list(range(0, 100, 5))


def test_what_would_have_to_be_opened_first_does_not_keep_the_urgent_waiting(
    bench: Bench, shares: Shares, opened: list[int]
) -> None:
    bench.make()
    for _ in range(20):
        publish_between(bench, "low", delay_ms=1_000_000)
    bench.publish(b"now", priority="critical")
    opened.clear()
    assert shares.acquire("m1") == [(100, 101, 1)]
    assert sum(opened) <= OPENED_BYTES_MAX + 2 * max(opened)


def test_what_is_opened_to_see_which_were_delayed_is_bounded(
    bench: Bench, shares: Shares, opened: list[int]
) -> None:
    bench.make()
    bench.publish(b"later", delay_ms=1_000_000)
    large = build_batch([NewRecord(None, bytes(9_000))], codec=Codec.LZ4)
    for _ in range(20):
        bench.node.publish_batch(bench.topic, 0, large)
    assert shares.acquire("m1") == [(1, 4, 1)]
    assert shares.acquire("m1") == [(4, 7, 1)]


def test_what_compaction_thinned_out_is_opened_within_the_bound(
    bench: Bench, shares: Shares, opened: list[int]
) -> None:
    bench.make(topic={"cleanup": "compact", "segment_bytes": 1024})
    for number in range(20):
        keys = (b"same", b"a%d" % number, b"b%d" % number)
        records = [NewRecord(key, bytes(9_000)) for key in keys]
        bench.node.publish_batch(bench.topic, 0, build_batch(records, codec=Codec.LZ4))
        bench.publish(os.urandom(1_000), key=b"filling")
    with bench.node._writing() as (now_ms, _):
        partition = bench.partition()
        for _ in partition.log.compact(now_ms, partition.log.synced_end):
            pass
    opened.clear()
    found = shares.acquire("m1")
    assert found and sum(opened) <= OPENED_BYTES_MAX + max(opened)


# Whole batches.


def test_a_batch_that_is_begun_is_given_whole_where_more_may_be_had(
    bench: Bench, shares: Shares
) -> None:
    bench.make()
    for size in (20, 50, 50, 50):
        publish_batch(bench, size)
    assert shares.acquire("m1", 50, more=50) == [(0, 70, 1)]
    [found] = shares.acquire_all("m2", 50, more=50)
    assert found.ranges == [(70, 120, 1)]
    assert offsets_in(found) == list(range(70, 120))


def test_a_batch_too_large_for_that_is_left_for_the_next_time(bench: Bench, shares: Shares) -> None:
    bench.make()
    publish_batch(bench, 30)
    publish_batch(bench, 500)
    assert shares.acquire("m1", 50, more=50) == [(0, 30, 1)]
    assert shares.acquire("m1", 50, more=50) == [(30, 130, 1)]


def test_a_large_batch_is_begun_where_little_else_would_be_given(
    bench: Bench, shares: Shares
) -> None:
    bench.make()
    publish_batch(bench, 5)
    publish_batch(bench, 500)
    assert shares.acquire("m1", 50, more=50) == [(0, 100, 1)]


@pytest.mark.parametrize(("most", "end"), [(60, 60), (70, 70)])
def test_a_whole_batch_keeps_within_what_a_member_may_hold(
    bench: Bench, shares: Shares, most: int, end: int
) -> None:
    bench.make(group={"leases_per_consumer_max": most})
    publish_batch(bench, 20)
    publish_batch(bench, 50)
    assert shares.acquire("m1", 50, more=50) == [(0, end, 1)]


def test_more_than_was_asked_for_is_of_the_same_lane_and_ready(
    bench: Bench, shares: Shares
) -> None:
    bench.make(group={"backoff_ms": 0})
    publish_batch(bench, 100)
    shares.acquire("m2", 70)
    shares.settle((0, 59, [RELEASE]), member="m2")
    assert shares.acquire("m1", 50, more=50) == [(0, 60, 2)]
    bench.publish(*[b"x"] * 10, priority="low")
    bench.publish(*[b"x"] * 10, priority="critical")
    assert shares.acquire("m1", 5, more=50) == [(110, 120, 1)]


def test_what_a_lane_gives_beyond_its_plan_it_pays_for(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 50, priority="critical")
    bench.publish(*[b"x"] * 50, priority="background")
    bench.publish(*[b"x"] * 60, priority="critical")
    # All of the first batch, which is all that the critical lane has in this round.
    assert shares.acquire("m1", 10, more=40) == [(0, 50, 1)]
    assert shares.acquire("m1", 4) == [(50, 53, 1), (100, 101, 1)]
