"""`headrace queue`: how the queue groups are doing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.arguments import DURATION
from headrace.cli.command import command, json_option, noun, open_backend
from headrace.cli.output import (
    flush_lines,
    iso_time,
    print_fields,
    print_table,
    shown_duration,
    stdout_is_terminal,
    write_json,
    write_json_line,
)
from headrace.core.values import QueueStatistics

if TYPE_CHECKING:
    from headrace.client.backend import Backend

queue = noun(
    "queue",
    "See how the queue groups are doing.",
    examples="""
    headrace queue list
    headrace queue stats billing --follow
    """,
)

COUNTERS = (
    "delivered",
    "acked",
    "nacked",
    "lease_expired",
    "dead_lettered",
    "expired",
    "cancelled",
)
STATES = ("ready", "waiting", "leased", "retrying", "delayed", "moving")


@command(queue, "list", examples="headrace queue list\nheadrace queue list --json")
@json_option
def list_queues(as_json: bool, directory: str) -> None:
    """All queue groups, with their depth."""
    with open_backend(directory, read_only=True) as backend:
        statistics = _statistics(backend, None)
    if as_json:
        write_json([statistics_document(one) for one in statistics])
    else:
        _print_summary(statistics)


@command(
    queue,
    "stats",
    examples="""
    headrace queue stats
    headrace queue stats billing
    headrace queue stats billing --json
    headrace queue stats --follow --every 1s
    """,
)
@click.argument("group", required=False)
@click.option("--follow", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="With --follow.")
@json_option
def show_statistics(
    group: str | None, follow: bool, every: int, as_json: bool, directory: str
) -> None:
    """How deep the queues are, lane by lane, and what has become of their messages.

    Without GROUP, all of them in one table. With --follow, --json prints one
    line a look.
    """
    while True:
        # Opened anew each time: a read-only handle shows the moment it was made.
        with open_backend(directory, read_only=True) as backend:
            now_ms = time.time_ns() // 1_000_000
            statistics = _statistics(backend, group)
        if follow and stdout_is_terminal() and not as_json:
            click.clear()
        if as_json:
            documents = [statistics_document(one) for one in statistics]
            document = documents if group is None else documents[0]
            if follow:
                write_json_line({"at": iso_time(now_ms), "queues": documents})
            else:
                write_json(document)
        elif group is None:
            _print_summary(statistics)
        else:
            _print_one(statistics[0], now_ms)
        if not follow:
            return
        flush_lines()
        time.sleep(every / 1000)


def _statistics(backend: Backend, group: str | None) -> list[QueueStatistics]:
    if group is not None:
        return [backend.queue_statistics(group)]
    names = sorted(info.name for info in backend.groups() if info.kind == "queue")
    return [backend.queue_statistics(name) for name in names]


def statistics_document(statistics: QueueStatistics) -> dict[str, Any]:
    document = statistics._asdict()
    document["depth"] = statistics.depth
    document["oldest"] = iso_time(document.pop("oldest_ms"))
    document["lanes"] = _lane_documents(statistics.lanes)
    document["partitions"] = []
    for one in statistics.partitions:
        partition = one._asdict()
        partition["oldest"] = iso_time(partition.pop("oldest_ms"))
        partition["lanes"] = _lane_documents(one.lanes)
        document["partitions"].append(partition)
    return document


def _lane_documents(lanes: Sequence[Any]) -> list[dict[str, Any]]:
    documents = []
    for lane in lanes:
        document = lane._asdict()
        document["last_served"] = iso_time(document.pop("last_served_ms"))
        documents.append(document)
    return documents


def _print_summary(statistics: Sequence[QueueStatistics]) -> None:
    print_table(
        ["group", "topics", "depth", *STATES[:5], "acked", "dead"],
        [
            [
                one.group,
                ",".join(one.topics),
                one.depth,
                *(getattr(one, state) for state in STATES[:5]),
                one.acked,
                one.dead_lettered,
            ]
            for one in statistics
        ],
    )


def _print_one(statistics: QueueStatistics, now_ms: int) -> None:
    oldest = statistics.oldest_ms
    print_fields(
        [
            ("group", statistics.group),
            ("topics", ", ".join(statistics.topics)),
            ("depth", statistics.depth),
            *((state, getattr(statistics, state)) for state in STATES),
            ("oldest", None if oldest is None else shown_duration(now_ms - oldest)),
            *((name.replace("_", " "), getattr(statistics, name)) for name in COUNTERS),
            ("rate in", f"{statistics.rate_in:,.1f}/s"),
            ("rate out", f"{statistics.rate_out:,.1f}/s"),
        ]
    )
    click.echo()
    print_table(
        ["lane", "ready", "delivered", "last served"],
        [
            [
                lane.lane,
                lane.ready,
                lane.delivered,
                None if lane.last_served_ms is None else iso_time(lane.last_served_ms),
            ]
            for lane in statistics.lanes
        ],
    )
    click.echo()
    print_table(
        ["topic", "partition", "start", "end", *STATES[:5]],
        [
            [
                one.topic,
                one.partition,
                one.start_offset,
                one.end_offset,
                *(getattr(one, state) for state in STATES[:5]),
            ]
            for one in statistics.partitions
        ],
    )
