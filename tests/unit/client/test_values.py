"""Values: from what people have to bytes, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from headrace.client.values import decode_value, decode_value_as, encode_value
from headrace.client.values import value_type_of as typed
from headrace.core.errors import DecodeError, InvalidArgument
from headrace.record.content_type import JSON, TEXT


@dataclass
class Order:
    id: int
    name: str = ""


class OrderStruct(msgspec.Struct):
    id: int


class OrderModel(pydantic.BaseModel):
    id: int


class OrderDict(TypedDict):
    id: int


@pytest.mark.parametrize(
    ("value", "raw", "content_type"),
    [
        (b"x", b"x", None),
        (bytearray(b"x"), b"x", None),
        (memoryview(b"x"), b"x", None),
        (None, None, None),
        ("grün", "grün".encode(), TEXT),
        ({"id": 1}, b'{"id":1}', JSON),
        ([1, 2.5, None, True], b"[1,2.5,null,true]", JSON),
        (7, b"7", JSON),
        (Order(1, "a"), b'{"id":1,"name":"a"}', JSON),
        (OrderStruct(1), b'{"id":1}', JSON),
        (OrderModel(id=1), b'{"id":1}', JSON),
    ],
)
def test_a_value_becomes_bytes_and_says_what_they_are(
    value: Any, raw: bytes | None, content_type: bytes | None
) -> None:
    assert encode_value(value) == (raw, content_type)


@pytest.mark.parametrize("value", [object(), {1j: 1}, "\ud800"])
def test_a_value_without_bytes_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument):
        encode_value(value)


@dataclass
class Measured:
    value: float


class MeasuredModel(pydantic.BaseModel):
    value: float


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "value_of",
    [
        float,
        lambda number: [1, None, {"deep": (2.5, number)}],
        Measured,
        lambda number: {"nested": Measured(number)},
        lambda number: MeasuredModel(value=number),
    ],
)
def test_a_number_that_json_does_not_have_is_refused(
    number: float, value_of: Callable[[float], Any]
) -> None:
    with pytest.raises(InvalidArgument, match="JSON has no number"):
        encode_value(value_of(number))


def test_a_value_that_holds_none_is_fine() -> None:
    assert encode_value({"a": None, "b": [0.5, None]}) == (b'{"a":null,"b":[0.5,null]}', JSON)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArgument):
        encode_value(endless)


@pytest.mark.parametrize("value", [b"x", "text", {"a": [1, 2]}, 3, None, ""])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    raw, content_type = encode_value(value)
    headers = () if content_type is None else (("content-type", content_type),)
    assert decode_value(raw, headers, "t:0:0") == value


def test_foreign_bytes_stay_bytes_even_when_they_look_like_json() -> None:
    assert decode_value(b'{"a":1}', (), "t:0:0") == b'{"a":1}'
    assert decode_value(b"x", (("content-type", b"image/png"),), "t:0:0") == b"x"
    assert decode_value(b"x", (("content-type", None),), "t:0:0") == b"x"


def test_a_content_type_may_have_parameters_and_capitals() -> None:
    headers = (("content-type", b"Application/JSON; charset=utf-8"),)
    assert decode_value(b"[1]", headers, "t:0:0") == [1]


@pytest.mark.parametrize("content_type", [TEXT, JSON])
def test_a_value_that_is_not_what_it_says_names_its_message(content_type: bytes) -> None:
    with pytest.raises(DecodeError, match="message orders:0:7"):
        decode_value(b"\xff", (("content-type", content_type),), "orders:0:7")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Order, Order(1)),
        (OrderStruct, OrderStruct(1)),
        (OrderModel, OrderModel(id=1)),
        (OrderDict, {"id": 1}),
        (dict[str, int], {"id": 1}),
        (bytes, b'{"id":1}'),
        (str, '{"id":1}'),
    ],
)
def test_bytes_become_the_type_that_is_asked_for(wanted: Any, expected: Any) -> None:
    decoded = decode_value_as(typed(wanted), b'{"id":1}', "t:0:0")
    assert decoded == expected
    assert type(decoded) is type(expected)


@pytest.mark.parametrize("wanted", [Order, OrderStruct, OrderModel, OrderDict, str])
@pytest.mark.parametrize("raw", [b'{"id":"\xff"}', b"\xff", None])
def test_bytes_of_another_type_name_their_message(wanted: Any, raw: bytes | None) -> None:
    with pytest.raises(DecodeError, match="message orders:0:7"):
        decode_value_as(typed(wanted), raw, "orders:0:7")


def test_a_type_that_nothing_decodes_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidArgument, match="cannot be decoded as"):
        typed(dict[complex, Any] | list[int] | set[int])
