"""Share groups at the engine: who gets what, and what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pytest

from headrace.core.errors import HeadraceError, InvalidArgument, StaleReceipt, TooManyLeases
from headrace.core.limits import SHARE_RANGES_MAX
from headrace.engine.sharing import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
)
from headrace.record import build_batch, check_batch, read_records, split_batches
from headrace.record.record import NewRecord


class BenchLike(Protocol):
    node: Any
    group: str
    topic: str
    clock: Any

    def make(self, **settings: Any) -> None: ...
    def publish(self, *values: bytes, **attributes: Any) -> list[int]: ...
    def lease(self, count: int = 10, *, by: str = "ann") -> list[Any]: ...
    def skip(self, passed_ms: int) -> None: ...
    def state(self, offset: int) -> str: ...
    def attempts(self, offset: int) -> int: ...
    def partition(self, index: int = 0, *, topic: str = "orders") -> Any: ...
    def crash(self) -> None: ...
    def reopen(self) -> None: ...


class Shares:
    """Members of the bench's group, as the Kafka door would speak for them."""

    def __init__(self, bench: BenchLike) -> None:
        self.bench = bench

    @property
    def _broker(self) -> Any:
        return self.bench.node._broker

    def acquire_all(
        self, member: str = "m1", count: int = 500, bytes_max: int = 2**20
    ) -> list[Acquired]:
        with self.bench.node._writing() as (now_ms, _):
            topic = self._broker.topics.named(self.bench.topic)
            found: list[Acquired] = self._broker.sharing.acquire(
                self._broker.groups.named(self.bench.group),
                self._broker.topics.partitions(topic),
                member, count, bytes_max, now_ms,
            )  # fmt: skip
            return found

    def acquire(
        self, member: str = "m1", count: int = 500, bytes_max: int = 2**20
    ) -> list[tuple[int, int, int]]:
        """The ranges of the only partition."""
        found = self.acquire_all(member, count, bytes_max)
        return found[0].ranges if found else []

    def settle(self, *ranges: tuple[int, int, Sequence[int]], member: str = "m1") -> None:
        with self.bench.node._writing() as (now_ms, commit):
            self._broker.sharing.acknowledge(
                self._broker.groups.named(self.bench.group),
                self.bench.partition(),
                member,
                [Acknowledgement(*each) for each in ranges],
                now_ms,
                commit,
            )

    def close(self, member: str) -> None:
        with self.bench.node._writing() as (now_ms, _):
            group = self._broker.groups.named(self.bench.group)
            self._broker.sharing.release_all(group, member, now_ms)

    def lose(self, member: str) -> None:
        with self.bench.node._writing() as (now_ms, commit):
            group = self._broker.groups.named(self.bench.group)
            self._broker.sharing.end_leases(group, member, now_ms, commit)

    def letters(self) -> int:
        return len(self.bench.node.dead_letters(self.bench.topic))


@pytest.fixture
def shares(bench: BenchLike) -> Iterator[Shares]:
    yield Shares(bench)


def offsets_in(found: Acquired) -> list[int]:
    """The offsets of all records in the batches that were sent."""
    offsets = []
    for batch in found.batches:
        for position, header in split_batches(batch):
            check_batch(batch, position)
            offsets += [
                record.offset for record in read_records(memoryview(batch)[position:], header)
            ]
    return offsets


# Acquiring.


def test_what_one_member_acquired_no_other_gets(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 10)
    assert shares.acquire("m1", 6) == [(0, 6, 1)]
    assert shares.acquire("m2", 6) == [(6, 10, 1)]
    assert shares.acquire("m3") == []


