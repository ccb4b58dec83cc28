"""Publishing: values of every kind, in, and out again as they were."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

import headrace
from headrace.testing import ManualClock


@dataclass
class Order:
    id: int


class OrderStruct(msgspec.Struct):
    id: int


class OrderModel(pydantic.BaseModel):
    id: int


@pytest.fixture
def orders(handle: headrace.Headrace) -> headrace.Headrace:
    handle.create_topic("orders", 1)
    return handle


@pytest.mark.parametrize(
    "value", [b"", b"\x00\xff", "", "grün", {"a": [1, 2.5, None]}, [], 7, True, None]
)
def test_a_value_comes_out_as_it_went_in(orders: headrace.Headrace, value: Any) -> None:
    orders.publish("orders", value)
    with orders.queue("orders") as queue:
        [message] = queue.receive()
        assert message.value == value
        assert type(message.value) is type(value)
    with orders.stream("orders") as stream:
        [record] = stream.poll()
        assert record.value == value


@pytest.mark.parametrize("value", [Order(7), OrderStruct(7), OrderModel(id=7), {"id": 7}])
@pytest.mark.parametrize("wanted", [Order, OrderStruct, OrderModel])
def test_a_typed_queue_decodes_what_any_type_published(
    orders: headrace.Headrace, value: Any, wanted: Any
) -> None:
    orders.publish("orders", value)
    with orders.queue("orders", type=wanted) as queue:
        [message] = queue.receive()
        assert type(message.value) is wanted
        assert message.value.id == 7
        assert message.decode(Order) == Order(7)


def test_a_value_of_another_type_names_its_message_and_can_still_be_settled(
    orders: headrace.Headrace,
) -> None:
    orders.publish("orders", {"id": "seven"})
    with orders.queue("orders", type=Order) as queue:
        [message] = queue.receive()
        with pytest.raises(headrace.DecodeError, match="orders:0:0"):
            _ = message.value
        assert message.raw == b'{"id":"seven"}'
        message.reject(error="not an order")


def test_key_headers_and_timestamp_travel_along(orders: headrace.Headrace) -> None:
    moment = datetime(2029, 1, 1, tzinfo=UTC)
    orders.publish("orders", b"x", key="k", headers={"trace": "7"}, priority=0, timestamp=moment)
    with orders.stream("orders") as stream:
        [record] = stream.poll()
    assert record.key == b"k"
    assert record.headers == {"trace": b"7"}
    assert ("headrace-priority", b"0") in record.all_headers
    assert record.timestamp == moment


def test_an_id_is_the_place_of_the_message(orders: headrace.Headrace) -> None:
    first = orders.publish("orders", b"x")
    second = orders.publish("orders", b"y")
    assert str(first) == "orders:0:0"
    assert second.id == headrace.MessageId("orders", 0, 1)
    assert not second.duplicate


def test_one_key_always_goes_to_one_partition(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 5)
    places = {handle.publish("orders", b"x", key="customer-7").partition for _ in range(10)}
    assert len(places) == 1


def test_many_values_are_published_in_their_order(orders: headrace.Headrace) -> None:
    published = orders.publish_many("orders", [b"%d" % n for n in range(1_000)])
    assert [message.offset for message in published] == list(range(1_000))
    with orders.stream("orders") as stream:
        values = [record.value for _ in range(2) for record in stream.poll(500)]
    assert values == [b"%d" % n for n in range(1_000)]


def test_messages_in_one_call_can_differ_in_everything(orders: headrace.Headrace) -> None:
    orders.publish_many(
        "orders",
        [
            headrace.NewMessage({"n": 1}, key="a", priority="low"),
            headrace.NewMessage("two", headers={"h": "1"}),
            b"three",
        ],
        priority="high",
    )
    with orders.queue("orders") as queue:
        messages = sorted(queue.receive(), key=lambda message: message.offset)
        assert [message.value for message in messages] == [{"n": 1}, "two", b"three"]
        assert [message.priority for message in messages] == ["low", "high", "high"]
        assert messages[0].key == b"a"


def test_publishing_nothing_publishes_nothing(orders: headrace.Headrace) -> None:
    assert list(orders.publish_many("orders", [])) == []
    assert orders.depth("orders") == 0


def test_a_dedup_id_within_its_window_is_published_once(
    handle: headrace.Headrace, clock: ManualClock
) -> None:
    handle.create_topic("orders", 1, dedup=True, dedup_window_ms=60_000)
    first = handle.publish("orders", b"x", dedup_id="order-7")
    again = handle.publish("orders", b"x", dedup_id="order-7")
    assert again.duplicate and not first.duplicate
    assert again.id == first.id
    assert handle.depth("orders") == 1
    clock.skip(61)
    assert not handle.publish("orders", b"x", dedup_id="order-7").duplicate
