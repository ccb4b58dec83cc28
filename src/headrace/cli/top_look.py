"""Looks: what `headrace top` sees of a node or a directory, again and again.

    look ---- look ---- look ---- look        the last minute of them
      '------------- rates ---------'         between the last two
      '------------- growth --------'         from the first to the last

On a node, one call has it all. A directory is opened read-only for each look, beside
the process that has it open; what that one takes of the machine is asked of the system.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from headrace.cli.command import Place, check_exists
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
    fails is not made again behind the scenes.
    """

    def __init__(self, place: Place, *, is_live: bool = False) -> None:
        self.name = place.server or place.directory
        self._directory = place.directory
        self._remote = None
        if place.server:
            from headrace.client.caller import RETRY_SECONDS
            from headrace.client.connecting import open_backend

            self._remote = open_backend(place.server, retry=0 if is_live else RETRY_SECONDS)
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
        self._in: deque[float] = deque(maxlen=SPARKS_MAX)
        self._out: deque[float] = deque(maxlen=SPARKS_MAX)

    def add(self, look: Look) -> Frame:
        before = self.looks[-1] if self.looks else None
        self.looks.append(look)
        while look.overview.at_ms - self.looks[0].overview.at_ms > WINDOW_MS:
            self.looks.popleft()
        overview = look.overview
        topics, groups = _topic_rows(look, before), _group_rows(look, before)
        rate_in = _sum(row.rate_in for row in topics) if before else None
        rate_out = _sum(row.rate_out for row in topics) if before else None
        if rate_in is not None and rate_out is not None:
            self._in.append(rate_in)
            self._out.append(rate_out)
        return Frame(
            overview.at_ms, look.figures, _cpu_share(look, before), topics, groups,
            rate_in, rate_out, tuple(self._in), tuple(self._out), overview.open_transactions,
        )  # fmt: skip


def _seconds(look: Look, before: Look | None) -> float:
    return 0.0 if before is None else (look.overview.at_ms - before.overview.at_ms) / 1000


def _topic_rows(look: Look, before: Look | None) -> tuple[TopicRow, ...]:
    seconds = _seconds(look, before)
    earlier = {} if before is None else {each.name: each for each in before.overview.topics}
    rows = []
    for totals in look.overview.topics:
        if totals.kind != "topic":
            continue
        known = earlier.get(totals.name)
        rows.append(
            TopicRow(
                totals,
                _rate(totals.published, known.published if known else None, seconds),
                _rate(totals.delivered, known.delivered if known else None, seconds),
            )
        )
    return tuple(rows)


def _group_rows(look: Look, before: Look | None) -> tuple[GroupRow, ...]:
    seconds = _seconds(look, before)
    earlier = {} if before is None else {each.name: each for each in before.overview.groups}
    rows = []
    for totals in look.overview.groups:
        known = earlier.get(totals.name)
        oldest = totals.oldest_ms
        rows.append(
            GroupRow(
                totals,
                _rate(totals.published, known.published if known else None, seconds),
                _rate(totals.delivered, known.delivered if known else None, seconds),
                None if oldest is None else max(0, look.overview.at_ms - oldest),
            )
        )
    return tuple(rows)


def _rate(now: int, before: int | None, seconds: float) -> float | None:
    """Positions also go back, by a reset or a topic that is made again: that is no
    traffic."""
    if before is None or seconds <= 0:
        return None
    return max(0, now - before) / seconds


def _sum(rates: Iterable[float | None]) -> float:
    return sum(rate for rate in rates if rate is not None)


def _cpu_share(look: Look, before: Look | None) -> float | None:
    now, then = look.figures, before.figures if before else None
    if now is None or then is None or now.cpu_seconds is None or then.cpu_seconds is None:
        return None
    seconds = (now.now_ms - then.now_ms) / 1000
    return max(0.0, now.cpu_seconds - then.cpu_seconds) / seconds if seconds > 0 else None
