"""What `headrace dlq redrive` says of its outcome."""

from __future__ import annotations

from headrace.cli.dlq import redrive_lines
from headrace.core.values import RedriveResult


def test_the_numbers_of_a_redrive_that_stopped_add_up() -> None:
    result = RedriveResult(
        matched=3_000, redriven=1_490, looping=10, stopped="most came back", in_place=1_490
    )
    assert list(redrive_lines(result, 1_500, dry_run=False)) == [
        "1,490 of 3,000 dead letters redriven (1,490 in place)",
        "10 came back too often already and stay; --force takes them too",
        "stopped with 1,500 not tried: most came back, or try a few with --limit",
    ]
