"""Listings of dead letters and of delayed messages: a page ends when enough was looked at,
also where nothing was found, and the next one goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import GROUP, TOPIC, WORKER, Served, on_a_loop

from headrace.calls import Face
from headrace.core import limits
from headrace.core.values import MessageId, Outgoing
from headrace.engine import letter_listing
from headrace.engine.dead_letter import read_letter
from headrace.record import attribute_headers
from headrace.server.http import letters
from headrace.server.pages import delayed_page, letters_page

MANY = 300


async def reject(served: Served, *values: bytes) -> None:
    await served.publish(*values)
    leased = await served.lease(len(values))
    await served.run(Face.reject, GROUP, [each.receipt for each in leased], reason="bad")


async def everything(read: Callable[[Any], Any]) -> tuple[list[Any], int]:
    """All items, and how many pages they are."""
    found: list[Any] = []
    after, pages = None, 0
    while True:
        items, behind = await read(after)
        found += items
        pages += 1
        if behind is None:
            return found, pages
        assert behind != after
        after = behind


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Dead letters that were decoded."""
    seen: list[str] = []

    def note(*given: Any) -> Any:
        letter = read_letter(*given)
        seen.append(str(MessageId(letter.topic, letter.partition, letter.offset)))
        return letter

    monkeypatch.setattr(letter_listing, "read_letter", note)
    return seen


def test_letters_of_a_group_that_has_none_are_looked_for_a_page_at_a_time(
    monkeypatch: pytest.MonkeyPatch, looked_at: list[str]
) -> None:
    monkeypatch.setattr(limits, "LISTED_ITEMS_MAX", 50)

    async def scenario(served: Served) -> None:
        await served.make()
        await reject(served, *[b"x"] * MANY)
        page, behind = await letters_page(served.calls, TOPIC, "nobody", None, 10)
        assert (page, len(looked_at) < 100) == ([], True)
        assert behind == MessageId(f"{TOPIC}.dlq", 0, len(looked_at) - 1)
        looked_at.clear()
        found, pages = await everything(
            lambda after: letters_page(served.calls, TOPIC, "nobody", after, 10)
        )
        assert (found, pages > 4) == ([], True)
        assert len(looked_at) == len(set(looked_at)) == MANY
        # In a process of one's own it is one call, as ever.
        assert await served.run(Face.dead_letters, TOPIC, group="nobody") == []

    on_a_loop(scenario)


def test_pages_of_letters_have_each_once_whatever_the_size_of_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REMOTE_ANSWER_BYTES_MAX", 10_000)
    values = [b"x" * (1_000 * (number % 7)) for number in range(100)]

    async def scenario(served: Served) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=3)
        await served.run(Face.open_queue, GROUP, [TOPIC], WORKER, None)
        await reject(served, *values)
        for limit in (1, 7, 1_000):
            read = partial(letters_page, served.calls, TOPIC, GROUP, limit=limit)
            found, pages = await everything(read)
            assert sorted(each.value for each in found) == sorted(values)
            assert pages >= 100 // limit

    on_a_loop(scenario)


def test_letters_are_counted_by_reason_until_they_have_too_many_bytes(
    monkeypatch: pytest.MonkeyPatch, looked_at: list[str]
) -> None:
    monkeypatch.setattr(limits, "LISTED_BYTES_MAX", 3_000_000)

    async def scenario(served: Served) -> None:
        await served.make()
        await reject(served, *[bytes(500_000)] * 20)
        call: Any = SimpleNamespace(run=served.run, path={"topic": TOPIC})
        counted = await letters.group_by_reason(call)
        assert counted.more
        assert counted.counted == len(looked_at) <= 10
        assert [each.count for each in counted.reasons] == [len(looked_at)]

    on_a_loop(scenario)


def test_delayed_messages_that_were_called_off_are_passed_over_a_page_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LISTED_ITEMS_MAX", 50)

    async def scenario(served: Served) -> None:
        await served.make()
        headers = attribute_headers(delay_ms=60_000)
        places = await served.run(Face.publish, TOPIC, [Outgoing(b"x", headers=headers)] * MANY)
        for place in places[:-1]:
            await served.run(Face.cancel, MessageId(TOPIC, place.partition, place.offset))
        page, behind = await delayed_page(served.calls, TOPIC, None, 10)
        assert (page, behind is None) == ([], False)
        found, pages = await everything(lambda after: delayed_page(served.calls, TOPIC, after, 10))
        assert [each.offset for each in found] == [MANY - 1]
        assert pages > 4

    on_a_loop(scenario)
