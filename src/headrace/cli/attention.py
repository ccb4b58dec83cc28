"""What needs somebody's attention, with what to type next: `core/attention.py` judges.

    bad     something is lost, or has stopped     shown first
    warn    something will, or somebody waits

The same words in `headrace top` and in the dashboard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from headrace.cli.output import shown_duration, shown_string, typed
from headrace.cli.top_look import Look
from headrace.core.attention import Finding, Machine, judge
from headrace.core.overview_values import NodeFigures, Spread
from headrace.core.quantiles import quantile_ms

# What the node itself is called in a line.
_ABOUT = {"disk-full": "disk", "disk-low": "disk", "files-low": "files"}


class Remark(NamedTuple):
    level: Literal["bad", "warn"]
    about: str
    what: str
    # What to type next.
    command: str


def remarks(looks: Sequence[Look]) -> list[Remark]:
    """About the last of the looks, what is bad first."""
    if not looks:
        return []
    last = looks[-1]
    before = looks[-2].figures if len(looks) > 1 else None
    machine = machine_of(last.figures, before)
    return [_remark(each, looks) for each in judge(last.overview, machine)]


def machine_of(figures: NodeFigures | None, before: NodeFigures | None) -> Machine:
    """What took long is what did since the look before."""
    if figures is None:
        return Machine()
    if before is not None and before.started_at_ms != figures.started_at_ms:
        before = None
    return Machine(
        figures.disk_free_bytes,
        figures.disk_floor_bytes,
        figures.open_files,
        figures.open_files_max,
        figures.sync_failed,
        None if before is None else _p99_ms(figures.loop_lag, before.loop_lag),
        None if before is None else _p99_ms(figures.syncs, before.syncs),
    )


def _p99_ms(now: Spread | None, before: Spread | None) -> float | None:
    if now is None or before is None:
        return None
    since = [late - early for late, early in zip(now.counts, before.counts, strict=True)]
    return quantile_ms(now.bounds, since, 0.99)


def _remark(finding: Finding, looks: Sequence[Look]) -> Remark:
    name = shown_string(finding.name) or _ABOUT.get(finding.code, "node")
    return Remark(
        "bad" if finding.level == "critical" else "warn",
        name,
        finding.text + _growth(finding, looks),
        _command(finding, looks[-1].figures),
    )


def _command(finding: Finding, figures: NodeFigures | None) -> str:
    data = figures.data if figures is not None else "DIR"
    name = typed(finding.name)
    return {
        "corrupt-log": "headrace doctor --data DIR, where the files are",
        "disk-full": f"df -h {data}",
        "disk-low": f"df -h {data}",
        "stuck-transaction": f"headrace txn describe {name}",
        "dead-letters": f"headrace dlq list {name}",
        "nobody-reads": f"headrace group describe {name}",
        "group-lagging": f"headrace group describe {name}",
        "files-low": "ulimit -n",
    }.get(finding.code, "headrace doctor")


def _growth(finding: Finding, looks: Sequence[Look]) -> str:
    """By how much it has grown since the first look; said of what grew, and no condition."""
    first, last = (_amount(finding, look) for look in (looks[0], looks[-1]))
    if first is None or last is None or last <= first:
        return ""
    span_ms = looks[-1].overview.at_ms - looks[0].overview.at_ms
    return f", {last - first:,} more in {shown_duration(span_ms)}"


def _amount(finding: Finding, look: Look) -> int | None:
    if finding.kind == "letters":
        topics = (each for each in look.overview.topics if each.name == finding.name)
        return next((each.dead_letters for each in topics), None)
    if finding.kind == "group":
        groups = (each for each in look.overview.groups if each.name == finding.name)
        return next((each.lag for each in groups), None)
    return None
