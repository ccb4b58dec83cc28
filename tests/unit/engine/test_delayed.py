"""Listing delayed messages, and what an outside user tripped over."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

import headrace
from headrace.core.errors import TooManyFiles
from headrace.core.values import DelayedTotals, MessageId, Outgoing
from headrace.engine.due import DueTimes
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers
from headrace.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def node(clock: ManualClock) -> Iterator[Node]:
    node = Node.open(":memory:", clock=clock)
    yield node
    node.close()


def delayed_by(delay_ms: int, ttl_ms: int | None = None) -> Outgoing:
    return Outgoing(b"x", headers=attribute_headers(delay_ms=delay_ms, ttl_ms=ttl_ms))


def test_pages_of_delayed_messages_join_in_order_over_all_partitions(node: Node) -> None:
    node.create_topic("jobs", partitions=3)
    node.publish(
        "jobs",
        [delayed_by(1_000 + 7 * n % 50)._replace(partition=n % 3) for n in range(200)],
    )
    seen: list[tuple[int, int, int]] = []
    while page := node.delayed("jobs", after=seen[-1] if seen else None, limit=7):
        seen += [(m.deliver_at_ms, m.partition, m.offset) for m in page]
    assert len(seen) == 200
    assert seen == sorted(set(seen))


def test_expired_and_cancelled_messages_do_not_end_the_list_early(
    node: Node, clock: ManualClock
) -> None:
    node.create_topic("jobs", partitions=1)
    node.publish("jobs", [delayed_by(60_000, ttl_ms=10) for _ in range(20)])
    node.publish("jobs", [delayed_by(60_000) for _ in range(20)])
    clock.skip(1)
    assert node.cancel(MessageId("jobs", 0, 20))
    assert [m.offset for m in node.delayed("jobs", limit=5)] == [21, 22, 23, 24, 25]


def test_entries_behind_one_are_found_in_order() -> None:
    dues = DueTimes()
    entries = sorted((1_000 + 37 * n % 400, n) for n in range(10_000))
    dues.add_many([due for due, _ in entries], [offset for _, offset in entries])
    for due_ms, offset in (entries[0], entries[4_321], entries[-2]):
        position = entries.index((due_ms, offset))
        assert dues.after(due_ms, offset, 50) == entries[position + 1 : position + 51]
    assert dues.after(1_000, -1, 3) == entries[:3]
    assert dues.after(*entries[-1], 10) == []


def test_letters_of_a_group_that_is_gone_stay_where_they_are(node: Node) -> None:
    node.create_topic("jobs", partitions=1)
    node.open_queue("gone", ["jobs"], "worker")
    node.publish("jobs", [Outgoing(b"x")])
    node.reject("gone", [d.receipt for d in node.lease("gone", ["jobs"], "worker", 1)])
    node.delete_group("gone")
    [letter] = node.dead_letters("jobs")
    result = node.redrive("jobs", [MessageId(letter.topic, letter.partition, letter.offset)])
    assert (result.redriven, result.orphaned) == (0, 1)
    assert node.dead_letters("jobs") == [letter]


def test_dead_letters_are_not_published_by_hand(node: Node) -> None:
    node.create_topic("jobs", partitions=1)
    node.open_queue("workers", ["jobs"], "worker")
    node.publish("jobs", [Outgoing(b"x")])
    node.reject("workers", [d.receipt for d in node.lease("workers", ["jobs"], "worker", 1)])
    with pytest.raises(headrace.InvalidName, match="publish to its source"):
        node.publish("jobs.dlq", [Outgoing(b"y")])
    with pytest.raises(headrace.InvalidName, match="publish to its source"):
        node.publish_values("jobs.dlq", [b"y"])
    assert len(node.dead_letters("jobs")) == 1


def test_a_topic_that_finds_duplicates_does_not_grow_by_accident(node: Node) -> None:
    node.create_topic("payments", partitions=1, settings={"dedup": True})
    with pytest.raises(headrace.InvalidArgument, match="break_key_order"):
        node.grow_topic("payments", 2)
    assert len(node.grow_topic("payments", 2, break_key_order=True).partitions) == 2


class NoDescriptors(MemoryDisk):
    """A process that may not open one more file."""

    is_full = False

    def open(self, path, **how):  # type: ignore[no-untyped-def]
        if self.is_full:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return super().open(path, **how)


def test_too_many_open_files_are_said_and_end_nothing() -> None:
    disk = NoDescriptors()
    node = Node.open(":memory:", disk=disk)
    node.create_topic("jobs", partitions=1)
    disk.is_full = True
    with pytest.raises(TooManyFiles, match="ulimit"):
        node.publish("jobs", [Outgoing(b"x")])
    disk.is_full = False
    assert node.publish("jobs", [Outgoing(b"x")])[0].offset == 0
    node.close()


def test_totals_say_what_became_of_delayed_messages(node: Node, clock: ManualClock) -> None:
    node.create_topic("jobs", partitions=2)
    for group in ("first", "second"):
        node.open_queue(group, ["jobs"], "worker", {"backoff_ms": 0})
    none = [DelayedTotals("jobs", 0, 0, 0)]
    assert (node.delayed_totals(["jobs"]), node.delayed_totals()) == (none, [])
    node.publish("jobs", [Outgoing(b"now")])
    node.publish("jobs", [delayed_by(1_000)._replace(partition=n % 2) for n in range(4)])
    later = node.publish("jobs", [delayed_by(60_000)])[0]
    node.publish("jobs", [delayed_by(60_000, ttl_ms=500)])
    leased = node.lease("first", ["jobs"], "worker", 10)
    assert [each.value for each in leased] == [b"now"]
    # It was never delayed.
    node.ack("first", [each.receipt for each in leased])
    assert node.delayed_totals() == []
    assert node.cancel(MessageId("jobs", later.partition, later.offset))
    clock.skip(1)
    leased = node.lease("first", ["jobs"], "worker", 10)
    assert len(leased) == 4
    # Each group has its own, and a second delivery is no news.
    node.nack("first", [leased[0].receipt], delay_ms=0)
    assert len(node.lease("first", ["jobs"], "worker", 10)) == 1
    assert node.delayed_totals(["jobs"]) == [DelayedTotals("jobs", 4, 1, 2)]
    assert len(node.lease("second", ["jobs"], "worker", 10)) == 5
    assert node.delayed_totals() == [DelayedTotals("jobs", 8, 1, 2)]
    with pytest.raises(headrace.UnknownTopic):
        node.delayed_totals(["nowhere"])


def test_a_delayed_message_that_was_given_back_unused_is_delivered_once(
    node: Node, clock: ManualClock
) -> None:
    node.create_topic("jobs", partitions=1)
    node.open_queue("workers", ["jobs"], "worker")
    node.publish("jobs", [delayed_by(1_000) for _ in range(4)])
    clock.skip(1)
    for count in (4, 2, 4):
        leased = node.lease("workers", ["jobs"], "worker", count)
        node.release("workers", [each.receipt for each in leased])
    assert node.delayed_totals() == [DelayedTotals("jobs", 4, 0, 0)]


def test_what_expired_while_it_was_delayed_counts_as_expired_whenever_somebody_looks(
    node: Node, clock: ManualClock
) -> None:
    node.create_topic("jobs", partitions=1)
    for group in ("first", "second"):
        node.open_queue(group, ["jobs"], "worker")
    node.publish("jobs", [delayed_by(60_000, ttl_ms=500), delayed_by(60_000, ttl_ms=60_000)])
    # Its time came, and then it expired: nobody took it, but it was not delayed any more.
    node.publish("jobs", [delayed_by(1_000, ttl_ms=5_000), delayed_by(1_000)])
    clock.skip(1)
    # Nobody waits for these messages, and the time of the next one is over too when
    # somebody comes.
    assert node.delayed_totals() == [DelayedTotals("jobs", 0, 0, 2)]
    clock.skip(3600)
    assert node.delayed_totals(["jobs"]) == [DelayedTotals("jobs", 0, 0, 4)]
    assert len(node.lease("first", ["jobs"], "worker", 10)) == 1
    assert node.queue_statistics("first").expired == 3
    assert node.delayed_totals(["jobs"]) == [DelayedTotals("jobs", 1, 0, 4)]
