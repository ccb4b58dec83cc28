"""Leases that are kept: when they are extended, and when they are lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from headrace.client.keeping import LeaseKeeper, Leases
from headrace.client.queue import Queue
from headrace.core.errors import HeadraceError, StaleReceipt, Unreachable
from headrace.core.values import Delivery, Receipt
from headrace.testing import ManualClock

LEASE_MS = 30_000


class FakeQueue:
    """Answers an extension as the test says, and notes when it was asked for what."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._start_ms = clock.now_ms()
        self.group = "workers"
        self.answer: HeadraceError | None = None
        self.stale: set[int] = set()
        self.asked: list[tuple[float, list[int], int]] = []

    def extend_kept(self, receipts: Sequence[Receipt], lease_ms: int) -> list[HeadraceError | None]:
        at = (self._clock.now_ms() - self._start_ms) / 1000
        offsets = [receipt.offset for receipt in receipts]
        self.asked.append((at, offsets, lease_ms))
        if self.answer is not None:
            raise self.answer
        return [StaleReceipt("over") if each in self.stale else None for each in offsets]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> FakeQueue:
    return FakeQueue(clock)


@pytest.fixture
def keeper(clock: ManualClock) -> LeaseKeeper:
    return LeaseKeeper(clock)


def delivery(clock: ManualClock, offset: int = 0, lease_ms: int = LEASE_MS) -> Delivery:
    now_ms = clock.now_ms()
    return Delivery(
        "jobs", 0, offset, None, b"x", (), 0, 2, 1, 3, now_ms, now_ms + lease_ms, None, None,
        bytes(16), 0, 0,
    )  # fmt: skip


def real(queue: FakeQueue) -> Queue[Any]:
    return cast("Queue[Any]", queue)


def test_a_lease_is_extended_at_half_of_its_time_until_it_is_dropped(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    message = delivery(clock)
    leases = Leases([message])
    keeper.keep(leases, real(queue), message)
    clock.skip(50)
    keeper.drop(leases, message)
    clock.skip(50)
    assert queue.asked == [(15, [0], LEASE_MS), (30, [0], LEASE_MS), (45, [0], LEASE_MS)]


def test_what_came_with_it_is_extended_by_the_same_call_unless_it_is_settled(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    first, second, third = (delivery(clock, offset) for offset in range(3))
    leases = Leases([first, second, third])
    keeper.keep(leases, real(queue), first)
    clock.skip(15)
    leases.on_settled(second)
    clock.skip(15)
    assert queue.asked == [(15, [0, 1, 2], LEASE_MS), (30, [0, 2], LEASE_MS)]


def test_each_is_extended_by_its_own_length_and_those_of_one_length_together(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    lengths_ms = (12_000, 4_000, 12_000)
    first, second, third = (
        delivery(clock, offset, lease_ms) for offset, lease_ms in enumerate(lengths_ms)
    )
    leases = Leases([first, second, third])
    keeper.keep(leases, real(queue), first)
    clock.skip(6)
    together = [(2, [1], 4_000), (4, [1], 4_000), (6, [1], 4_000), (6, [0, 2], 12_000)]
    assert sorted(queue.asked) == sorted(together)
    # Of one length nothing is left: it is not asked for any more.
    leases.on_settled(second)
    clock.skip(6)
    assert queue.asked[4:] == [(12, [0, 2], 12_000)]


def test_only_what_has_ended_by_the_clock_is_lost(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    long, short = delivery(clock, 0), delivery(clock, 1, lease_ms=4_000)
    leases = Leases([long, short])
    lost: list[int] = []
    for each in (long, short):
        keeper.keep(leases, real(queue), each, lambda lost_one, _: lost.append(lost_one.offset))
    queue.answer = Unreachable("nobody there")
    clock.skip(5)
    assert lost == [1]
    assert (leases.is_late(long, clock.now_ms()), leases.error_of(long)) == (False, None)
    clock.skip(26)
    assert lost == [1, 0]


def test_who_begins_late_is_extended_soon(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    message = delivery(clock)
    leases = Leases([message])
    clock.skip(28)
    assert leases.is_late(message, clock.now_ms())
    keeper.keep(leases, real(queue), message)
    clock.skip(1)
    assert [at for at, _, _ in queue.asked] == [29]
    assert not leases.is_late(message, clock.now_ms())


def test_a_lease_that_the_node_ended_is_lost_and_said_once(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    first, second = delivery(clock, 0), delivery(clock, 1)
    leases = Leases([first, second])
    lost: list[tuple[int, str]] = []
    keeper.keep(
        leases, real(queue), first, lambda each, error: lost.append((each.offset, error.code))
    )
    queue.stale = {0}
    clock.skip(100)
    assert lost == [(0, "stale-receipt")]
    assert leases.error_of(first) is not None
    assert leases.error_of(second) is None
    # The other one is still kept.
    assert queue.asked[-1] == (90, [1], LEASE_MS)


def test_a_node_that_is_away_for_less_than_a_lease_costs_nothing(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    message = delivery(clock)
    leases = Leases([message])
    lost: list[Delivery] = []
    keeper.keep(leases, real(queue), message, lambda each, error: lost.append(each))
    queue.answer = Unreachable("nobody there")
    clock.skip(29)
    assert len(queue.asked) == 15
    queue.answer = None
    clock.skip(60)
    assert lost == []
    assert not leases.is_late(message, clock.now_ms())


def test_a_node_that_is_away_for_longer_than_a_lease_has_ended_it(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue
) -> None:
    message = delivery(clock)
    leases = Leases([message])
    lost: list[str] = []
    keeper.keep(leases, real(queue), message, lambda each, error: lost.append(str(error)))
    queue.answer = Unreachable("nobody there")
    clock.skip(31)
    assert lost == [
        "the lease on jobs:0:0 ended while the node could not be asked to extend it: nobody there"
    ]


def test_a_loss_that_nobody_listens_for_is_logged(
    keeper: LeaseKeeper, clock: ManualClock, queue: FakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    message = delivery(clock)
    keeper.keep(Leases([message]), real(queue), message)
    queue.stale = {0}
    clock.skip(16)
    assert (
        "the lease on jobs:0:0 (attempt 1 of 3) was lost while it was being handled: over"
        in caplog.text
    )
