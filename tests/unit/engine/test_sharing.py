"""Share groups at the engine: what becomes of what a member was given."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.conftest import Bench
from tests.unit.engine.share_bench import Shares, publish_batch

from headrace.core.errors import HeadraceError, InvalidArgument, StaleReceipt
from headrace.engine.sharing import ACCEPT, GAP, REJECT, RELEASE, RENEW


@pytest.fixture
def shares(bench: Bench) -> Shares:
    return Shares(bench)


# Acknowledging.


def test_accepted_messages_are_done(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((0, 3, [ACCEPT]))
    assert [bench.state(offset) for offset in range(4)] == ["acked"] * 4


def test_acceptance_survives_a_crash(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT]))
    bench.crash()
    assert [bench.state(offset) for offset in range(4)] == [
        "acked", "retrying", "dead-lettered", "pending",
    ]  # fmt: skip
    assert bench.attempts(3) == 1


def test_a_released_message_rests_before_it_comes_again(bench: Bench, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 1000})
    bench.publish(b"x")
    shares.acquire()
    shares.settle((0, 0, [RELEASE]))
    assert shares.acquire("m2") == []
    bench.skip(1000)
    assert shares.acquire("m2") == [(0, 1, 2)]


def test_a_message_released_too_often_is_a_dead_letter(bench: Bench, shares: Shares) -> None:
    bench.make(group={"max_attempts": 2, "backoff_ms": 0})
    bench.publish(b"x")
    for _ in range(2):
        shares.acquire()
        shares.settle((0, 0, [RELEASE]))
    assert shares.acquire() == []
    assert shares.letters() == 1


def test_a_messages_own_maximum_holds_here_too(bench: Bench, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(b"x", max_attempts=1)
    bench.publish(b"y")
    shares.acquire()
    shares.settle((0, 1, [RELEASE]))
    assert shares.acquire() == [(1, 2, 2)]
    assert shares.letters() == 1


def test_a_rejected_message_is_a_dead_letter(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(b"x", b"y")
    shares.acquire()
    shares.settle((0, 1, [REJECT, ACCEPT]))
    assert [bench.state(0), bench.state(1)] == ["dead-lettered", "acked"]
    [letter] = bench.node.dead_letters(bench.topic)
    assert letter.reason == "rejected"


def test_a_type_for_each_offset(bench: Bench, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(*[b"x"] * 5)
    shares.acquire()
    shares.settle((0, 4, [ACCEPT, RELEASE, ACCEPT, REJECT, ACCEPT]))
    assert shares.acquire() == [(1, 2, 2)]
    assert shares.letters() == 1


def test_a_gap_where_a_message_is_releases_it(bench: Bench, shares: Shares) -> None:
    bench.make(group={"backoff_ms": 0})
    bench.publish(b"x", b"y")
    shares.acquire()
    shares.settle((0, 1, [GAP, ACCEPT]))
    assert shares.acquire() == [(0, 1, 2)]


def test_a_gap_where_nothing_is_changes_nothing(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 3)
    shares.acquire()
    shares.settle((1, 1, [ACCEPT]))
    shares.settle((0, 2, [ACCEPT, GAP, ACCEPT]))
    assert [bench.state(offset) for offset in range(3)] == ["acked"] * 3


def test_a_renewed_lease_lasts_longer(bench: Bench, shares: Shares) -> None:
    bench.make(group={"visibility_ms": 1000})
    bench.publish(b"x", b"y")
    shares.acquire()
    bench.skip(800)
    shares.settle((0, 0, [RENEW]))
    bench.skip(800)
    assert shares.acquire("m2") == [(1, 2, 2)]
    shares.settle((0, 0, [ACCEPT]))
    assert bench.state(0) == "acked"


def test_a_lease_that_ran_out_is_delivered_again(bench: Bench, shares: Shares) -> None:
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
    bench: Bench, shares: Shares, ranges: list[Any], error: type[HeadraceError]
) -> None:
    bench.make()
    bench.publish(*[b"x"] * 10)
    shares.acquire("m1", 9)
    shares.acquire("m2", 1)
    with pytest.raises(error):
        shares.settle(*ranges)
    assert {bench.state(offset) for offset in range(10)} == {"leased"}


def test_what_lies_below_the_start_is_accepted_in_silence(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 4)
    shares.acquire()
    shares.settle((0, 1, [ACCEPT]))
    shares.settle((0, 2, [RELEASE, REJECT, ACCEPT]))
    assert [bench.state(offset) for offset in range(4)] == ["acked"] * 3 + ["leased"]


def test_one_acknowledgement_over_several_grants_and_chunks(bench: Bench, shares: Shares) -> None:
    bench.make(group={"leases_per_consumer_max": 100_000})
    publish_batch(bench, 70_000)
    for count in (1, 60_000, 3, 9_000):
        shares.acquire("m1", count)
    shares.settle((0, 69_003, [ACCEPT]))
    assert bench.partition().views[1].window.start == 69_004


# Members that go.


def test_a_closed_session_costs_no_attempt(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(b"x", b"y")
    shares.acquire("m1")
    shares.close("m1")
    assert shares.acquire("m2") == [(0, 2, 1)]


def test_a_lost_member_costs_an_attempt(bench: Bench, shares: Shares) -> None:
    bench.make(group={"max_attempts": 2})
    bench.publish(b"poison")
    shares.acquire("m1")
    shares.lose("m1")
    assert shares.acquire("m2") == [(0, 1, 2)]
    shares.lose("m2")
    assert shares.acquire("m3") == []
    assert shares.letters() == 1


def test_only_what_the_lost_member_held_comes_back(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(*[b"x"] * 6)
    shares.acquire("m1", 3)
    shares.acquire("m2", 3)
    shares.settle((0, 0, [ACCEPT]), member="m1")
    shares.lose("m1")
    assert shares.acquire("m3") == [(1, 3, 2)]


# One group, two worlds.


def test_workers_and_share_members_of_one_group_share_its_work(
    bench: Bench, shares: Shares
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


def test_neither_side_can_settle_what_the_other_holds(bench: Bench, shares: Shares) -> None:
    bench.make()
    bench.publish(b"x", b"y")
    [delivery] = bench.lease(1, by="worker")
    assert shares.acquire("m1") == [(1, 2, 1)]
    with pytest.raises(StaleReceipt):
        shares.settle((0, 1, [ACCEPT]))
    [outcome] = bench.node.ack(bench.group, [delivery.receipt._replace(offset=1)])
    assert isinstance(outcome, StaleReceipt)
    assert bench.node.ack(bench.group, [delivery.receipt]) == [None]
