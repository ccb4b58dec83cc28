"""Reports as one HTML file: tables and charts that need nothing from anywhere.

Charts are drawn in the page as SVG and HTML, colours follow the reader's light or dark setting, and
there is no script: a report can be mailed, archived and opened in ten years.
Whatever comes from data is escaped, since dead letters hold what anybody sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from headrace.core.wording import shown_duration

# Of a chart's drawing, which is stretched to the width that there is.
_WIDTH = 760
_HEIGHT = 140
_COLUMN_MAX = 40
_DOT = 8
_DOTS_MAX = 100
# Characters of a word before it may be broken.
_WORD_MAX = 18
_COLOURS = ("var(--one)", "var(--two)", "var(--three)")

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d8dee6;
  --paper: #ffffff; --card: #f4f6f9; --one: #2563c9; --two: #d97706; --three: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #333c48;
  --paper: #14181e; --card: #1d232b; --one: #6ea8ff; --two: #f5b04c; --three: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.sub { color: var(--soft); margin-top: .2rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.card { background: var(--card); border-radius: .5rem; padding: .6rem 1rem; min-width: 7rem; }
.card b { display: block; font-size: 1.35rem; } .card span { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { background: var(--card);
  padding: .6rem; border-radius: .4rem; overflow-x: auto; white-space: pre-wrap; }
h1, h2, p, pre { overflow-wrap: anywhere; } td.n { white-space: nowrap; }
svg { display: block; width: 100%; height: 9rem; border-bottom: 1px solid var(--line); }
svg polyline, svg .dot { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; }
svg .dot { stroke-width: 7; stroke-linecap: round; }
.ends { display: flex; justify-content: space-between; gap: 1rem; color: var(--soft);
  font-size: .8rem; } .ends.one { justify-content: center; }
.bar { display: grid; grid-template-columns: 18rem 1fr 4.5rem; gap: .2rem .8rem;
  align-items: center; font-size: .85rem; margin: .35rem 0; }
.bar .track i { display: block; height: .9rem; border-radius: 3px; background: var(--one); }
@media (max-width: 40rem) { .bar { grid-template-columns: 1fr 4.5rem; }
  .bar .name { grid-column: 1 / -1; } td:not(.n) { min-width: 7.5rem; } }
.good { color: #1a7f4b; } .wrong { color: var(--three); }
"""


class Seconds(float):
    """A number of seconds, which is shown as people say it: 2h 3m."""


class Section(NamedTuple):
    title: str
    # Made of the functions below; already HTML.
    body: str


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p>',
    ]
    for section in sections:
        heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
        parts.append(f"<section>{heading}{section.body}</section>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def duration(seconds: float) -> str:
    sign = "-" if seconds <= -0.001 else ""
    return sign + shown_duration(round(abs(seconds) * 1000))


def cards(facts: Sequence[tuple[str, object]]) -> str:
    inner = "".join(
        f'<div class="card"><b>{escape(_shown(value))}</b><span>{escape(name)}</span></div>'
        for name, value in facts
    )
    return f'<div class="cards">{inner}</div>'


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{escape(kind)}">{escape(text)}</p>'


def sample(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return paragraph("none", "sub")
    numeric = [all(isinstance(row[c], int | float) for row in rows) for c in range(len(headings))]
    kinds = [' class="n"' if each else "" for each in numeric]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>" for name, kind in zip(headings, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{_breakable(_shown(cell))}</td>"
            for cell, kind in zip(row, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def bars(items: Sequence[tuple[str, int]], what: str) -> str:
    """Horizontal bars, the longest for the greatest."""
    if not items:
        return paragraph("none", "sub")
    most = max(value for _, value in items) or 1
    rows = "".join(
        f'<div class="bar"><span class="name">{_breakable(label)}</span><span class="track">'
        f'<i style="width:{max(0.5, 100 * value / most):.1f}%"></i></span>'
        f"<span>{value:,}</span></div>"
        for label, value in items
    )
    return f'<div class="bars" role="group" aria-label="{escape(what)}">{rows}</div>'


def columns(points: Sequence[tuple[str, int]], what: str) -> str:
    """Counts over time, a column for each moment, in the order given."""
    if not points:
        return paragraph("none", "sub")
    most = max(value for _, value in points) or 1
    step = _WIDTH / len(points)
    # A single moment would fill the page.
    width = max(1.0, min(step * 0.8, _COLUMN_MAX))
    shapes = []
    for number, (label, value) in enumerate(points):
        height = round(_HEIGHT * value / most)
        shapes.append(
            f'<rect x="{number * step + (step - width) / 2:.1f}" y="{_HEIGHT - height}" '
            f'width="{width:.1f}" height="{height}" fill="{_COLOURS[0]}">'
            f"<title>{escape(label)}: {value:,}</title></rect>"
        )
    ends = (points[0][0], points[-1][0])
    return _chart(what, f"{most:,}", "", "".join(shapes), ends)


def lines(
    series: Sequence[tuple[str, Sequence[tuple[str, float]]]],
    what: str,
    shown: Callable[[float], str],
) -> str:
    """Up to three curves over the same moments, with their names; `shown` says a value."""
    labels = [label for label, _ in series[0][1]] if series else []
    if not labels:
        return paragraph("none", "sub")
    most = max(value for _, points in series for _, value in points) or 1.0
    shapes, legend = [], []
    for number, (name, points) in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [
            (_across(index, len(points)), _HEIGHT - (_HEIGHT - _DOT) * max(0.0, value) / most)
            for index, (_, value) in enumerate(points)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        shapes.append(f'<polyline points="{path}" stroke="{colour}"></polyline>')
        if len(points) <= _DOTS_MAX:
            # A line of no length with round ends: a dot whatever the chart's width is.
            shapes += [
                f'<line class="dot" x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{colour}"><title>{escape(label)}: {escape(name)} {escape(shown(value))}'
                "</title></line>"
                for (x, y), (label, value) in zip(places, points, strict=True)
            ]
        legend.append(f'<b style="color:{colour}">{escape(name)}</b>')
    return _chart(what, shown(most), " ".join(legend), "".join(shapes), (labels[0], labels[-1]))


def _across(index: int, count: int) -> float:
    """Where a moment lies; a single one in the middle, and none at the very edge."""
    room = _WIDTH - 2 * _DOT
    return _DOT + (room / 2 if count == 1 else room * index / (count - 1))


def _chart(what: str, most: str, legend: str, shapes: str, ends: tuple[str, str]) -> str:
    """Words are HTML and only shapes are drawn, so that a chart takes any width and its words
    keep their size."""
    first, last = ends
    below = f"<span>{escape(first)}</span><span>{escape(last)}</span>"
    return (
        f'<div class="chart"><div class="ends"><span>{escape(most)}</span><span>{legend}</span>'
        f'</div><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(what)}">{shapes}</svg><div class="ends{" one" * (first == last)}">'
        f"{f'<span>{escape(first)}</span>' if first == last else below}</div></div>"
    )


def _breakable(text: str) -> str:
    """Escaped, and with places for a break in words that no column is wide enough for; they
    are not there when the text is copied."""
    return " ".join(
        "<wbr>".join(
            escape(word[start : start + _WORD_MAX]) for start in range(0, len(word), _WORD_MAX)
        )
        for word in text.split(" ")
    )


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Seconds):
        return duration(value)
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
