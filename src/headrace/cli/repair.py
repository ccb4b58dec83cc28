"""`headrace repair`: mend what keeps queues from working in a directory.

It only looks, unless `--yes` is given. What is damaged is put aside and never removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.command import EXIT_FAILED, check_exists, command, json_option, yes_option
from headrace.cli.output import say, write_json
from headrace.core.wording import counted

if TYPE_CHECKING:
    from headrace.engine.salvage import Saved

LOST_SHOWN_MAX = 10


@command(
    None,
    "repair",
    on_files=True,
    examples="""
    headrace repair --data ./data
    headrace repair --data ./data --yes
    """,
)
@yes_option
@json_option
def repair(yes: bool, as_json: bool, directory: str) -> int | None:
    """Save what queues did where their state log is damaged.

    Without --yes it changes nothing and says what it would do; exit code 1 when there is
    something to repair. Nobody may have the directory open. The damaged files are kept
    beside the new ones, as state.damaged-1 and so on.

    Messages whose outcome is lost are delivered again. Such a delivery is never the first
    one, and its error says that the message may have been done already.
    """
    from headrace.node.repairing import repair as run
    from headrace.platform.clock import SystemClock
    from headrace.platform.disk import RealDisk
    from headrace.platform.entropy import SystemEntropy

    check_exists(directory)
    saved = run(RealDisk(directory), SystemEntropy(), SystemClock(), dry_run=not yes)
    if as_json:
        write_json({"repaired": yes, "partitions": [_document(each) for each in saved]})
    else:
        _print(saved, yes)
    return EXIT_FAILED if saved and not yes else None


def _document(saved: Saved) -> dict[str, Any]:
    return {**saved._asdict(), "groups": [group._asdict() for group in saved.groups]}


def _print(saved: Sequence[Saved], done: bool) -> None:
    for each in saved:
        click.echo(f"{each.topic}:{each.partition}")
        for lost in each.lost[:LOST_SHOWN_MAX]:
            click.echo(f"  lost: {lost}")
        if len(each.lost) > LOST_SHOWN_MAX:
            click.echo(f"  and {len(each.lost) - LOST_SHOWN_MAX} more")
        click.echo(f"  saved: {counted(each.events, 'event')}")
        for group in each.groups:
            again = f", {group.unsure:,} of them may have been done already" if group.unsure else ""
            click.echo(f"  group {group.name}: {group.pending:,} not done{again}")
        if each.kept_in is not None:
            click.echo(f"  the damaged files are in {each.kept_in}")
    if not saved:
        say("nothing to repair")
    elif done:
        say(f"repaired {counted(len(saved), 'partition')}")
    else:
        say(f"{counted(len(saved), 'partition')} to repair; do it with --yes")
