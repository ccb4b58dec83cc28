"""`headrace dlq`: the dead letters, which are messages that were given up.

    headrace dlq list orders        what failed, and why
    headrace dlq show orders.dlq:0:7
    headrace dlq redrive orders     try them again, once the cause is repaired
    headrace dlq purge orders       forget them

A redriven message reaches the queue group in which it failed and no other queue group;
streams see the copy, as they see every record.
Redriving stops by itself when what it redrives comes straight back, and leaves
alone what came back too often before (`--force` takes those too).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.command import (
    EXIT_FAILED,
    EXIT_NOTHING_FOUND,
    Place,
    command,
    json_option,
    noun,
    open_backend,
    open_handle,
    yes_option,
)
from headrace.cli.completing import queue_names, topic_names
from headrace.cli.output import (
    CELL_CHARACTERS_MAX,
    flush_lines,
    iso_moment,
    json_bytes,
    json_headers,
    print_fields,
    print_table,
    progress,
    say,
    shown_text,
    ways_of,
    write_json,
    write_json_line,
)
from headrace.core.limits import REVIVED_MAX
from headrace.core.values import MessageId, RedriveResult
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.client.dead_letters import Choice
    from headrace.client.views import DeadLetterView

Function = TypeVar("Function", bound=Callable[..., Any])

dlq = noun(
    "dlq",
    "Look at dead letters, try them again, or forget them.",
    examples="""
    headrace dlq list orders
    headrace dlq redrive orders --reason timeout --dry-run
    """,
)


def _filters(function: Function) -> Function:
    for option in (
        click.option("--limit", type=click.IntRange(min=1), help="At most so many."),
        click.option("--reason", metavar="TEXT", help="Only with this text in reason or error."),
        click.option(
            "--group",
            shell_complete=queue_names,
            help="Only those that failed in this queue group.",
        ),
    ):
        function = option(function)
    return function


@command(
    dlq,
    "list",
    examples="""
    headrace dlq list orders
    headrace dlq list orders --group billing --reason timeout --json
    """,
)
@click.argument("topic", shell_complete=topic_names)
@_filters
@json_option
def list_dead_letters(
    topic: str,
    group: str | None,
    reason: str | None,
    limit: int | None,
    as_json: bool,
    place: Place,
) -> int | None:
    """The dead letters of a topic, 100 unless --limit says otherwise.

    Exit code 3 when there is none.
    """
    with open_handle(place, read_only=True) as handle:
        chosen = handle.dead_letters(topic).choose(group=group, reason=reason, limit=limit or 100)
        letters = list(chosen)
    if as_json:
        write_json([dead_letter_document(letter) for letter in letters])
    else:
        print_table(
            ["id", "source", "group", "reason", "attempts", "failed at", "value"],
            [
                [
                    letter.id,
                    letter.source,
                    letter.group,
                    _why(letter),
                    letter.attempts,
                    iso_moment(letter.failed_at),
                    shown_text(letter.raw, CELL_CHARACTERS_MAX),
                ]
                for letter in letters
            ],
        )
    return None if letters else EXIT_NOTHING_FOUND


@command(dlq, "show", examples="headrace dlq show orders.dlq:0:7")
@click.argument("id_text", metavar="ID")
@json_option
def show_dead_letter(id_text: str, as_json: bool, place: Place) -> None:
    """One dead letter, whole."""
    from headrace.client.views import DeadLetterView

    with open_backend(place, read_only=True) as backend:
        letter = DeadLetterView(backend.dead_letter(MessageId.parse(id_text)))
    if as_json:
        write_json(dead_letter_document(letter))
        return
    print_fields(
        [
            ("id", letter.id),
            ("source", letter.source),
            ("group", letter.group),
            ("reason", letter.reason),
            ("error", letter.error),
            ("attempts", letter.attempts),
            ("redrives", letter.redrives),
            ("created at", iso_moment(letter.created_at)),
            ("failed at", iso_moment(letter.failed_at)),
            ("key", None if letter.key is None else shown_text(letter.key)),
            *((f"header {name}", shown_text(value)) for name, value in letter.all_headers),
            ("value", shown_text(letter.raw)),
        ]
    )


@command(
    dlq,
    "redrive",
    examples="""
    headrace dlq redrive orders --dry-run
    headrace dlq redrive orders --group billing --reason timeout --rate 100
    headrace dlq redrive orders --limit 10 --yes
    headrace dlq redrive --plan redrive.toml
    """,
)
@click.argument("topic", required=False, shell_complete=topic_names)
@_filters
@click.option("--plan", type=click.Path(), help="Do what a triage's plan says, step by step.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="So many a second.")
@click.option("--dry-run", is_flag=True, help="Say how many it would be, and do nothing.")
@click.option("--force", is_flag=True, help="Also those that came back too often already.")
@yes_option
@json_option
def redrive(
    topic: str | None,
    group: str | None,
    reason: str | None,
    limit: int | None,
    plan: str | None,
    rate: float | None,
    dry_run: bool,
    force: bool,
    yes: bool,
    as_json: bool,
    place: Place,
) -> int | None:
    """Give dead letters back to the queue group in which they failed.

    A message that is still in its topic is made ready again in its place, and nobody else
    sees anything of it. Of one that is not, a copy is published, which streams see.

    Exit code 3 when none matched, 1 when it stopped before the end.
    """
    if plan is not None:
        if topic is not None or group or reason or limit or rate:
            raise click.UsageError("a plan names topics, groups and rates itself; give it alone")
        from headrace.cli.redrive_plan import carry_out

        with open_handle(place) as handle:
            return carry_out(handle, plan, dry_run=dry_run, force=force, yes=yes, as_json=as_json)
    if topic is None:
        raise click.UsageError("name a topic, or a plan with --plan")
    with open_handle(place) as handle:
        letters = handle.dead_letters(topic)
        choice: Choice = {"group": group, "reason": reason, "limit": limit}
        expected = letters.redrive(dry_run=True, force=force, **choice)
        result = expected
        if expected.matched and not dry_run:
            if not yes:
                going = counted(expected.redriven, "dead letter")
                click.confirm(
                    f"Redrive {going} of {topic}{ways_of(expected)}?", abort=True, err=True
                )
            with progress("redriving", expected.matched) as bar:
                result = letters.redrive(
                    rate=rate,
                    force=force,
                    progress=lambda so_far: bar.reach(so_far.matched),
                    **choice,
                )
    untried = max(0, expected.matched - result.matched) if result.stopped else 0
    # Those that it did not get to match as well.
    result = result._replace(matched=result.matched + untried)
    if as_json:
        write_json(result._asdict() | {"dry_run": dry_run})
    else:
        for line in redrive_lines(result, untried, dry_run=dry_run):
            say(line)
    if result.stopped:
        return EXIT_FAILED
    return None if result.matched else EXIT_NOTHING_FOUND


def redrive_lines(result: RedriveResult, untried: int, *, dry_run: bool) -> Iterator[str]:
    """What came of all that matched: the numbers add up to the total."""
    verb = "would be redriven" if dry_run else "redriven"
    total = counted(result.matched, "dead letter")
    yield f"{result.redriven:,} of {total} {verb}{ways_of(result)}"
    if result.orphaned:
        yield (
            f"{result.orphaned:,} failed in a group that is gone or reads a stream, and stay; "
            "purge them when nobody needs them"
        )
    if result.looping:
        yield f"{result.looping:,} came back too often already and stay; --force takes them too"
    if dry_run and result.in_place > REVIVED_MAX:
        yield f"at most {REVIVED_MAX:,} of a partition go back in place, and the others as copies"
    if result.returned and not result.stopped:
        yield f"{result.returned:,} came back to the dead letters meanwhile"
    if result.stopped:
        yield f"stopped with {untried:,} not tried: {result.stopped}, or try a few with --limit"


@command(
    dlq,
    "purge",
    examples="""
    headrace dlq purge orders --reason 'bad address' --dry-run
    headrace dlq purge orders --yes
    """,
)
@click.argument("topic", shell_complete=topic_names)
@_filters
@click.option("--dry-run", is_flag=True, help="Say how many it would be, and do nothing.")
@yes_option
@json_option
def purge(
    topic: str,
    group: str | None,
    reason: str | None,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    place: Place,
) -> int | None:
    """Forget dead letters. There is no way back; `dlq export` keeps a copy.

    Exit code 3 when none matched.
    """
    purged = 0
    choice: Choice = {"group": group, "reason": reason, "limit": limit}
    with open_handle(place) as handle:
        letters = handle.dead_letters(topic)
        matched = letters.count(**choice)
        if matched and not dry_run:
            if not yes:
                click.confirm(
                    f"Purge {counted(matched, 'dead letter')} of {topic}?", abort=True, err=True
                )
            purged = letters.purge(**choice)
    if as_json:
        write_json({"matched": matched, "purged": purged, "dry_run": dry_run})
    elif dry_run:
        say(f"{counted(matched, 'dead letter')} would be purged")
    else:
        say(f"{counted(purged, 'dead letter')} purged")
    return None if matched else EXIT_NOTHING_FOUND


@command(dlq, "export", examples="headrace dlq export orders > dead.jsonl")
@click.argument("topic", shell_complete=topic_names)
@_filters
def export(
    topic: str, group: str | None, reason: str | None, limit: int | None, place: Place
) -> int | None:
    """All dead letters of a topic as JSON Lines. Exit code 3 when there is none."""
    written = 0
    with open_handle(place, read_only=True) as handle:
        chosen = handle.dead_letters(topic).choose(group=group, reason=reason, limit=limit)
        for letter in chosen:
            write_json_line(dead_letter_document(letter))
            written += 1
    flush_lines()
    return None if written else EXIT_NOTHING_FOUND


def dead_letter_document(letter: DeadLetterView) -> dict[str, Any]:
    return {
        "id": str(letter.id),
        "source": str(letter.source),
        "group": letter.group,
        "reason": letter.reason,
        "error": letter.error,
        "attempts": letter.attempts,
        "redrives": letter.redrives,
        "created_at": iso_moment(letter.created_at),
        "failed_at": iso_moment(letter.failed_at),
        "key": json_bytes(letter.key),
        "value": json_bytes(letter.raw),
        "headers": json_headers(letter.all_headers),
    }


def _why(letter: DeadLetterView) -> str:
    if not letter.error:
        return letter.reason
    return f"{letter.reason}: {letter.error}"[:CELL_CHARACTERS_MAX]
