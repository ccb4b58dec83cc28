"""Messages on their way in: what `publish` takes and what it answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.client.outgoing import (
    NewMessage,
    PublishedMessage,
    PublishedMessages,
    SharedBatch,
    to_batch,
    to_outgoing,
)
from headrace.core.errors import InvalidArgument
from headrace.core.values import MessageId, Outgoing, Published


def test_plain_bytes_carry_nothing_else() -> None:
    assert to_outgoing(NewMessage(b"x")) == Outgoing(b"x")


def test_everything_special_becomes_a_header() -> None:
    message = NewMessage(
        "text",
        key="k",
        headers={"trace": "7", "empty": None},
        priority="high",
        delay=timedelta(minutes=1),
        ttl=90,
        max_attempts=5,
        visibility=2.5,
        dedup_id="once",
        partition=2,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert to_outgoing(message) == Outgoing(
        b"text",
        b"k",
        (
            ("trace", b"7"),
            ("empty", None),
            ("content-type", b"text/plain"),
            ("headrace-priority", b"1"),
            ("headrace-delay-ms", b"60000"),
            ("headrace-ttl-ms", b"90000"),
            ("headrace-max-attempts", b"5"),
            ("headrace-visibility-ms", b"2500"),
            ("headrace-dedup-id", b"once"),
        ),
        1_767_225_600_000,
        2,
    )


def test_a_moment_of_delivery_becomes_milliseconds() -> None:
    outgoing = to_outgoing(NewMessage(b"x", deliver_at=1_767_225_600.5))
    assert outgoing.headers == (("headrace-deliver-at", b"1767225600500"),)


def test_a_content_type_of_the_publisher_is_kept() -> None:
    outgoing = to_outgoing(NewMessage("[1]", headers=[("content-type", "application/json")]))
    assert outgoing.headers == (("content-type", b"application/json"),)


@pytest.mark.parametrize(
    "options",
    [
        {"key": 7},
        {"headers": 7},
        {"headers": {"a": 7}},
        {"headers": {7: "a"}},
        {"headers": ["not pairs"]},
        {"headers": {"headrace-delay-ms": "5"}},
        {"priority": "urgent"},
        {"priority": 5},
        {"delay": -1},
        {"delay": 1, "deliver_at": 1_767_225_600.0},
        {"ttl": 0},
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"visibility": 0},
        {"visibility": timedelta(days=1)},
        {"dedup_id": ""},
        {"dedup_id": 5},
        {"partition": "first"},
        {"partition": True},
        {"timestamp": datetime(2026, 1, 1)},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        to_outgoing(NewMessage(b"x", **options))


def test_many_bytes_are_passed_on_untouched() -> None:
    values = [b"a", b"b"]
    batch = to_batch(values, {"priority": "low", "headers": {"h": "1"}, "partition": 1})
    assert isinstance(batch, SharedBatch)
    assert batch.values is values
    assert batch.headers == (("h", b"1"), ("headrace-priority", b"3"))
    assert batch.partition == 1


def test_many_values_of_one_kind_share_their_headers() -> None:
    batch = to_batch(({"n": n} for n in range(2)), {})
    assert batch == SharedBatch(
        [b'{"n":0}', b'{"n":1}'], (("content-type", b"application/json"),), None
    )


def test_values_of_different_kinds_go_one_by_one() -> None:
    assert to_batch([b"a", "b", None], {}) == [
        Outgoing(b"a"),
        Outgoing(b"b", headers=(("content-type", b"text/plain"),)),
        Outgoing(None),
    ]


def test_values_with_a_key_go_one_by_one() -> None:
    assert to_batch([b"a", b"b"], {"key": "k"}) == [Outgoing(b"a", b"k"), Outgoing(b"b", b"k")]


def test_options_are_defaults_for_messages_that_do_not_say_otherwise() -> None:
    batch = to_batch(
        [NewMessage(b"a", key="own", deliver_at=5.0), b"b"], {"key": "common", "delay": 1}
    )
    assert batch == [
        Outgoing(b"a", b"own", (("headrace-deliver-at", b"5000"),)),
        Outgoing(b"b", b"common", (("headrace-delay-ms", b"1000"),)),
    ]


def test_nothing_to_publish_is_an_empty_batch() -> None:
    assert to_batch([], {}) == []


@pytest.mark.parametrize("values", [b"one", "one", {"one": 1}, 1, None, NewMessage(b"one")])
def test_one_value_is_not_taken_for_many(values: Any) -> None:
    with pytest.raises(InvalidArgument, match="use publish"):
        to_batch(values, {})


def test_one_dedup_id_for_many_messages_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="dedup_id"):
        to_batch([b"a", b"b"], {"dedup_id": "once"})


def test_published_messages_are_made_when_they_are_looked_at() -> None:
    published = PublishedMessages("t", [Published(0, 5), Published(1, 6, True)])
    assert len(published) == 2
    assert published[1] == PublishedMessage("t", 1, 6, duplicate=True)
    assert published[-2:] == list(published)
    assert published[0].id == MessageId("t", 0, 5)
    assert str(published[0]) == "t:0:5"


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        to_batch([b"a"], {"colour": "red"})  # type: ignore[typeddict-unknown-key]
