"""The node at a glance: totals, what needs attention, the last minutes, the tables.

Everything here comes from the survey, which looks once for all who ask.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from platform import python_version
from typing import Any, TypeVar

from headrace.compiled import is_compiled
from headrace.core import limits
from headrace.core.attention import Machine, judge
from headrace.core.overview_rates import Rates
from headrace.core.overview_values import GroupTotals, TopicTotals
from headrace.core.settings import GroupSettings, TopicSettings
from headrace.server.http.route import Call
from headrace.server.http.shown import moment_of
from headrace.server.live import Sample
from headrace.server.survey import Picture
from headrace.server.version import VERSION
from headrace.wire.http import overview_bodies as o

Row = TypeVar("Row", o.TopicRow, o.GroupRow)

ROWS_AT_A_GLANCE = 8


async def overview(call: Call) -> o.Overview:
    picture = await call.facts.survey.look()
    topics = picture.own_topics
    groups = list(picture.groups.values())
    rows = [topic_row(each, picture) for each in topics]
    rows.sort(key=lambda each: (-each.rate_in, -each.messages, each.name))
    behind = sorted(groups, key=lambda each: (-each.lag, each.name))
    return o.Overview(
        time=moment_of(picture.at_ms),
        topics=len(topics),
        partitions=sum(each.partitions for each in topics),
        messages=sum(each.records for each in topics),
        size_bytes=sum(each.size_bytes for each in picture.topics.values()),
        groups=len(groups),
        queues=sum(each.kind == "queue" for each in groups),
        dead_letters=sum(picture.letters.values()),
        open_transactions=picture.overview.open_transactions,
        attention=await _attention(call, picture),
        busiest_topics=rows[:ROWS_AT_A_GLANCE],
        groups_behind=[group_row(each, picture) for each in behind[:ROWS_AT_A_GLANCE]],
    )


async def live(call: Call) -> o.Live:
    query: o.LiveQuery = call.query
    shown = [_shown_sample(each) for each in call.facts.live.samples]
    return o.Live(
        samples=[each for each in shown if query.after is None or each.time > query.after]
    )


async def topic_rows(call: Call) -> o.TopicRows:
    query: o.TopicRowsQuery = call.query
    picture = await call.facts.survey.look()
    found = [
        topic_row(each, picture)
        for each in picture.own_topics
        if (query.match or "").casefold() in each.name.casefold()
    ]
    return o.TopicRows(total=len(found), topics=_page(found, query))


async def group_rows(call: Call) -> o.GroupRows:
    query: o.GroupRowsQuery = call.query
    picture = await call.facts.survey.look()
    found = [
        group_row(each, picture)
        for each in picture.groups.values()
        if (query.kind is None or each.kind == query.kind)
        and (query.match or "").casefold() in each.name.casefold()
    ]
    return o.GroupRows(total=len(found), groups=_page(found, query))


def _page(rows: list[Row], query: o.RowsQuery) -> list[Row]:
    """What is not known is less than nothing."""

    def rank(row: Row) -> tuple[bool, Any]:
        value = getattr(row, query.sort)
        return value is not None, value

    rows.sort(key=lambda each: each.name)
    rows.sort(key=rank, reverse=query.descending)
    start = query.page * query.limit
    return rows[start : start + query.limit]


async def facts(call: Call) -> o.NodeFacts:
    service, known = call.service, call.facts
    now_ms = service.clock.now_ms()
    return o.NodeFacts(
        node_id=service.node_id,
        cluster_id=service.cluster_id,
        version=VERSION,
        python=python_version(),
        compiled=is_compiled(),
        started_at=moment_of(known.started_at_ms),
        uptime_seconds=max(0, now_ms - known.started_at_ms) / 1000,
        disk_free_bytes=service.disk.free_bytes(),
        memory_bytes=_memory_bytes(),
        cpu_seconds=time.process_time(),
        settings=known.settings.to_mapping(),
        limits={
            name.lower(): value
            for name, value in sorted(vars(limits).items())
            if isinstance(value, int) and name.isupper()
        },
        topic_defaults=TopicSettings().to_mapping(),
        group_defaults=GroupSettings().to_mapping(),
    )


def _memory_bytes() -> int | None:
    """What is resident now; where the system does not say, what it was at most."""
    try:
        import resource
    except ImportError:
        # Windows has no such module.
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


# What needs attention.


async def _attention(call: Call, picture: Picture) -> list[o.Attention]:
    """As many of each kind as somebody reads at a glance."""
    figures = call.service.figures
    # It asks the system, whose answers may wait for the disk.
    known = None if figures is None else await asyncio.to_thread(figures)
    last = call.facts.live.samples[-1] if call.facts.live.samples else None
    failed = call.service.commits.failed
    machine = Machine(
        call.service.disk.free_bytes(),
        call.facts.settings.free_bytes_min,
        None if known is None else known.open_files,
        None if known is None else known.open_files_max,
        None if failed is None else str(failed),
        None if last is None else last.loop_lag_p99_ms,
        None if last is None else last.sync_p99_ms,
    )
    told: Counter[str] = Counter()
    words = []
    for each in judge(picture.overview, machine):
        told[each.code] += 1
        if told[each.code] <= ROWS_AT_A_GLANCE:
            words.append(
                o.Attention(
                    level=each.level, code=each.code, text=each.text, kind=each.kind,
                    name=each.name,
                )
            )  # fmt: skip
    return words


# Rows.


def topic_row(topic: TopicTotals, picture: Picture) -> o.TopicRow:
    return o.TopicRow(
        name=topic.name,
        partitions=topic.partitions,
        messages=topic.records,
        size_bytes=topic.size_bytes,
        rate_in=picture.topic_rates.get(topic.name, Rates()).taken,
    )


def group_row(group: GroupTotals, picture: Picture) -> o.GroupRow:
    rates = picture.group_rates.get(group.name, Rates())
    oldest_ms = group.oldest_ms
    return o.GroupRow(
        name=group.name,
        kind=group.kind,
        topics=list(group.topics),
        members=group.members,
        lag=group.lag,
        waited_seconds=None if oldest_ms is None else max(0, picture.at_ms - oldest_ms) / 1000,
        ready=group.ready,
        waiting=group.waiting,
        leased=group.leased,
        delayed=group.delayed,
        retrying=group.retrying,
        dead_lettered=group.dead_lettered,
        rate_in=rates.taken,
        rate_out=rates.given,
    )


def _shown_sample(sample: Sample) -> o.LiveSample:
    return o.LiveSample(
        time=moment_of(sample.at_ms),
        messages_in=sample.messages_in,
        messages_out=sample.messages_out,
        bytes_in=sample.bytes_in,
        bytes_out=sample.bytes_out,
        failures=sample.failures,
        ready=sample.ready,
        waiting=sample.waiting,
        leased=sample.leased,
        delayed=sample.delayed,
        dead_letters=sample.letters,
        lag=sample.lag,
        publish_p50_ms=sample.publish_p50_ms,
        publish_p99_ms=sample.publish_p99_ms,
        sync_p99_ms=sample.sync_p99_ms,
        loop_lag_p99_ms=sample.loop_lag_p99_ms,
    )
