"""Looks: what `headrace top` sees of a node or a directory, again and again.

    look ---- look ---- look ---- look        the last minute of them
                           '-rates'         between the last two; see `overview_rates`
      '------------- growth --------'         from the first to the last

On a node, one call has it all. A directory is opened read-only for each look, beside
the process that has it open; what that one takes of the machine is asked of the system.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.cli.command import Place, check_exists, stay_looking
from headrace.core.overview_rates import Rates, RateWindow
from headrace.core.overview_values import GroupTotals, NodeFigures, Overview, TopicTotals

WINDOW_MS = 60_000
LOOKS_MAX = 120
# As many as the widest terminal has columns.
SPARKS_MAX = 400


class Look(NamedTuple):
    overview: Overview
    figures: NodeFigures | None


class TopicRow(NamedTuple):
    totals: TopicTotals
    # Per second; None before the second look.
    rate_in: float | None
    rate_out: float | None


class GroupRow(NamedTuple):
    totals: GroupTotals
    rate_in: float | None
    rate_out: float | None
    # How long the next message has waited.
    behind_ms: int | None


class Frame(NamedTuple):
    """All that one picture shows."""

    at_ms: int
    figures: NodeFigures | None
    # Of one core.
    cpu_share: float | None
    topics: tuple[TopicRow, ...]
    groups: tuple[GroupRow, ...]
    rate_in: float | None
    rate_out: float | None
    history_in: tuple[float, ...]
    history_out: tuple[float, ...]
    open_transactions: int


class Source:
    """Where looks come from. Kept open on a node, opened anew on a directory.

    Whoever watches live wants to see at once that the node is away, so that a look which
    fails is not made again behind the scenes. A program that reads look after look waits
    for as long as it takes (`is_patient`).
    """

    def __init__(self, place: Place, *, is_live: bool = False, is_patient: bool = False) -> None:
        self.name = place.server or place.directory
        self._directory = place.directory
        self._remote = None
        if place.server:
            from headrace.client.caller import RETRY_SECONDS
            from headrace.client.connecting import open_backend

            connection = stay_looking(place, None) if is_patient else {}
            retry = 0 if is_live else RETRY_SECONDS
            self._remote = open_backend(place.server, **{"retry": retry, **connection})
        else:
            check_exists(place.directory)

    def look(self) -> Look:
        if self._remote is not None:
            return Look(self._remote.overview(), self._remote.figures())
        from headrace.node import Node

        node = Node.open(self._directory, read_only=True)
        try:
            return Look(node.overview(), directory_figures(self._directory))
        finally:
            node.close()

    def close(self) -> None:
        if self._remote is not None:
            self._remote.close()


def directory_figures(directory: str) -> NodeFigures:
    """Of the process that has the directory open, if there is one."""
    from importlib.metadata import version

    from headrace.core.node_settings import NodeSettings
    from headrace.platform.holder import find_holder
    from headrace.platform.process import ProcessFigures, memory_bytes_max, process_figures

    holder = find_holder(directory)
    process = ProcessFigures(None, None, None, None, None)
    if holder is not None and holder.is_here:
        process = process_figures(holder.pid)
    disk = shutil.disk_usage(directory)
    return NodeFigures(
        version("headrace"), 0, directory, process.started_at_ms, time.time_ns() // 1_000_000,
        process.cpu_seconds, process.memory_bytes, memory_bytes_max(), disk.free, disk.total, None,
        NodeSettings().free_bytes_min, process.open_files, process.open_files_max, 0, {},
    )  # fmt: skip


class History:
    """The looks of the last minute, and what they say together."""

    def __init__(self) -> None:
        self.looks: deque[Look] = deque(maxlen=LOOKS_MAX)
        self._rates = RateWindow()
        self._in: deque[float] = deque(maxlen=SPARKS_MAX)
        self._out: deque[float] = deque(maxlen=SPARKS_MAX)

    def add(self, look: Look) -> Frame:
        before = self.looks[-1] if self.looks else None
        self.looks.append(look)
        # Far apart they may be, but there is one before.
        while (
            len(self.looks) > 2 and look.overview.at_ms - self.looks[0].overview.at_ms > WINDOW_MS
        ):
            self.looks.popleft()
        overview = look.overview
        self._rates.add(overview)
        topics, groups = _topic_rows(look, self._rates), _group_rows(look, self._rates)
        rate_in = _sum(row.rate_in for row in topics) if before else None
        rate_out = _sum(row.rate_out for row in topics) if before else None
        if rate_in is not None and rate_out is not None:
            self._in.append(rate_in)
            self._out.append(rate_out)
        return Frame(
            overview.at_ms, look.figures, _cpu_share(look, before), topics, groups,
            rate_in, rate_out, tuple(self._in), tuple(self._out), overview.open_transactions,
        )  # fmt: skip


def _topic_rows(look: Look, rates: RateWindow) -> tuple[TopicRow, ...]:
    return tuple(
        TopicRow(each, *_of(rates.topics, each.name))
        for each in look.overview.topics
        if each.kind == "topic"
    )


def _group_rows(look: Look, rates: RateWindow) -> tuple[GroupRow, ...]:
    at_ms = look.overview.at_ms
    return tuple(
        GroupRow(
            each,
            *_of(rates.groups, each.name),
            None if each.oldest_ms is None else max(0, at_ms - each.oldest_ms),
        )
        for each in look.overview.groups
    )


def _of(rates: Mapping[str, Rates], name: str) -> tuple[float | None, float | None]:
    return rates.get(name) or (None, None)


def _sum(rates: Iterable[float | None]) -> float:
    return sum(rate for rate in rates if rate is not None)


def _cpu_share(look: Look, before: Look | None) -> float | None:
    now, then = look.figures, before.figures if before else None
    if now is None or then is None or now.cpu_seconds is None or then.cpu_seconds is None:
        return None
    seconds = (now.now_ms - then.now_ms) / 1000
    return max(0.0, now.cpu_seconds - then.cpu_seconds) / seconds if seconds > 0 else None
