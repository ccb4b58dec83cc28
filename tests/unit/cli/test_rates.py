"""Rates are measured between two looks, and not made up from one."""

from __future__ import annotations

from typing import Any

from headrace.cli.queue import Look, Rates, rates
from headrace.core.values import QueuePartitionStatistics, QueueStatistics


def statistics(group: str, *, end_offset: int, delivered: int) -> QueueStatistics:
    """Numbers that do not matter here are 0."""
    nothing: dict[str, Any] = dict.fromkeys(QueuePartitionStatistics._fields, 0)
    partition = QueuePartitionStatistics(**nothing | {"end_offset": end_offset})
    nothing = dict.fromkeys(QueueStatistics._fields, 0)
    return QueueStatistics(
        **nothing | {"group": group, "delivered": delivered, "partitions": (partition,)}
    )


def test_rates_are_differences_over_the_time_between() -> None:
    before = Look(1_000, [statistics("g", end_offset=100, delivered=10)])
    after = Look(3_000, [statistics("g", end_offset=300, delivered=20)])
    assert rates(after, before, after.statistics[0]) == Rates(published=100.0, delivered=5.0)


def test_a_first_look_has_no_rates() -> None:
    look = Look(1_000, [statistics("g", end_offset=100, delivered=10)])
    assert rates(look, None, look.statistics[0]) is None


def test_a_group_that_was_not_there_before_has_no_rates() -> None:
    before = Look(1_000, [statistics("g", end_offset=100, delivered=10)])
    after = Look(3_000, [statistics("h", end_offset=300, delivered=20)])
    assert rates(after, before, after.statistics[0]) is None


def test_two_looks_in_one_millisecond_have_no_rates() -> None:
    before = Look(1_000, [statistics("g", end_offset=100, delivered=10)])
    assert rates(before, before, before.statistics[0]) is None
