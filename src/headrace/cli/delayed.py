"""`headrace delayed`: messages whose time has not come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

import click

from headrace.cli.command import (
    EXIT_NOTHING_FOUND,
    Place,
    command,
    json_option,
    noun,
    open_backend,
    open_handle,
)
from headrace.cli.completing import topic_names
from headrace.cli.output import (
    CELL_CHARACTERS_MAX,
    iso_moment,
    json_bytes,
    json_headers,
    print_table,
    say,
    shown_duration,
    shown_text,
    write_json,
)
from headrace.core.errors import InvalidArgument
from headrace.core.values import MessageId

if TYPE_CHECKING:
    from headrace.client.views import DelayedView

delayed = noun(
    "delayed",
    "See and cancel messages whose time has not come.",
    examples="""
    headrace delayed list orders
    headrace delayed cancel orders:0:42
    headrace delayed stats --server 127.0.0.1:9092
    """,
)


@command(delayed, "list", examples="headrace delayed list orders --limit 10")
@click.argument("topic", shell_complete=topic_names)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@json_option
def list_delayed(topic: str, limit: int, as_json: bool, place: Place) -> int | None:
    """The delayed messages of a topic, the next one first.

    Exit code 3 when there is none.
    """
    with open_handle(place, read_only=True) as handle:
        messages = list(islice(handle.delayed(topic), limit))
    if as_json:
        write_json([_document(message) for message in messages])
    else:
        now = datetime.now(UTC)
        print_table(
            ["id", "delivered at", "in", "key", "value"],
            [
                [
                    message.id,
                    iso_moment(message.deliver_at),
                    shown_duration((message.deliver_at - now) // timedelta(milliseconds=1)),
                    None if message.key is None else shown_text(message.key, 20),
                    shown_text(message.raw, CELL_CHARACTERS_MAX),
                ]
                for message in messages
            ],
        )
    return None if messages else EXIT_NOTHING_FOUND


@command(delayed, "stats", examples="headrace delayed stats orders --server 127.0.0.1:9092")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=topic_names)
@json_option
def stats(topics: tuple[str, ...], as_json: bool, place: Place) -> None:
    """What became of delayed messages, since the node was started.

    Without a topic: all in which there were any. A message counts as delivered, or as
    expired before its time came, once for each queue group.
    """
    if not place.server:
        raise InvalidArgument(
            "a node counts these while it runs, and a directory has none: name a node by --server"
        )
    with open_backend(place, read_only=True) as backend:
        found = backend.delayed_totals(list(topics) or None)
    if as_json:
        write_json([totals._asdict() for totals in found])
    else:
        print_table(["topic", "delivered", "cancelled", "expired"], found)


@command(delayed, "cancel", examples="headrace delayed cancel orders:0:42")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def cancel_delayed(ids: tuple[str, ...], place: Place) -> int | None:
    """Cancel delayed messages: no queue group will get them.

    Exit code 3 when one of them is not, or not any more, delayed.
    """
    parsed = [MessageId.parse(text) for text in ids]
    missed = 0
    with open_backend(place) as backend:
        for message_id in parsed:
            if backend.cancel(message_id):
                say(f"{message_id} is cancelled")
            else:
                missed += 1
                say(f"{message_id} is not delayed; nothing was changed")
    return EXIT_NOTHING_FOUND if missed else None


def _document(message: DelayedView) -> dict[str, object]:
    return {
        "id": str(message.id),
        "deliver_at": iso_moment(message.deliver_at),
        "created_at": iso_moment(message.created_at),
        "key": json_bytes(message.key),
        "value": json_bytes(message.raw),
        "headers": json_headers(message.all_headers),
    }
