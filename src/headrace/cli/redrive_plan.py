"""`headrace dlq redrive --plan`: what a triage proposed and a person agreed to.

    step          action     letters   done
    timed out     redrive        120    120
    KeyError      leave           17      -

Steps are done in order. One whose messages come straight back ends the plan, unless it was
the last: what follows would most likely fare no better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headrace.cli.command import EXIT_FAILED, EXIT_NOTHING_FOUND
from headrace.cli.output import counted, print_table, progress, say, ways_of, write_json
from headrace.client.redrive import most_came_back
from headrace.core.values import RedriveResult
from headrace.pipelines.triage.plan import Step, read_plan

if TYPE_CHECKING:
    from headrace.client.dead_letters import Choice
    from headrace.client.handle import Headrace


class Result(NamedTuple):
    step: Step
    matched: int
    done: int
    redriven: RedriveResult = RedriveResult(0, 0, 0, None)


def carry_out(
    handle: Headrace, path: str, *, dry_run: bool, force: bool, yes: bool, as_json: bool
) -> int | None:
    """Exit code 3 when no letter matched, 1 when a step stopped before its end."""
    steps = [step for step in read_plan(path) if step.action != "leave"]
    matched = [handle.dead_letters(step.topic).count(**_choice(step)) for step in steps]
    if sum(matched) and not dry_run and not yes:
        purged = sum(n for n, step in zip(matched, steps, strict=True) if step.action == "purge")
        question = f"Redrive {counted(sum(matched) - purged, 'dead letter')}"
        question += f" and purge {purged:,}" if purged else ""
        click.confirm(f"{question}?", abort=True, err=True)
    results: list[Result] = []
    left, stopped = sum(matched), None
    with progress("carrying out the plan", left) as bar:
        for step, count in zip(steps, matched, strict=True):
            result = _do(handle, step, count, dry_run=dry_run, force=force)
            results.append(result)
            bar.advance(count)
            is_purge = step.action == "purge"
            left -= count if is_purge else min(count, result.redriven.matched)
            stopped = _why_to_stop(result.redriven) if left else None
            if stopped is not None:
                break
    # Those that it did not get to match as well.
    results += [Result(step, n, 0) for step, n in zip(steps, matched, strict=True)][len(results) :]
    _answer(results, left, stopped, dry_run=dry_run, as_json=as_json)
    if stopped is not None:
        return EXIT_FAILED
    return None if sum(matched) else EXIT_NOTHING_FOUND


def _why_to_stop(redriven: RedriveResult) -> str | None:
    if redriven.stopped is None and most_came_back(redriven):
        return (
            f"{redriven.returned:,} of {counted(redriven.redriven, 'message')} came back to the "
            "dead letters; repair the cause first"
        )
    return redriven.stopped


def _choice(step: Step) -> Choice:
    return {"group": step.group or None, "filter": step.takes}


def _do(handle: Headrace, step: Step, matched: int, *, dry_run: bool, force: bool) -> Result:
    letters = handle.dead_letters(step.topic)
    if not matched:
        return Result(step, 0, 0)
    if step.action == "purge":
        return Result(step, matched, matched if dry_run else letters.purge(**_choice(step)))
    rate = None if dry_run else step.rate
    found = letters.redrive(rate=rate, dry_run=dry_run, force=force, **_choice(step))
    return Result(step, matched, found.redriven, found)


def _answer(
    results: list[Result], left: int, stopped: str | None, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        documents: list[dict[str, Any]] = [
            {**each.step._asdict(), "matched": each.matched, "done": each.done}
            | {"in_place": each.redriven.in_place, "copied": each.redriven.copied}
            | {"returned": each.redriven.returned, "stopped": each.redriven.stopped}
            | {"dry_run": dry_run}
            for each in results
        ]
        write_json(documents)
        return
    print_table(
        ["topic", "group", "reason", "action", "matched", "done"],
        [
            [
                each.step.topic, each.step.group, each.step.signature, each.step.action,
                each.matched, None if dry_run else each.done,
            ]
            for each in results
        ],
    )  # fmt: skip
    redriven = [each for each in results if each.step.action == "redrive"]
    verb = "would be redriven" if dry_run else "redriven"
    total = counted(sum(each.matched for each in redriven), "dead letter")
    whole = RedriveResult(0, 0, 0, None)
    for each in redriven:
        whole = whole.plus(each.redriven)
    say(f"{whole.redriven:,} of {total} {verb}{ways_of(whole)}")
    if whole.returned and stopped is None:
        say(f"{whole.returned:,} came back to the dead letters meanwhile")
    if stopped is not None:
        say(f"stopped with {left:,} not tried: {stopped}")
