"""Who publishes too many messages at once is refused before they are made."""

from __future__ import annotations

import json

import msgspec
import pytest

from headrace.core import limits
from headrace.wire.http import message_count
from headrace.wire.http.message_count import (
    TooManyMessages,
    check_json_count,
    check_msgpack_count,
)

MAX = limits.HTTP_MESSAGES_MAX


def body_of(count: int) -> dict[str, object]:
    return {"topic": "orders", "messages": [{"value": [1, 2]}] * count}


def check(body: object) -> None:
    text = json.dumps(body)
    check_json_count(text)
    check_json_count(text.encode())
    check_msgpack_count(msgspec.msgpack.encode(body))


def test_as_many_as_there_may_be_pass() -> None:
    check(body_of(MAX))


def test_one_more_is_refused_in_every_form() -> None:
    body = body_of(MAX + 1)
    with pytest.raises(TooManyMessages, match="send several smaller ones"):
        check_json_count(json.dumps(body))
    with pytest.raises(TooManyMessages, match="send several smaller ones"):
        check_json_count(json.dumps(body).encode())
    with pytest.raises(TooManyMessages, match="send several smaller ones"):
        check_msgpack_count(msgspec.msgpack.encode(body))


def test_counting_ends_with_the_first_that_is_too_many() -> None:
    with pytest.raises(TooManyMessages):
        check(body_of(100 * MAX))
    assert message_count._Message.left == -1


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"value": [1] * 3 * MAX}]},
        {"value": [{"messages": 1}] * 3 * MAX},
        {"receipts": ["x"] * 3 * MAX},
        ["x"] * 3 * MAX,
        {"messages": [1] * 3 * MAX},
    ],
)
def test_what_are_no_messages_is_left_to_the_decoder(body: object) -> None:
    check(body)
