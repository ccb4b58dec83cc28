"""The picture of `headrace top`: from a frame and a view to lines of text.

    headrace 0.1.0 at 127.0.0.1:9092  up 3h 12m  cpu 12%  mem 143.2 MB
    in   1,234/s  ▁▂▃▅▇█▇▅▃▂▁
    out  1,200/s  ▁▂▃▅▇█▇▅▃▂▁
    2 topics  6 partitions  3 groups  1.2 GB stored  41.0 GB free  1 open transaction
    ! orders: 12 dead letters, 3 more in 58s                  headrace dlq list orders
    TOPIC ...                      as many rows as there is room for, shared with
    GROUP ...                      this one
    q quit  / filter  ...

A function of what is known and of the size, without a terminal: what is on the screen
can be compared with what should be. It works from 40 columns and 10 lines on; columns
that find no room are left out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from headrace.cli.attention import Remark
from headrace.cli.output import shown_bytes, shown_duration, shown_string
from headrace.cli.top_keys import HELP, View
from headrace.cli.top_look import Frame
from headrace.cli.top_tables import GROUP_COLUMNS, TOPIC_COLUMNS, Column, Row, number
from headrace.core.wording import counted

SPARKS = "▁▂▃▄▅▆▇█"
NAME_CELLS_MIN = 16
REMARKS_MAX = 3
STYLES = {
    "": "",
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "bad": "\x1b[1;31m",
    "warn": "\x1b[33m",
    "in": "\x1b[36m",
    "out": "\x1b[32m",
    "title": "\x1b[7m",
}
RESET = "\x1b[0m"


class Span(NamedTuple):
    text: str
    style: str = ""


Line = list[Span]


def draw(
    frame: Frame,
    noted: Sequence[Remark],
    view: View,
    place: str,
    *,
    width: int,
    height: int | None,
    is_live: bool = True,
) -> list[Line]:
    """The lines, no more than `height`; all there are when that is None."""
    lines = [
        _node_line(frame, place),
        _spark_line("in ", "in", frame.rate_in, frame.history_in, width),
        _spark_line("out", "out", frame.rate_out, frame.history_out, width),
        _totals_line(frame),
    ]
    if view.trouble:
        lines[0] = [Span(f"{place}: {view.trouble}", "bad")]
    if view.is_helping:
        body = [[Span(text)] for text in HELP]
        return _cut([*lines, [], *body], height, _footer(view, is_live))
    # A low screen has room for one of them, or the tables would have none.
    shown = len(noted) if height is None else min(REMARKS_MAX, max(1, (height - 12) // 3))
    lines += [_remark_line(remark, width) for remark in noted[:shown]]
    if len(noted) > shown > 1:
        lines[-1:] = [[Span(f"  and {counted(len(noted) - shown + 1, 'remark')} more", "dim")]]
    topics = view.chosen(frame.topics, TOPIC_COLUMNS)
    groups = view.chosen(frame.groups, GROUP_COLUMNS)
    room = None if height is None else height - len(lines) - 4 - is_live
    for_topics, for_groups = _shared(room, len(topics), len(groups))
    lines.append([])
    lines += _table("TOPIC", TOPIC_COLUMNS, topics, for_topics, view, width, is_live)
    lines.append([])
    lines += _table("GROUP", GROUP_COLUMNS, groups, for_groups, view, width, is_live)
    return _cut(lines, height, _footer(view, is_live))


def _cut(lines: list[Line], height: int | None, footer: Line | None) -> list[Line]:
    if height is None:
        return lines
    if footer is None:
        return lines[:height]
    lines = lines[: height - 1]
    return [*lines, *[[] for _ in range(height - 1 - len(lines))], footer]


def _shared(room: int | None, topics: int, groups: int) -> tuple[int, int]:
    """Each has half of it, or what the other leaves over."""
    if room is None:
        return topics, groups
    half = (max(0, room) + 1) // 2
    for_topics = min(topics, max(half, room - groups))
    return max(0, for_topics), max(0, min(groups, room - for_topics))


# Lines.


def _node_line(frame: Frame, place: str) -> Line:
    figures = frame.figures
    if figures is None:
        return [Span("headrace", "bold"), Span(f" at {place}")]
    parts: list[str] = []
    if figures.started_at_ms is not None:
        parts.append(f"up {shown_duration(max(0, figures.now_ms - figures.started_at_ms))}")
    if frame.cpu_share is not None:
        parts.append(f"cpu {frame.cpu_share:.0%}")
    if figures.memory_bytes is not None:
        parts.append(f"mem {shown_bytes(figures.memory_bytes)}")
    return [
        Span(f"headrace {figures.version}", "bold"),
        Span(f" at {place}"),
        *(Span(f"  {part}") for part in parts),
    ]


def _spark_line(
    name: str, style: str, rate: float | None, history: Sequence[float], width: int
) -> Line:
    head = f"{name} {number(rate):>7}/s  "
    return [Span(head), Span(sparkline(history, width - len(head) - 1), style)]


def sparkline(values: Sequence[float], cells: int) -> str:
    """The last ones, the highest as high as there is."""
    shown = values[-cells:] if cells > 0 else ()
    most = max(shown, default=0.0)
    if most <= 0:
        return SPARKS[0] * len(shown)
    return "".join(SPARKS[min(7, int(value / most * 7.999))] for value in shown)


def _totals_line(frame: Frame) -> Line:
    size = sum(row.totals.size_bytes for row in frame.topics)
    partitions = sum(row.totals.partitions for row in frame.topics)
    parts = [
        counted(len(frame.topics), "topic"),
        counted(partitions, "partition"),
        counted(len(frame.groups), "group"),
        f"{shown_bytes(size)} stored",
    ]
    if frame.figures is not None and frame.figures.disk_free_bytes is not None:
        parts.append(f"{shown_bytes(frame.figures.disk_free_bytes)} free")
    if frame.open_transactions:
        parts.append(counted(frame.open_transactions, "open transaction"))
    return [Span("  ".join(parts), "dim")]


def _remark_line(remark: Remark, width: int) -> Line:
    said = f"! {remark.about}: {remark.what}"
    gap = width - cells_of(said) - cells_of(remark.command)
    if gap < 2:
        return [Span(said, remark.level)]
    return [Span(said, remark.level), Span(" " * gap), Span(remark.command, "dim")]


def _footer(view: View, is_live: bool) -> Line | None:
    if not is_live:
        return None
    if view.is_typing:
        return [Span("filter: ", "bold"), Span(view.filter + "_")]
    parts = ["q quit", "? help", "/ filter", "tab table", "n i o s l sort", "space pause"]
    if view.filter:
        parts.insert(0, f"showing *{view.filter}*")
    if view.is_paused:
        parts.insert(0, "PAUSED")
    return [Span("  ".join(parts), "dim")]


# Tables.


def _table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    room: int,
    view: View,
    width: int,
    is_live: bool,
) -> list[Line]:
    columns = [column for column in columns if width >= column.from_cells]
    taken = sum(column.cells + 1 for column in columns)
    name_cells = max(NAME_CELLS_MIN, width - taken - 1)
    is_chosen = is_live and view.table == title.lower()
    start = view.scrolled(title.lower(), len(rows), room)
    left = len(rows) - start - room
    more = f" ({start + 1}-{start + room} of {len(rows)})" if room and (start or left > 0) else ""
    headings = fit(_heading(title, "n", view) + more, name_cells)
    for column in columns:
        headings += " " + fit(_heading(column.heading, column.key, view), column.cells, right=True)
    lines: list[Line] = [[Span(headings, "title" if is_chosen else "bold")]]
    for row in rows[start : start + room]:
        text = fit(shown_string(row.totals.name), name_cells)
        for column in columns:
            text += " " + fit(column.shown(row), column.cells, right=True)
        lines.append([Span(text)])
    return lines


def _heading(name: str, key: str, view: View) -> str:
    if key != view.sort:
        return name
    return name + ("▴" if view.is_reversed else "▾")


# Cells.


def cells_of(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """Exactly so wide; what is too long ends in a dot of three."""
    if cells_of(text) > cells:
        while text and cells_of(text) > cells - 1:
            text = text[:-1]
        text += "…"
    padding = " " * (cells - cells_of(text))
    return padding + text if right else text + padding


def plain(line: Line, width: int | None = None) -> str:
    text = "".join(span.text for span in line)
    return text if width is None else fit(text, width)


def styled(line: Line, width: int) -> str:
    """With the colours of the terminal, and exactly as wide."""
    shown: list[str] = []
    left = width
    for text, style in line:
        if left <= 0:
            break
        if cells_of(text) > left:
            text = fit(text, left)
        left -= cells_of(text)
        code = STYLES[style]
        shown.append(f"{code}{text}{RESET}" if code else text)
    return "".join(shown) + " " * max(0, left)
