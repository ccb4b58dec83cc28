"""What `headrace dlq redrive` says of its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.cli.command import EXIT_FAILED
from headrace.cli.dlq import redrive_lines
from headrace.cli.redrive_plan import carry_out
from headrace.core.limits import REVIVED_MAX
from headrace.core.values import RedriveResult
from headrace.pipelines.triage.plan import Step, plan_text


def test_the_numbers_of_a_redrive_that_stopped_add_up() -> None:
    result = RedriveResult(
        matched=3_000, redriven=1_490, looping=10, stopped="most came back", in_place=1_490
    )
    assert list(redrive_lines(result, 1_500, dry_run=False)) == [
        "1,490 of 3,000 dead letters redriven (1,490 in place)",
        "10 came back too often already and stay; --force takes them too",
        "stopped with 1,500 not tried: most came back, or try a few with --limit",
    ]


def test_a_redrive_that_is_done_says_how_many_came_back() -> None:
    result = RedriveResult(30, 30, 0, None, in_place=30, returned=20)
    assert list(redrive_lines(result, 0, dry_run=False)) == [
        "30 of 30 dead letters redriven (30 in place)",
        "20 came back to the dead letters meanwhile",
    ]


def test_letters_of_a_stream_are_said_to_stay() -> None:
    result = RedriveResult(2, 0, 0, None, orphaned=2)
    assert list(redrive_lines(result, 0, dry_run=False)) == [
        "0 of 2 dead letters redriven",
        "2 failed in a group that is gone or reads a stream, and stay; purge them when nobody "
        "needs them",
    ]


def test_a_dry_run_of_very_many_says_that_some_may_be_copied() -> None:
    result = RedriveResult(REVIVED_MAX + 1, REVIVED_MAX + 1, 0, None, in_place=REVIVED_MAX + 1)
    assert list(redrive_lines(result, 0, dry_run=True)) == [
        "100,001 of 100,001 dead letters would be redriven (100,001 in place)",
        "at most 100,000 of a partition go back in place, and the others as copies",
    ]


class Letters:
    """Dead letters whose redrive has an outcome that is known before."""

    def __init__(self, outcome: RedriveResult) -> None:
        self.outcome = outcome
        self.is_tried = False

    def count(self, **choice: Any) -> int:
        return self.outcome.matched

    def redrive(self, *, dry_run: bool, **choice: Any) -> RedriveResult:
        self.is_tried = not dry_run
        return self.outcome


class Handle:
    def __init__(self, **letters: Letters) -> None:
        self._letters = letters

    def dead_letters(self, topic: str) -> Letters:
        return self._letters[topic]


def plan_for(folder: Path, *topics: str) -> str:
    path = folder / "plan.toml"
    steps = [Step("redrive", topic, "billing", "rejected", "bad", "", 0) for topic in topics]
    path.write_text(plan_text(steps, "a plan"))
    return str(path)


def carried_out(handle: Handle, plan: str, *, dry_run: bool = False) -> int | None:
    return carry_out(handle, plan, dry_run=dry_run, force=False, yes=True, as_json=False)  # type: ignore[arg-type]


def test_a_plan_whose_last_step_comes_back_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Letters(RedriveResult(30, 30, 0, None, in_place=30, returned=30))
    for dry_run in (True, False):
        assert (
            carried_out(Handle(orders=orders), plan_for(tmp_path, "orders"), dry_run=dry_run)
            is None
        )
        assert "stopped" not in capsys.readouterr().err


def test_a_plan_stops_when_most_of_a_step_came_back_and_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Letters(RedriveResult(30, 30, 0, None, in_place=30, returned=30))
    bills = Letters(RedriveResult(7, 7, 0, None, in_place=7))
    plan = plan_for(tmp_path, "orders", "bills")
    assert carried_out(Handle(orders=orders, bills=bills), plan) == EXIT_FAILED
    assert not bills.is_tried
    assert "30 of 37 dead letters redriven" in (said := capsys.readouterr().err)
    assert "stopped with 7 not tried: 30 of 30 messages came back" in said


def test_a_plan_stops_where_a_step_stops(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Letters(RedriveResult(500, 500, 0, "most came back", in_place=500))
    orders.count = lambda **choice: 800  # type: ignore[method-assign]
    assert carried_out(Handle(orders=orders), plan_for(tmp_path, "orders")) == EXIT_FAILED
    said = capsys.readouterr().err
    assert "500 of 800 dead letters redriven" in said
    assert "stopped with 300 not tried: most came back" in said