def test_ranges_ascend_whatever_the_lanes(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    for number in range(8):
        bench.publish(b"x", priority="critical" if number % 3 == 2 else "low")
    [found] = shares.acquire_all()
    assert found.ranges == sorted(found.ranges)
    assert found.ranges == [(0, 8, 1)]
    assert offsets_in(found) == list(range(8))


def test_urgent_messages_come_in_an_earlier_answer(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 100, priority="background")
    bench.publish(*[b"x"] * 10, priority="critical")
    assert shares.acquire("m1", 10) == [(100, 110, 1)]


def test_ranges_of_an_answer_are_few_and_the_urgent_ones_first(
    bench: BenchLike, shares: Shares
) -> None:
    bench.make()
    for number in range(3 * SHARE_RANGES_MAX):
        bench.publish(b"x", priority="critical" if number % 2 else "background")
    # All others first, so that nothing that is left touches anything else.
    found = shares.acquire("m1", SHARE_RANGES_MAX + 10)
    assert len(found) <= SHARE_RANGES_MAX
    assert found == sorted(found)
    critical = [start for start, end, _ in found for start in range(start, end) if start % 2]
    assert len(critical) > sum(end - start for start, end, _ in found) // 2
    rest = shares.acquire("m2", 500)
    taken = sum(end - start for start, end, _ in [*found, *rest])
    while more := shares.acquire("m2", 500):
        taken += sum(end - start for start, end, _ in more)
    assert taken == 3 * SHARE_RANGES_MAX


def test_deliveries_split_ranges(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((1, 2, [RELEASE]))
    shares.close("m1")
    assert shares.acquire() == [(0, 1, 1), (1, 3, 2), (3, 4, 1)]


def test_a_large_answer_is_cut_and_the_rest_stays_ready(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    for _ in range(10):
        bench.publish(b"x" * 1000)
    assert shares.acquire("m1", bytes_max=2500) == [(0, 2, 1)]
    assert shares.acquire("m1", bytes_max=1) == [(2, 3, 1)]
    assert shares.acquire("m1") == [(3, 10, 1)]


def test_a_member_holds_no_more_than_the_group_allows(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"leases_per_consumer_max": 3})
    bench.publish(*[b"x"] * 5)
    assert shares.acquire("m1") == [(0, 3, 1)]
    with pytest.raises(TooManyLeases):
        shares.acquire("m1")
    assert shares.acquire("m2") == [(3, 5, 1)]


def test_a_delayed_message_is_acquired_when_it_is_due(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(b"later", delay_ms=1000)
    bench.publish(b"now")
    assert shares.acquire() == [(1, 2, 1)]
    bench.skip(1000)
    assert shares.acquire() == [(0, 1, 1)]


def test_an_expired_message_is_not_acquired(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(b"soon over", ttl_ms=500)
    bench.publish(b"stays")
    bench.skip(501)
    assert shares.acquire() == [(1, 2, 1)]
    assert bench.state(0) == "expired"


# Batches.


def publish_batch(bench: BenchLike, count: int, **options: Any) -> None:
    """One batch of so many records, as a client sends it."""
    from headrace.record import read_header

    records = [
        NewRecord(b"k%d" % n, b"value %d" % n, (("h", b"v"),), timestamp_ms=1000 + n)
        for n in range(count)
    ]
    with bench.node._writing() as (now_ms, commit):
        batch = build_batch(records, **options)
        partition = bench.partition()
        partition.append(batch, read_header(batch), now_ms)
        commit.data.append((partition, partition.log.end_offset))


@pytest.mark.parametrize("codec", range(5))
def test_a_small_bite_of_a_large_batch_is_cut_out(
    bench: BenchLike, shares: Shares, codec: int
) -> None:
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


def test_a_good_part_of_a_batch_is_sent_whole(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    publish_batch(bench, 100)
    [found] = shares.acquire_all(count=25)
    assert found.ranges == [(0, 25, 1)]
    assert offsets_in(found) == list(range(100))


def test_single_messages_of_one_batch_are_cut_out_together(
    bench: BenchLike, shares: Shares
) -> None:
    bench.make(group={"backoff_ms": 0})
    publish_batch(bench, 100)
    shares.acquire()
    shares.settle((0, 9, [ACCEPT]), (10, 10, [RELEASE]), (11, 49, [ACCEPT]), (50, 50, [RELEASE]))
    shares.settle((51, 99, [ACCEPT]))
    [found] = shares.acquire_all()
    assert found.ranges == [(10, 11, 2), (50, 51, 2)]
    assert offsets_in(found) == [10, 50]


def test_records_that_compaction_took_are_not_acquired(bench: BenchLike, shares: Shares) -> None:
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


# Acknowledging.


def test_accepted_messages_are_done(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((0, 3, [ACCEPT]))
    assert [bench.state(offset) for offset in range(4)] == ["acked"] * 4


def test_acceptance_survives_a_crash(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT]))
    bench.crash()
    assert [bench.state(offset) for offset in range(4)] == [
        "acked", "retrying", "dead-lettered", "pending",
    ]  # fmt: skip
    assert bench.attempts(3) == 1


def test_a_released_message_rests_before_it_comes_again(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 1000})
    bench.publish(b"x")
    shares.acquire()
    shares.settle((0, 0, [RELEASE]))
    assert shares.acquire("m2") == []
    bench.skip(1000)
    assert shares.acquire("m2") == [(0, 1, 2)]


def test_a_message_released_too_often_is_a_dead_letter(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"max_attempts": 2, "backoff_ms": 0})
    bench.publish(b"x")
    for _ in range(2):
        shares.acquire()
        shares.settle((0, 0, [RELEASE]))
    assert shares.acquire() == []
    assert shares.letters() == 1


def test_a_messages_own_maximum_holds_here_too(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(b"x", max_attempts=1)
    bench.publish(b"y")
    shares.acquire()
    shares.settle((0, 1, [RELEASE]))
    assert shares.acquire() == [(1, 2, 2)]
    assert shares.letters() == 1


def test_a_rejected_message_is_a_dead_letter(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(b"x", b"y")
    shares.acquire()
    shares.settle((0, 1, [REJECT, ACCEPT]))
    assert [bench.state(0), bench.state(1)] == ["dead-lettered", "acked"]
    [letter] = bench.node.dead_letters(bench.topic)
    assert letter.reason == "rejected"


def test_a_type_for_each_offset(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(*[b"x"] * 5)
    shares.acquire()
    shares.settle((0, 4, [ACCEPT, RELEASE, ACCEPT, REJECT, ACCEPT]))
    assert shares.acquire() == [(1, 2, 2)]
    assert shares.letters() == 1


def test_a_gap_where_a_message_is_releases_it(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(b"x", b"y")
    shares.acquire()
    shares.settle((0, 1, [GAP, ACCEPT]))
    assert shares.acquire() == [(0, 1, 2)]


def test_a_gap_where_nothing_is_changes_nothing(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 3)
    shares.acquire()
    shares.settle((1, 1, [ACCEPT]))
    shares.settle((0, 2, [ACCEPT, GAP, ACCEPT]))
    assert [bench.state(offset) for offset in range(3)] == ["acked"] * 3


def test_a_renewed_lease_lasts_longer(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"visibility_ms": 1000})
    bench.publish(b"x", b"y")
    shares.acquire()
    bench.skip(800)
    shares.settle((0, 0, [RENEW]))
    bench.skip(800)
    assert shares.acquire("m2") == [(1, 2, 2)]
    shares.settle((0, 0, [ACCEPT]))
    assert bench.state(0) == "acked"


def test_a_lease_that_ran_out_is_delivered_again(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"visibility_ms": 1000})
    bench.publish(b"x")
    shares.acquire("m1")
    bench.skip(1000)
    assert shares.acquire("m2") == [(0, 1, 2)]
    with pytest.raises(StaleReceipt):
        shares.settle((0, 0, [ACCEPT]), member="m1")


@pytest.mark.parametrize(
    ("ranges", "error"),
    [
        ([(0, 9, [ACCEPT])], StaleReceipt),  # The last one is another member's.
        ([(0, 3, [ACCEPT]), (3, 4, [ACCEPT])], InvalidArgument),
        ([(4, 5, [ACCEPT]), (0, 1, [ACCEPT])], InvalidArgument),
        ([(5, 4, [ACCEPT])], InvalidArgument),
        ([(0, 3, [ACCEPT, ACCEPT])], InvalidArgument),
        ([(0, 3, [])], InvalidArgument),
        ([(0, 3, [9])], InvalidArgument),
        ([(0, 3, [-1])], InvalidArgument),
        ([(0, 3, [ACCEPT]), (20, 20, [ACCEPT])], StaleReceipt),
        ([(0, 3, [ACCEPT]), (9, 9, [GAP])], StaleReceipt),
    ],
)
def test_acknowledgements_hold_together_or_not_at_all(
    bench: BenchLike, shares: Shares, ranges: list[Any], error: type[HeadraceError]
) -> None:
    bench.make()
    bench.publish(*[b"x"] * 10)
    shares.acquire("m1", 9)
    shares.acquire("m2", 1)
    with pytest.raises(error):
        shares.settle(*ranges)
    assert {bench.state(offset) for offset in range(10)} == {"leased"}


def test_what_lies_below_the_start_is_accepted_in_silence(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((0, 1, [ACCEPT]))
    shares.settle((0, 2, [RELEASE, REJECT, ACCEPT]))
    assert [bench.state(offset) for offset in range(4)] == ["acked"] * 3 + ["leased"]


def test_one_acknowledgement_over_several_grants_and_chunks(
    bench: BenchLike, shares: Shares
) -> None:
    bench.make(group={"leases_per_consumer_max": 100_000})
    publish_batch(bench, 70_000)
    for count in (1, 60_000, 3, 9_000):
        shares.acquire("m1", count)
    shares.settle((0, 69_003, [ACCEPT]))
    assert bench.partition().views[1].window.start == 69_004


# Members that go.


def test_a_closed_session_costs_no_attempt(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(b"x", b"y")
    shares.acquire("m1")
    shares.close("m1")
    assert shares.acquire("m2") == [(0, 2, 1)]


def test_a_lost_member_costs_an_attempt(bench: BenchLike, shares: Shares) -> None:
    bench.make(group={"max_attempts": 2})
    bench.publish(b"poison")
    shares.acquire("m1")
    shares.lose("m1")
    assert shares.acquire("m2") == [(0, 1, 2)]
    shares.lose("m2")
    assert shares.acquire("m3") == []
    assert shares.letters() == 1


def test_only_what_the_lost_member_held_comes_back(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 6)
    shares.acquire("m1", 3)
    shares.acquire("m2", 3)
    shares.settle((0, 0, [ACCEPT]), member="m1")
    shares.lose("m1")
    assert shares.acquire("m3") == [(1, 3, 2)]


# One group, two worlds.


def test_workers_and_share_members_of_one_group_share_its_work(
    bench: BenchLike, shares: Shares
) -> None:
    bench.make(group={"backoff_ms": 0, "max_attempts": 10})
    bench.publish(*[b"%d" % number for number in range(200)])
    done: list[int] = []
    turn = 0
    while len(done) < 200:
        turn += 1
        deliveries = bench.lease(7, by="worker")
        ranges = shares.acquire("m1", 11)
        leased = [delivery.offset for delivery in deliveries]
        acquired = [o for start, end, _ in ranges for o in range(start, end)]
        assert not set(leased) & set(acquired)
        keep = [d.receipt for d in deliveries if (d.offset + turn) % 5]
        back = [d.receipt for d in deliveries if not (d.offset + turn) % 5]
        assert bench.node.ack(bench.group, keep) == [None] * len(keep)
        assert bench.node.nack(bench.group, back) == [None] * len(back)
        done += [receipt.offset for receipt in keep]
        types = [RELEASE if not (o + turn) % 7 else ACCEPT for o in acquired]
        shares.settle(*[(o, o, [kind]) for o, kind in zip(acquired, types, strict=True)])
        done += [o for o, kind in zip(acquired, types, strict=True) if kind == ACCEPT]
    assert sorted(done) == list(range(200))
    assert bench.partition().views[1].window.start == 200


def test_neither_side_can_settle_what_the_other_holds(bench: BenchLike, shares: Shares) -> None:
    bench.make()
    bench.publish(b"x", b"y")
    [delivery] = bench.lease(1, by="worker")
    assert shares.acquire("m1") == [(1, 2, 1)]
    with pytest.raises(StaleReceipt):
        shares.settle((0, 1, [ACCEPT]))
    [outcome] = bench.node.ack(bench.group, [delivery.receipt._replace(offset=1)])
    assert isinstance(outcome, StaleReceipt)
    assert bench.node.ack(bench.group, [delivery.receipt]) == [None]
