"""Dead letters through the SDK: looked at, sent back, purged, exported."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.testing import ManualClock


@pytest.fixture
def orders(handle: headrace.Headrace) -> headrace.Headrace:
    handle.create_topic("orders", 2)
    return handle


def give_up(
    handle: headrace.Headrace, count: int, group: str = "default", reason: str = ""
) -> None:
    """Publish so many messages and reject each."""
    handle.publish_many("orders", [f"{reason}{number}" for number in range(count)])
    with handle.queue("orders", group) as queue:
        while messages := queue.receive(max=500, wait=0):
            queue.reject(messages, error=reason or "nonsense")


def test_a_dead_letter_says_where_it_came_from_and_why(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    created_at = clock.now()
    published = orders.publish("orders", {"n": 1}, key="k", headers={"h": "1"})
    clock.skip(5)
    with orders.queue("orders", "billing") as queue:
        queue.receive()[0].reject(error="nonsense")
    [letter] = orders.dead_letters("orders")
    assert letter.id.topic == "orders.dlq"
    assert letter.source == published.id
    assert (letter.group, letter.attempts, letter.redrives) == ("billing", 1, 0)
    assert "nonsense" in (letter.reason, letter.error)
    assert (letter.key, letter.value) == (b"k", {"n": 1})
    assert letter.headers["h"] == b"1"
    assert (letter.created_at, letter.failed_at) == (created_at, clock.now())
    assert orders.dead_letters("orders").show(str(letter.id)).source == published.id


def test_a_reason_needs_no_name(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"one", b"two"])
    with orders.queue("orders", "billing") as queue:
        one, two = queue.lease(2)
        one.reject("nonsense")
        queue.reject([two], "nonsense")
    assert [letter.error for letter in orders.dead_letters("orders")] == ["nonsense"] * 2


def test_a_topic_without_dead_letters_has_none(orders: headrace.Headrace) -> None:
    letters = orders.dead_letters("orders")
    assert (list(letters), len(letters), bool(letters)) == ([], 0, False)
    assert letters.redrive() == headrace.RedriveResult(0, 0, 0, None)
    assert letters.purge() == 0


def test_dead_letters_are_paged_underneath(orders: headrace.Headrace) -> None:
    give_up(orders, 2_100)
    letters = orders.dead_letters("orders")
    assert len({letter.source for letter in letters}) == 2_100
    assert len(letters) == 2_100


def test_dead_letters_are_chosen_by_group_reason_age_and_a_function(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    give_up(orders, 3, "billing", "timeout")
    clock.skip(100)
    give_up(orders, 2, "mail", "Bad Address")
    letters = orders.dead_letters("orders")
    # The mail group read the first three as well.
    assert letters.count() == 8
    assert letters.count(group="billing") == 3
    assert letters.count(group="mail") == 5
    assert letters.count(reason="address") == 5
    assert letters.count(older_than=50) == 3
    assert letters.count(filter=lambda letter: letter.value == "timeout1") == 2
    assert letters.count(group="mail", limit=4) == 4


def test_a_redriven_message_comes_back_to_its_group_with_all_attempts(
    orders: headrace.Headrace,
) -> None:
    orders.publish("orders", "text", key="k")
    billing = orders.queue("orders", "billing")
    mail = orders.queue("orders", "mail")
    mail.receive()[0].ack()
    billing.receive()[0].reject()
    assert orders.dead_letters("orders").redrive() == headrace.RedriveResult(
        1, 1, 0, None, in_place=1
    )
    assert mail.receive(wait=100) == []
    [message] = billing.receive()
    assert (message.value, message.key, message.attempt) == ("text", b"k", 1)
    message.ack()
    assert len(orders.dead_letters("orders")) == 0


def test_a_dry_run_counts_and_changes_nothing(orders: headrace.Headrace) -> None:
    give_up(orders, 5)
    letters = orders.dead_letters("orders")
    assert letters.redrive(dry_run=True, limit=3).matched == 3
    assert len(letters) == 5
    assert orders.depth("orders") == 0


def test_a_message_that_keeps_coming_back_is_left_unless_forced(
    orders: headrace.Headrace,
) -> None:
    give_up(orders, 1)
    letters = orders.dead_letters("orders")
    rounds = 0
    with orders.queue("orders") as queue:
        while (result := letters.redrive()).redriven:
            queue.receive()[0].reject()
            rounds += 1
        assert (result.looping, len(letters)) == (1, 1)
        assert rounds == 3
        assert letters.redrive(force=True).redriven == 1
        assert len(queue.receive()) == 1


def test_a_redrive_keeps_its_rate_and_tells_its_progress(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    give_up(orders, 50)
    begun_ms = clock.now_ms()
    told: list[int] = []
    result = orders.dead_letters("orders").redrive(
        rate=100, progress=lambda so_far: told.append(so_far.redriven)
    )
    assert result.redriven == 50
    assert clock.now_ms() - begun_ms == 500
    assert told == [10, 20, 30, 40, 50]


def test_a_redrive_stops_when_most_messages_come_back(orders: headrace.Headrace) -> None:
    give_up(orders, 200)
    with orders.queue("orders") as queue:

        def fail_again(so_far: headrace.RedriveResult) -> None:
            while messages := queue.lease(100):
                queue.reject(messages)

        result = orders.dead_letters("orders").redrive(rate=100, progress=fail_again)
    assert result.stopped is not None and "came back" in result.stopped
    # Every interface has its own word for taking fewer.
    assert "limit" not in result.stopped
    assert result.redriven < 200
    assert len(orders.dead_letters("orders")) == 200


def test_a_redrive_whose_last_batch_comes_back_is_done(orders: headrace.Headrace) -> None:
    give_up(orders, 30)
    with orders.queue("orders") as queue:

        def fail_again(so_far: headrace.RedriveResult) -> None:
            queue.reject(queue.lease(100))

        result = orders.dead_letters("orders").redrive(rate=100, progress=fail_again)
    # There is nothing left to be kept from a group that fails; how it fares is said all the same.
    assert (result.redriven, result.stopped, result.returned) == (30, None, 20)


def test_a_redrive_that_is_handled_goes_on_to_the_end(orders: headrace.Headrace) -> None:
    give_up(orders, 100)
    with orders.queue("orders") as queue:

        def handle_most(so_far: headrace.RedriveResult) -> None:
            while messages := queue.lease(10):
                queue.reject(messages[:4])
                queue.ack(messages[4:])

        result = orders.dead_letters("orders").redrive(rate=100, progress=handle_most)
    assert (result.redriven, result.stopped) == (100, None)
    assert len(orders.dead_letters("orders")) == 40


def test_purged_dead_letters_are_gone(orders: headrace.Headrace) -> None:
    give_up(orders, 5, reason="timeout")
    give_up(orders, 2, reason="address")
    letters = orders.dead_letters("orders")
    assert letters.purge(reason="timeout") == 5
    assert len(letters) == 2
    assert letters.purge() == 2
    assert len(letters) == 0


def test_dead_letters_are_exported_as_json_lines(orders: headrace.Headrace, tmp_path: Path) -> None:
    orders.publish_many("orders", ["text", b"\xff"], partition=0, headers={"h": "1"})
    with orders.queue("orders") as queue:
        queue.reject(queue.receive(), error="nonsense")
    letters = orders.dead_letters("orders")
    assert letters.export(tmp_path / "letters.jsonl") == 2
    lines = (tmp_path / "letters.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["value"], first["headers"]["h"], first["source"]) == ("text", "1", "orders:0:0")
    assert second["value_base64"] == "/w=="
    target = io.StringIO()
    assert letters.export(target, limit=1) == 1
    assert json.loads(target.getvalue()) == first


@pytest.mark.parametrize(
    "choice",
    [
        {"limit": 0},
        {"limit": "1"},
        {"older_than": -1},
        {"rate": 0},
        {"rate": "fast"},
        {"reason": 5},
        {"filter": 5},
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    orders: headrace.Headrace, choice: dict[str, Any]
) -> None:
    with pytest.raises(headrace.InvalidArgument):
        orders.dead_letters("orders").redrive(**choice)


def test_an_unknown_dead_letter_says_so(orders: headrace.Headrace) -> None:
    give_up(orders, 1)
    with pytest.raises(headrace.UnknownMessage):
        orders.dead_letters("orders").show("orders.dlq:0:999")
    with pytest.raises(headrace.UnknownTopic):
        list(orders.dead_letters("absent"))


@pytest.mark.parametrize("call", ["count", "choose", "purge", "redrive", "export"])
def test_a_misspelt_choice_is_refused_and_nothing_happens(
    orders: headrace.Headrace, tmp_path: Path, call: str
) -> None:
    give_up(orders, 2)
    target = tmp_path / "letters.jsonl"
    target.write_text("kept")
    letters = orders.dead_letters("orders")
    positional = [target] if call == "export" else []
    with pytest.raises(TypeError, match="older_then"):
        getattr(letters, call)(*positional, older_then=60)
    assert letters.count() == 2
    assert target.read_text() == "kept"
