"""`headrace topic`: make, look at, change and delete topics."""

from __future__ import annotations

import click

from headrace.cli.arguments import settings_of, settings_option
from headrace.cli.command import (
    Place,
    command,
    json_option,
    noun,
    open_backend,
    open_handle,
    yes_option,
)
from headrace.cli.completing import topic_names
from headrace.cli.output import print_fields, print_table, say, shown_bytes, write_json
from headrace.core.settings import TopicSettings
from headrace.core.values import TopicInfo
from headrace.core.wording import counted

topic = noun(
    "topic",
    "Make, look at, change and delete topics.",
    examples="""
    headrace topic create orders --partitions 6
    headrace topic list
    """,
)

_SETTINGS = tuple(TopicSettings().to_mapping())


@command(
    topic,
    "create",
    examples="""
    headrace topic create orders
    headrace topic create orders --partitions 12 --set ordering=key
    headrace topic create clicks --set durability=interval --set retention_ms=2d
    """,
)
@click.argument("name")
@click.option("--partitions", type=int, default=3, show_default=True)
@settings_option(_SETTINGS, help=f"A setting; may be repeated. Known: {', '.join(_SETTINGS)}.")
@click.option("--exist-ok", is_flag=True, help="It is fine when the topic exists already.")
@json_option
def create_topic(
    name: str,
    partitions: int,
    settings: tuple[tuple[str, str | int], ...],
    exist_ok: bool,
    as_json: bool,
    place: Place,
) -> None:
    """Make a topic, and the directory when there is none."""
    with open_handle(place, create=True) as handle:
        info = handle.create_topic(
            name, partitions=partitions, exist_ok=exist_ok, **settings_of(settings)
        )
        if as_json:
            write_json(topic_document(info))
        else:
            say(f"topic {info.name} has {counted(len(info.partitions), 'partition')}")


@command(topic, "list", examples="headrace topic list\nheadrace topic list --json")
@click.option("--internal", is_flag=True, help="With those that Headrace keeps for itself.")
@json_option
def list_topics(internal: bool, as_json: bool, place: Place) -> None:
    """All topics, with what they hold."""
    with open_backend(place, read_only=True) as backend:
        infos = sorted(backend.topics(internal=internal), key=lambda info: info.name)
    if as_json:
        write_json([topic_document(info) for info in infos])
        return
    print_table(
        ["topic", "partitions", "records", "size"],
        [
            [info.name, len(info.partitions), _records(info), shown_bytes(_size(info))]
            for info in infos
        ],
    )


@command(topic, "describe", examples="headrace topic describe orders")
@click.argument("name", shell_complete=topic_names)
@json_option
def describe_topic(name: str, as_json: bool, place: Place) -> None:
    """One topic: its partitions, and the settings that differ from the defaults."""
    with open_backend(place, read_only=True) as backend:
        info = backend.topic(name)
    if as_json:
        write_json(topic_document(info))
        return
    defaults = TopicSettings().to_mapping()
    changed = {
        setting: value for setting, value in info.settings.items() if value != defaults.get(setting)
    }
    print_fields(
        [
            ("topic", info.name),
            ("id", info.id),
            ("records", _records(info)),
            ("size", shown_bytes(_size(info))),
            *sorted(changed.items()),
        ]
    )
    click.echo()
    print_table(
        ["partition", "start", "end", "high watermark", "segments", "size"],
        [
            [
                one.partition,
                one.start_offset,
                one.end_offset,
                one.high_watermark,
                one.segments,
                shown_bytes(one.size_bytes),
            ]
            for one in info.partitions
        ],
    )


@command(topic, "alter", examples="headrace topic alter orders --set retention_ms=30d")
@click.argument("name", shell_complete=topic_names)
@settings_option(_SETTINGS, required=True)
@json_option
def alter_topic(
    name: str, settings: tuple[tuple[str, str | int], ...], as_json: bool, place: Place
) -> None:
    """Change settings of a topic. What is not named stays as it is."""
    with open_backend(place) as backend:
        info = backend.alter_topic(name, settings_of(settings))
    if as_json:
        write_json(topic_document(info))
    else:
        for setting in settings_of(settings):
            say(f"{name}: {setting} is {info.settings[setting]}")


@command(topic, "grow", examples="headrace topic grow orders --partitions 12")
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", type=int, required=True, help="How many it shall have then.")
@click.option(
    "--break-key-order",
    is_flag=True,
    help="Accept that keys move to other partitions while producers switch.",
)
def grow_topic(name: str, partitions: int, break_key_order: bool, place: Place) -> None:
    """Give a topic more partitions. It can never have fewer."""
    with open_backend(place) as backend:
        info = backend.grow_topic(name, partitions, break_key_order=break_key_order)
    say(f"topic {name} has {counted(len(info.partitions), 'partition')}")


@command(
    topic, "delete", examples="headrace topic delete orders\nheadrace topic delete orders --yes"
)
@click.argument("name", shell_complete=topic_names)
@yes_option
def delete_topic(name: str, yes: bool, place: Place) -> None:
    """Delete a topic with everything in it. There is no way back."""
    with open_backend(place) as backend:
        info = backend.topic(name)
        if not yes:
            held = f"{counted(_records(info), 'record')}, {shown_bytes(_size(info))}"
            click.confirm(f"Delete topic {name} ({held})?", abort=True, err=True)
        backend.delete_topic(name)
    say(f"topic {name} is deleted")


def topic_document(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "id": info.id,
        "records": _records(info),
        "size_bytes": _size(info),
        "settings": info.settings,
        "partitions": [one._asdict() for one in info.partitions],
    }


def _records(info: TopicInfo) -> int:
    """Offsets in use; compaction may have left fewer records."""
    return sum(one.high_watermark - one.start_offset for one in info.partitions)


def _size(info: TopicInfo) -> int:
    return sum(one.size_bytes for one in info.partitions)
