"""Reports as one HTML file: tables and charts that need nothing from anywhere.

Charts are SVG in the page, colours follow the reader's light or dark setting, and
there is no script: a report can be mailed, archived and opened in ten years.
Whatever comes from data is escaped, since dead letters hold what anybody sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH = 760
_ROW = 26
_LABEL = 300
_HEIGHT = 180
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
th, td { text-align: left; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { background: var(--card);
  padding: .6rem; border-radius: .4rem; overflow-x: auto; white-space: pre-wrap; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } svg .axis { stroke: var(--line); }
.good { color: #1a7f4b; } .wrong { color: var(--three); }
"""


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
            f"<td{kind}>{escape(_shown(cell))}</td>" for cell, kind in zip(row, kinds, strict=True)
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
    room = _WIDTH - _LABEL - 70
    rows = []
    for number, (label, value) in enumerate(items):
        y = number * _ROW
        length = max(2, round(room * value / most))
        shown = label if len(label) <= 44 else label[:43] + "…"
        rows.append(
            f'<text x="0" y="{y + 17}">{escape(shown)}<title>{escape(label)}</title></text>'
            f'<rect x="{_LABEL}" y="{y + 5}" width="{length}" height="{_ROW - 10}" rx="3" '
            f'fill="{_COLOURS[0]}"></rect>'
            f'<text class="soft" x="{_LABEL + length + 8}" y="{y + 17}">{value:,}</text>'
        )
    return _svg(len(items) * _ROW, what, "".join(rows))


def columns(points: Sequence[tuple[str, int]], what: str) -> str:
    """Counts over time, a column for each moment, in the order given."""
    if not points:
        return paragraph("none", "sub")
    most = max(value for _, value in points) or 1
    step = _WIDTH / len(points)
    shapes = []
    for number, (label, value) in enumerate(points):
        height = round((_HEIGHT - 40) * value / most)
        shapes.append(
            f'<rect x="{number * step + step * 0.1:.1f}" y="{_HEIGHT - 20 - height}" '
            f'width="{max(1.0, step * 0.8):.1f}" height="{height}" fill="{_COLOURS[0]}">'
            f"<title>{escape(label)}: {value:,}</title></rect>"
        )
    return _svg(_HEIGHT, what, _axis(points[0][0], points[-1][0], f"{most:,}") + "".join(shapes))


def lines(series: Sequence[tuple[str, Sequence[tuple[str, float]]]], what: str, unit: str) -> str:
    """Up to three curves over the same moments, with their names."""
    labels = [label for label, _ in series[0][1]] if series else []
    if not labels:
        return paragraph("none", "sub")
    most = max(value for _, points in series for _, value in points) or 1.0
    step = _WIDTH / max(1, len(labels) - 1)
    shapes = [_axis(labels[0], labels[-1], f"{most:,.0f} {unit}")]
    for number, (name, points) in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(
            f"{index * step:.1f},{_HEIGHT - 20 - (_HEIGHT - 40) * value / most:.1f}"
            for index, (_, value) in enumerate(points)
        )
        # A single moment is no line; a dot shows it.
        x, y = path.split(" ")[-1].split(",")
        shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"></polyline>'
            f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"></circle>'
            f'<text x="{_WIDTH - 60 * (len(series) - number)}" y="12" style="fill:{colour}">'
            f"{escape(name)}</text>"
        )
    return _svg(_HEIGHT, what, "".join(shapes))


def _axis(first: str, last: str, most: str) -> str:
    base = _HEIGHT - 20
    return (
        f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{base}" y2="{base}"></line>'
        f'<text class="soft" x="0" y="12">{escape(most)}</text>'
        f'<text class="soft" x="0" y="{_HEIGHT - 4}">{escape(first)}</text>'
        f'<text class="soft" x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{escape(last)}</text>'
    )


def _svg(height: int, what: str, inner: str) -> str:
    return (
        f'<div class="scroll"><svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(what)}">{inner}</svg></div>'
    )


def _shown(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
