"""`headrace status`: what became of one message."""

from __future__ import annotations

import click

from headrace.cli.command import (
    Place,
    command,
    json_option,
    open_backend,
)
from headrace.cli.completing import queue_names
from headrace.cli.output import iso_time, print_fields, write_json
from headrace.core.values import MessageId


@command(
    None,
    "status",
    examples="""
    headrace status orders:0:42 --group billing
    headrace status orders:0:42 --group billing --json
    """,
)
@click.argument("id_text", metavar="ID")
@click.option(
    "--group",
    required=True,
    shell_complete=queue_names,
    help="The queue group whose view is asked for.",
)
@json_option
def status(id_text: str, group: str, as_json: bool, place: Place) -> None:
    """What became of one message in one queue group."""
    message_id = MessageId.parse(id_text)
    with open_backend(place, read_only=True) as backend:
        found = backend.status(message_id, group)
    if as_json:
        write_json(
            {
                "id": str(message_id),
                "group": group,
                "state": found.state,
                "attempts": found.attempts,
                "due": iso_time(found.due_ms),
                "consumer": found.consumer,
            }
        )
        return
    fields: list[tuple[str, object]] = [
        ("id", message_id),
        ("group", group),
        ("state", found.state),
        ("attempts", found.attempts),
    ]
    if found.due_ms is not None:
        fields.append(("due", iso_time(found.due_ms)))
    if found.consumer is not None:
        fields.append(("consumer", found.consumer))
    print_fields(fields)
