"""The queue's rules through the SDK: delay, priority, expiry, retry, status."""

from __future__ import annotations

from datetime import timedelta

import pytest

import headrace
from headrace.testing import ManualClock


@pytest.fixture
def orders(handle: headrace.Headrace) -> headrace.Headrace:
    handle.create_topic("orders", 1)
    return handle


def test_a_delayed_message_comes_when_it_is_due_and_not_before(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    begun = clock.now()
    orders.publish("orders", "later", delay=60)
    orders.publish("orders", "at a moment", deliver_at=begun + timedelta(seconds=30))
    orders.publish("orders", "now")
    with orders.queue("orders") as queue:
        came = []
        for _ in range(3):
            with queue.receive()[0] as message:
                came.append((message.value, (clock.now() - begun).total_seconds()))
    assert came == [("now", 0), ("at a moment", 30), ("later", 60)]


def test_a_critical_message_overtakes_what_lies_before_it(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"normal"] * 100)
    orders.publish("orders", b"urgent", priority="critical")
    with orders.queue("orders") as queue:
        assert queue.receive(max=1)[0].value == b"urgent"


def test_an_expired_message_is_never_delivered(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    published = orders.publish("orders", b"x", ttl=10)
    with orders.queue("orders") as queue:
        clock.skip(11)
        assert queue.lease() == []
        assert queue.depth() == 0
        assert orders.status(published).state == "expired"


def test_a_message_that_fails_too_often_ends_in_the_dead_letters(
    orders: headrace.Headrace,
) -> None:
    published = orders.publish("orders", b"x", max_attempts=2)
    with orders.queue("orders") as queue:
        for _ in range(2):
            queue.receive()[0].nack(error="no answer")
        assert queue.receive(wait=1_000) == []
    assert orders.status(published).state == "dead-lettered"
    [letter] = orders.dead_letters("orders")
    assert (letter.value, letter.source, letter.attempts) == (b"x", published.id, 2)


def test_retries_back_off_exponentially(orders: headrace.Headrace, clock: ManualClock) -> None:
    orders.publish("orders", b"x")
    waits = []
    with orders.queue("orders", max_attempts=4) as queue:
        for _ in range(3):
            queue.receive()[0].nack()
            failed_at = clock.now()
            [message] = queue.receive()
            waits.append((clock.now() - failed_at).total_seconds())
            message.release()
    assert waits == [1, 2, 4]


def test_a_message_can_set_its_own_visibility(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x", visibility=7)
    with orders.queue("orders") as queue:
        [message] = queue.receive()
        assert message.deadline - message.delivered_at == timedelta(seconds=7)


def test_the_status_of_a_message_follows_it(orders: headrace.Headrace, clock: ManualClock) -> None:
    published = orders.publish("orders", b"x", delay=10)
    with orders.queue("orders", consumer="me") as queue:
        states = [orders.status(published).state]
        [message] = queue.receive()
        leased = orders.status(str(published))
        states.append(leased.state)
        message.nack(delay=60)
        states.append(orders.status(published.id).state)
        clock.skip(61)
        [message] = queue.receive()
        message.ack()
        states.append(orders.status(message).state)
    assert states == ["delayed", "leased", "retrying", "acked"]
    assert (leased.attempts, leased.consumer) == (1, "me")


def test_delayed_messages_are_listed_in_the_order_in_which_they_come(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    orders.publish("orders", "third", delay=30)
    orders.publish("orders", "first", delay=10)
    orders.publish("orders", "second", delay=20)
    orders.publish("orders", "now")
    delayed = orders.delayed("orders")
    assert [message.value for message in delayed] == ["first", "second", "third"]
    assert next(iter(delayed)).deliver_at == clock.now() + timedelta(seconds=10)
    assert len(delayed) == 3


def test_delayed_messages_are_paged_underneath(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"%d" % n for n in range(1_201)], delay=60)
    assert len({message.offset for message in orders.delayed("orders")}) == 1_201
    assert orders.delayed("orders").count() == 1_201


def test_a_cancelled_message_never_comes(orders: headrace.Headrace) -> None:
    first = orders.publish("orders", b"x", delay=60)
    second = orders.publish("orders", b"y", delay=60)
    assert orders.cancel(first)
    assert not orders.cancel(first)
    assert orders.delayed("orders").cancel(str(second))
    with orders.queue("orders") as queue:
        assert queue.receive(wait=120) == []
        assert queue.depth() == 0
        assert orders.status(first).state == "cancelled"


def test_a_message_that_was_delivered_can_no_longer_be_cancelled(
    orders: headrace.Headrace,
) -> None:
    published = orders.publish("orders", b"x", delay=1)
    with orders.queue("orders") as queue:
        queue.receive()
        assert not orders.cancel(published)


def test_depth_counts_what_is_not_done_yet(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"a", b"b"])
    orders.publish("orders", b"c", delay=60)
    assert orders.depth("orders") == 3
    with orders.queue("orders") as queue:
        queue.receive(max=1)[0].ack()
        assert queue.depth() == orders.depth("orders") == orders.depth(group="default") == 2


def test_statistics_tell_every_state_apart(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"x"] * 4)
    orders.publish("orders", b"x", delay=60)
    with orders.queue("orders", "workers") as queue:
        leased, retrying, acked = queue.receive(max=3)
        retrying.nack(delay=60)
        acked.ack()
        statistics = orders.stats("workers")
        assert (statistics.ready, statistics.leased) == (1, 1)
        assert (statistics.retrying, statistics.delayed) == (1, 1)
        assert (statistics.acked, statistics.nacked, statistics.delivered) == (1, 1, 3)
        assert statistics == orders.stats()[0] == queue.stats()
        assert leased.attempt == 1


def test_groups_are_listed_altered_and_deleted(orders: headrace.Headrace) -> None:
    orders.queue("orders", "workers", consumer="me", max_attempts=7)
    [group] = orders.groups()
    assert (group.name, group.kind, group.topics) == ("workers", "queue", ("orders",))
    assert group.consumers == ("me",)
    assert group.settings["max_attempts"] == 7
    orders.alter_group("workers", max_attempts=9)
    assert orders.group("workers").settings["max_attempts"] == 9
    orders.delete_group("workers")
    with pytest.raises(headrace.UnknownGroup):
        orders.group("workers")
