"""When the next delayed message or retry of a group comes due."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.values import MessageId


@pytest.fixture
def bench(bench: Any) -> Any:
    bench.make()
    return bench


def due_in_ms(bench: Any, group: str = "workers") -> int | None:
    due_ms = bench.node.next_delayed_ms(group)
    return None if due_ms is None else due_ms - bench.clock.time_ms


def test_ends_of_leases_and_lives_are_no_message_that_comes(bench: Any) -> None:
    bench.publish(b"leased")
    assert len(bench.lease()) == 1
    bench.publish(b"short", ttl_ms=1_000)
    assert bench.node.next_due_ms(bench.group, [bench.topic]) is not None
    assert due_in_ms(bench) is None


def test_the_first_of_delays_moments_and_retries_counts(bench: Any) -> None:
    bench.publish(b"again")
    bench.node.nack(bench.group, bench.receipts(), delay_ms=1_000)
    bench.publish(b"later", delay_ms=3_000)
    bench.publish(b"then", deliver_at_ms=bench.clock.time_ms + 2_000)
    seen = []
    while (due_ms := due_in_ms(bench)) is not None:
        seen.append(due_ms)
        bench.skip(due_ms)
    assert seen == [1_000, 1_000, 1_000]


def test_what_was_called_off_does_not_come(bench: Any) -> None:
    [first] = bench.publish(b"off", delay_ms=1_000)
    bench.publish(b"later", delay_ms=2_000)
    assert bench.node.cancel(MessageId(bench.topic, 0, first))
    assert due_in_ms(bench) == 2_000
    bench.reopen()
    assert due_in_ms(bench) == 2_000


def test_delayed_messages_from_before_a_group_are_not_its_own(bench: Any) -> None:
    bench.publish(b"before", delay_ms=1_000)
    bench.node.open_queue("late", [bench.topic], "bob", {"start": "latest"})
    assert due_in_ms(bench, "late") is None
    bench.publish(b"after", delay_ms=2_000)
    assert (due_in_ms(bench), due_in_ms(bench, "late")) == (1_000, 2_000)
