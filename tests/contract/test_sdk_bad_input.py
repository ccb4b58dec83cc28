"""Bad input: one clear error each, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace

Handle = headrace.Headrace


@pytest.fixture
def orders(handle: Handle) -> Handle:
    handle.create_topic("orders", 2, record_bytes_max=10_000)
    handle.publish("orders", b"x", partition=0)
    handle.queue("orders", "workers", consumer="first")
    return handle


BAD: dict[str, tuple[type[Exception], Callable[[Handle], Any]]] = {
    "a record that is too large": (
        headrace.RecordTooLarge,
        lambda handle: handle.publish("orders", bytes(10_001)),
    ),
    "one too large among many": (
        headrace.RecordTooLarge,
        lambda handle: handle.publish_many("orders", [b"x", bytes(10_001)]),
    ),
    "a key that is too large": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", b"x", key=bytes(65 * 1024)),
    ),
    "too many headers": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", b"x", headers={str(n): "" for n in range(129)}),
    ),
    "an unknown topic to publish to": (
        headrace.UnknownTopic,
        lambda handle: handle.publish("absent", b"x"),
    ),
    "an unknown topic for many": (
        headrace.UnknownTopic,
        lambda handle: handle.publish_many("absent", [b"x"]),
    ),
    "an unknown topic to lease": (
        headrace.UnknownTopic,
        lambda handle: handle.queue("absent"),
    ),
    "an unknown topic to read": (
        headrace.UnknownTopic,
        lambda handle: handle.stream("absent"),
    ),
    "an unknown topic in a group": (
        headrace.UnknownTopic,
        lambda handle: handle.stream("absent", "readers"),
    ),
    "an unknown topic to delete": (
        headrace.UnknownTopic,
        lambda handle: handle.delete_topic("absent"),
    ),
    "an unknown topic to alter": (
        headrace.UnknownTopic,
        lambda handle: handle.alter_topic("absent", retention_ms=1),
    ),
    "an unknown topic's depth": (headrace.UnknownTopic, lambda handle: handle.depth("absent")),
    "an unknown topic's delayed messages": (
        headrace.UnknownTopic,
        lambda handle: list(handle.delayed("absent")),
    ),
    "an unknown partition": (
        headrace.UnknownPartition,
        lambda handle: handle.publish("orders", b"x", partition=2),
    ),
    "a negative partition": (
        headrace.UnknownPartition,
        lambda handle: handle.publish("orders", b"x", partition=-1),
    ),
    "an unknown group's numbers": (headrace.UnknownGroup, lambda handle: handle.stats("absent")),
    "an unknown group's depth": (
        headrace.UnknownGroup,
        lambda handle: handle.depth(group="absent"),
    ),
    "an unknown group to delete": (
        headrace.UnknownGroup,
        lambda handle: handle.delete_group("absent"),
    ),
    "an unknown group's status": (
        headrace.UnknownGroup,
        lambda handle: handle.status("orders:0:0", "absent"),
    ),
    "a status beyond the end": (
        headrace.UnknownMessage,
        lambda handle: handle.status("orders:0:99", "workers"),
    ),
    "a topic's bad name": (headrace.InvalidName, lambda handle: handle.create_topic("a/b")),
    "a topic's empty name": (headrace.InvalidName, lambda handle: handle.create_topic("")),
    "a topic's endless name": (headrace.InvalidName, lambda handle: handle.create_topic("a" * 250)),
    "a name that is no text": (headrace.InvalidName, lambda handle: handle.queue([7])),  # type: ignore[list-item]
    "a group's bad name": (headrace.InvalidName, lambda handle: handle.queue("orders", "a b")),
    "no topics": (headrace.InvalidArgument, lambda handle: handle.queue([])),
    "no partitions": (headrace.InvalidArgument, lambda handle: handle.create_topic("t", 0)),
    "endless partitions": (
        headrace.InvalidArgument,
        lambda handle: handle.create_topic("t", 10_001),
    ),
    "fewer partitions": (headrace.InvalidArgument, lambda handle: handle.grow_topic("orders", 1)),
    "an unknown topic setting": (
        headrace.InvalidArgument,
        lambda handle: handle.create_topic("t", colour="red"),
    ),
    "an unknown group setting": (
        headrace.InvalidArgument,
        lambda handle: handle.queue("orders", "g", colour="red"),
    ),
    "a negative offset": (
        headrace.OffsetOutOfRange,
        lambda handle: handle.stream("orders", start=-1),
    ),
    "an offset behind the end": (
        headrace.OffsetOutOfRange,
        lambda handle: handle.stream("orders", start={0: 2}),
    ),
    "a value without bytes": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", object()),
    ),
    "a number for a key": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", b"x", key=7),  # type: ignore[arg-type]
    ),
    "an unknown priority": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", b"x", priority="urgent"),
    ),
    "a negative delay": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", b"x", delay=-1),
    ),
    "a message id of another shape": (
        headrace.InvalidArgument,
        lambda handle: handle.cancel("orders/0/0"),
    ),
    "a number for an id": (headrace.InvalidArgument, lambda handle: handle.cancel(7)),
    "a type that nothing decodes": (
        headrace.InvalidArgument,
        lambda handle: handle.queue("orders", type=dict[complex, int] | list[int] | set[int]),
    ),
    "an empty consumer": (
        headrace.InvalidArgument,
        lambda handle: handle.queue("orders", consumer=""),
    ),
    "a consumer that is no text": (
        headrace.InvalidArgument,
        lambda handle: handle.stream("orders", "readers", consumer=7),  # type: ignore[call-overload]
    ),
    "an endless consumer": (
        headrace.InvalidArgument,
        lambda handle: handle.queue("orders", consumer="x" * 250),
    ),
    "partitions that are no list": (
        headrace.InvalidArgument,
        lambda handle: handle.stream("orders", partitions=0),  # type: ignore[call-overload]
    ),
    "a topic that is no text": (
        headrace.InvalidName,
        lambda handle: handle.publish(7, b"x"),  # type: ignore[arg-type]
    ),
    "a group that is no text": (
        headrace.InvalidName,
        lambda handle: handle.group([7]),  # type: ignore[arg-type]
    ),
    "a moment without end": (
        headrace.InvalidArgument,
        lambda handle: handle.publish("orders", b"x", deliver_at=1e300),
    ),
    "records to delete behind the end": (
        headrace.InvalidArgument,
        lambda handle: handle.delete_records("orders", 0, 2),
    ),
    "a depth of nothing": (headrace.InvalidArgument, lambda handle: handle.depth()),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_has_one_clear_error_and_changes_nothing(orders: Handle, case: str) -> None:
    error, call = BAD[case]
    before = snapshot(orders)
    with pytest.raises(error) as caught:
        call(orders)
    assert isinstance(caught.value, headrace.HeadraceError)
    assert str(caught.value)
    assert snapshot(orders) == before


BAD_SETTLING: dict[str, tuple[type[Exception], Callable[[headrace.Queue[Any]], Any]]] = {
    "no receipt": (headrace.InvalidReceipt, lambda queue: queue.ack("bm90IGEgcmVjZWlwdA==")),
    "an empty receipt": (headrace.InvalidReceipt, lambda queue: queue.ack("")),
    "an unknown id": (headrace.StaleReceipt, lambda queue: queue.ack("orders:0:5")),
    "a bad id": (headrace.InvalidArgument, lambda queue: queue.ack("orders:zero:5")),
    "a number": (headrace.InvalidArgument, lambda queue: queue.ack(7)),  # type: ignore[call-overload]
    "nothing": (headrace.InvalidArgument, lambda queue: queue.ack(None)),  # type: ignore[call-overload]
    "an endless visibility": (
        headrace.InvalidArgument,
        lambda queue: queue.extend("orders:0:0", 13 * 3600),
    ),
    "no visibility": (headrace.InvalidArgument, lambda queue: queue.extend("orders:0:0", 0)),
    "a negative delay": (
        headrace.InvalidArgument,
        lambda queue: queue.nack("orders:0:0", delay=-1),
    ),
    "an error that is no text": (
        headrace.InvalidArgument,
        lambda queue: queue.nack("orders:0:0", error=7),  # type: ignore[call-overload]
    ),
    "none to receive": (headrace.InvalidArgument, lambda queue: queue.receive(max=0)),
    "too many to receive": (headrace.InvalidArgument, lambda queue: queue.lease(10_001)),
    "a negative wait": (headrace.InvalidArgument, lambda queue: queue.receive(wait=-1)),
}


@pytest.mark.parametrize("case", BAD_SETTLING)
def test_bad_settling_has_one_clear_error_and_changes_nothing(orders: Handle, case: str) -> None:
    error, call = BAD_SETTLING[case]
    with orders.queue("orders", "workers") as queue:
        [message] = queue.receive()
        before = snapshot(orders)
        with pytest.raises(error):
            call(queue)
        assert snapshot(orders) == before
        message.ack()


def test_a_receipt_of_another_group_is_refused(orders: Handle) -> None:
    with orders.queue("orders", "workers") as workers, orders.queue("orders", "mail") as mail:
        [message] = workers.receive()
        mail.receive()
        with pytest.raises(headrace.InvalidReceipt):
            mail.ack(message.receipt)
        message.ack()
        assert mail.depth() == 1


def test_a_receipt_of_a_topic_that_was_made_again_is_refused(orders: Handle) -> None:
    with orders.queue("orders", "workers") as queue:
        [old] = queue.receive()
        orders.delete_topic("orders")
        orders.create_topic("orders", 2)
        orders.publish("orders", b"new", partition=0)
    with orders.queue("orders", "workers") as queue:
        [new] = queue.receive()
        with pytest.raises(headrace.InvalidReceipt):
            queue.ack(old.receipt)
        assert new.value == b"new"
        assert queue.stats().leased == 1


def test_a_consumer_cannot_lease_without_end(orders: Handle) -> None:
    orders.publish_many("orders", [b"x"] * 10)
    with orders.queue("orders", "few", leases_per_consumer_max=5) as queue:
        assert len(queue.lease(10)) == 5
        with pytest.raises(headrace.TooManyLeases):
            queue.lease(1)


def snapshot(handle: Handle) -> Any:
    """Everything that a bad call could have changed."""
    statistics = handle.stats("workers")
    return (
        handle.topics(internal=True),
        [(group.name, group.kind, group.topics, group.settings) for group in handle.groups()],
        statistics._replace(rate_in=0.0, rate_out=0.0),
    )
