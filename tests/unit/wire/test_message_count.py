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


def test_a_long_body_with_few_messages_is_not_gone_through_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_count, "_check", lambda *_: pytest.fail("it was counted"))
    check_msgpack_count(msgspec.msgpack.encode({"messages": [{"value": b"x" * 100}] * 1_000}))


@pytest.mark.parametrize("count", [MAX + 1, 100_000])
def test_msgpack_is_counted_however_it_spells_its_messages(count: int) -> None:
    """A name may be written in four ways, and may stand in a value before it counts."""
    size = count.to_bytes(4)
    for name in (b"\xa8", b"\xd9\x08", b"\xda\x00\x08", b"\xdb\x00\x00\x00\x08"):
        fields = name + b"messages\xdd" + size + b"\x80" * count
        with pytest.raises(TooManyMessages):
            check_msgpack_count(b"\x81" + fields)
        decoy = msgspec.msgpack.encode("messages" * 100)
        with pytest.raises(TooManyMessages):
            check_msgpack_count(b"\x82" + msgspec.msgpack.encode("topic") + decoy + fields)
