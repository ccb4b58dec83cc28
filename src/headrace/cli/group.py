"""`headrace group`: the groups that read topics, as streams or as queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.arguments import START, settings_of, settings_option
from headrace.cli.command import (
    Place,
    command,
    json_option,
    noun,
    open_backend,
    yes_option,
)
from headrace.cli.completing import group_names, queue_names, topic_names, words
from headrace.cli.consume import Start, start_positions
from headrace.cli.output import print_fields, print_table, say, write_json
from headrace.core.errors import GroupInUse, GroupKindMismatch
from headrace.core.settings import GroupSettings
from headrace.core.values import GroupInfo

if TYPE_CHECKING:
    from headrace.client.backend import Backend

group = noun(
    "group",
    "Look at, change and delete groups.",
    examples="""
    headrace group list
    headrace group describe billing
    """,
)


@command(group, "list", examples="headrace group list\nheadrace group list --json")
@json_option
def list_groups(as_json: bool, place: Place) -> None:
    """All groups, of both kinds."""
    with open_backend(place, read_only=True) as backend:
        groups = sorted(backend.groups(), key=lambda info: info.name)
    if as_json:
        write_json([info._asdict() for info in groups])
    else:
        print_table(
            ["group", "kind", "topics"],
            [[info.name, info.kind, ",".join(info.topics)] for info in groups],
        )


@command(group, "describe", examples="headrace group describe audit")
@click.argument("name", shell_complete=group_names)
@json_option
def describe_group(name: str, as_json: bool, place: Place) -> None:
    """One group: its settings, and how far it has come."""
    with open_backend(place, read_only=True) as backend:
        info = backend.group(name)
        progress = _progress(backend, info)
    if as_json:
        write_json(info._asdict() | {"partitions": progress})
        return
    fields: list[tuple[str, object]] = [
        ("group", info.name),
        ("kind", info.kind),
        ("topics", ", ".join(info.topics)),
    ]
    if info.consumers:
        fields.append(("members", ", ".join(info.consumers)))
    if info.kind == "queue":
        defaults = GroupSettings().to_mapping()
        fields += [
            (setting, value)
            for setting, value in sorted(info.settings.items())
            if value != defaults.get(setting)
        ]
    print_fields(fields)
    click.echo()
    print_table(
        ["topic", "partition", "position", "end", "lag"],
        [list(row.values()) for row in progress],
    )


@command(group, "alter", examples="headrace group alter billing --set visibility_ms=2m")
@click.argument("name", shell_complete=queue_names)
@settings_option(
    GroupSettings().to_mapping(),
    required=True,
    help=f"A setting; may be repeated. Known: {', '.join(GroupSettings().to_mapping())}.",
)
def alter_group(name: str, settings: tuple[tuple[str, str | int], ...], place: Place) -> None:
    """Change how a queue group leases, retries and gives up."""
    with open_backend(place) as backend:
        info = backend.alter_group(name, settings_of(settings))
    for setting in settings_of(settings):
        say(f"{name}: {setting} is {info.settings[setting]}")


@command(
    group,
    "reset",
    examples="""
    headrace group reset audit --topic orders --to earliest
    headrace group reset audit --topic orders --to 2027-01-31T09:00 --yes
    """,
)
@click.argument("name", shell_complete=group_names)
@click.option("--topic", required=True, shell_complete=topic_names)
@click.option(
    "--to",
    "start",
    type=START,
    required=True,
    shell_complete=words("earliest", "latest"),
    help="As in consume --from.",
)
@yes_option
def reset_group(name: str, topic: str, start: Start, yes: bool, place: Place) -> None:
    """Move a stream group's cursors to another place in a topic."""
    with open_backend(place) as backend:
        known = {info.name: info for info in backend.groups()}
        if name in known and known[name].kind == "queue":
            raise GroupKindMismatch(
                f"{name} is a queue group, which has no cursors; delete it to start anew"
            )
        if name in known and known[name].consumers:
            # Whoever reads would go on where it is, and its next commit undo the move.
            raise GroupInUse(f"{name} has members; let them leave before it is moved")
        positions = start_positions(backend, topic, None, start)
        if not yes:
            click.confirm(f"Move group {name} in {topic}?", abort=True, err=True)
        backend.commit(
            name, {(topic, partition): offset for partition, offset in positions.items()}
        )
    for partition, offset in positions.items():
        say(f"{name} continues {topic} partition {partition} at offset {offset}")


@command(group, "delete", examples="headrace group delete billing --yes")
@click.argument("name", shell_complete=group_names)
@yes_option
def delete_group(name: str, yes: bool, place: Place) -> None:
    """Forget a group and how far it has come. Topics and records stay."""
    with open_backend(place) as backend:
        info = backend.group(name)
        if not yes:
            click.confirm(f"Delete {info.kind} group {name}?", abort=True, err=True)
        backend.delete_group(name)
    say(f"group {name} is deleted")


def _progress(backend: Backend, info: GroupInfo) -> list[dict[str, Any]]:
    """How far the group has come in each partition. A queue's position is its
    start offset: everything below it is done."""
    rows: list[dict[str, Any]] = []
    if info.kind == "queue":
        for one in backend.queue_statistics(info.name).partitions:
            rows.append(_row(one.topic, one.partition, one.start_offset, one.end_offset))
        return rows
    for topic in info.topics:
        committed = backend.committed(info.name, topic)
        for partition in backend.topic(topic).partitions:
            position = committed.get(partition.partition)
            rows.append(_row(topic, partition.partition, position, partition.high_watermark))
    return rows


def _row(topic: str, partition: int, position: int | None, end: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "position": position,
        "end": end,
        "lag": None if position is None else end - position,
    }
