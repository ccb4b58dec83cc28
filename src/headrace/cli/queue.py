"""`headrace queue`: how the queue groups are doing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headrace.cli.arguments import DURATION
from headrace.cli.command import (
    Place,
    command,
    json_option,
    noun,
    open_backend,
    retry_option,
    stay_looking,
)
from headrace.cli.completing import queue_names
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
from headrace.core.values import LaneStatistics, LatencyStatistics, QueueStatistics

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
def list_queues(as_json: bool, place: Place) -> None:
    """All queue groups, with their depth."""
    with open_backend(place, read_only=True) as backend:
        look = Look(time.time_ns() // 1_000_000, _statistics(backend, None))
    if as_json:
        write_json([statistics_document(one, None) for one in look.statistics])
    else:
        _print_summary(look, None)


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
@click.argument("group", required=False, shell_complete=queue_names)
@click.option("--follow", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--every", type=DURATION, default="2s", show_default=True, help="With --follow.")
@retry_option
@json_option
def show_statistics(
    group: str | None,
    follow: bool,
    every: int,
    retry_ms: int | None,
    as_json: bool,
    place: Place,
) -> None:
    """How deep the queues are, lane by lane, and what has become of their messages.

    Without GROUP, all of them in one table. With --follow, --json prints one
    line a look, and a node that is away is waited for.
    """
    if retry_ms is not None and not follow:
        raise click.UsageError("--retry is for --follow")
    connection = stay_looking(place, retry_ms) if follow else {}
    before: Look | None = None
    while True:
        # Opened anew each time: a read-only node shows the moment at which it
        # was opened.
        with open_backend(place, read_only=True, **connection) as backend:
            look = Look(time.time_ns() // 1_000_000, _statistics(backend, group))
        documents = [statistics_document(one, rates(look, before, one)) for one in look.statistics]
        if as_json and follow:
            write_json_line({"at": iso_time(look.at_ms), "queues": documents})
        elif as_json:
            write_json(documents if group is None else documents[0])
        else:
            if follow and stdout_is_terminal():
                click.clear()
            if group is None:
                _print_summary(look, before)
            else:
                _print_one(look.statistics[0], rates(look, before, look.statistics[0]), look.at_ms)
        if not follow:
            return
        flush_lines()
        before = look
        time.sleep(every / 1000)


class Look(NamedTuple):
    """What was there at one moment."""

    at_ms: int
    statistics: list[QueueStatistics]


class Rates(NamedTuple):
    """Messages a second: published to the group's topics, and delivered by it."""

    published: float
    delivered: float


def rates(look: Look, before: Look | None, one: QueueStatistics) -> Rates | None:
    """Between two looks. One look from outside tells nothing about them: only
    the process that has the directory open knows what it did just now."""
    if before is None or look.at_ms <= before.at_ms:
        return None
    for earlier in before.statistics:
        if earlier.group == one.group:
            seconds = (look.at_ms - before.at_ms) / 1000
            published = _end_offsets(one) - _end_offsets(earlier)
            return Rates(published / seconds, (one.delivered - earlier.delivered) / seconds)
    return None


def _end_offsets(one: QueueStatistics) -> int:
    return sum(partition.end_offset for partition in one.partitions)


def _statistics(backend: Backend, group: str | None) -> list[QueueStatistics]:
    if group is not None:
        return [backend.queue_statistics(group)]
    names = sorted(info.name for info in backend.groups() if info.kind == "queue")
    return [backend.queue_statistics(name) for name in names]


def statistics_document(statistics: QueueStatistics, measured: Rates | None) -> dict[str, Any]:
    document = statistics._asdict()
    document["rate_in"] = None if measured is None else round(measured.published, 3)
    document["rate_out"] = None if measured is None else round(measured.delivered, 3)
    document["depth"] = statistics.depth
    document["oldest"] = iso_time(document.pop("oldest_ms"))
    document["lanes"] = _lane_documents(statistics.lanes)
    for name in ("to_lease", "to_ack"):
        document[name] = document[name]._asdict()
    document["partitions"] = []
    for one in statistics.partitions:
        partition = one._asdict()
        # Only the process that has the directory open knows these.
        partition.pop("rate_in", None)
        partition.pop("rate_out", None)
        partition["oldest"] = iso_time(partition.pop("oldest_ms"))
        partition["lanes"] = _lane_documents(one.lanes)
        document["partitions"].append(partition)
    return document


def shown_latency(latency: LatencyStatistics) -> str:
    shown = (("p50", latency.p50_ms), ("p95", latency.p95_ms), ("p99", latency.p99_ms))
    return ", ".join(f"{name} {shown_duration(each or 0)}" for name, each in shown)


def _lane_documents(lanes: Sequence[LaneStatistics]) -> list[dict[str, Any]]:
    # What a lane delivered and when is known only where it was delivered.
    return [{"lane": lane.lane, "ready": lane.ready} for lane in lanes]


def _print_summary(look: Look, before: Look | None) -> None:
    rows: list[list[object]] = []
    for one in look.statistics:
        row: list[object] = [one.group, ",".join(one.topics), one.depth]
        row += [getattr(one, state) for state in STATES]
        row += [one.acked, one.dead_lettered]
        if before is not None:
            row += rates(look, before, one) or (None, None)
        rows.append(row)
    headings = ["group", "topics", "depth", *STATES, "acked", "dead"]
    print_table(headings if before is None else [*headings, "in/s", "out/s"], rows)


def _print_one(statistics: QueueStatistics, measured: Rates | None, now_ms: int) -> None:
    oldest = statistics.oldest_ms
    shown_rates = (
        []
        if measured is None
        else [
            ("rate in", f"{measured.published:,.1f}/s"),
            ("rate out", f"{measured.delivered:,.1f}/s"),
        ]
    )
    latencies = (("publish to lease", statistics.to_lease), ("publish to ack", statistics.to_ack))
    shown_latencies = [(name, shown_latency(each)) for name, each in latencies if each.count]
    print_fields(
        [
            ("group", statistics.group),
            ("topics", ", ".join(statistics.topics)),
            ("depth", statistics.depth),
            *((state, getattr(statistics, state)) for state in STATES),
            ("oldest", None if oldest is None else shown_duration(now_ms - oldest)),
            *((name.replace("_", " "), getattr(statistics, name)) for name in COUNTERS),
            *shown_rates,
            *shown_latencies,
        ]
    )
    click.echo()
    print_table(
        ["lane", "ready"],
        [[lane.lane, lane.ready] for lane in statistics.lanes],
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
