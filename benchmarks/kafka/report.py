"""Numbers as people read them: a line each, ours beside the peer's and the target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from benchmarks.kafka.bench import Bench

NOT_RUN = "not run"


class Target(NamedTuple):
    """What a number has to be. `is_excused` says that it is held for another reason
    that the target allows, as when the client could not go faster."""

    text: str
    value: float
    at_least: bool
    is_excused: bool = False

    def is_held_by(self, value: float) -> bool:
        reached = value >= self.value if self.at_least else value <= self.value
        return reached or self.is_excused


def at_least(value: float, *, unless: bool = False, text: str = "") -> Target:
    return Target(f"≥ {number(value)}{text}", value, True, unless)


def at_most(value: float) -> Target:
    return Target(f"≤ {number(value)}", value, False)


class Line(NamedTuple):
    """One quantity: every run of ours and of the peer's. No runs mean that it was not run."""

    what: str
    unit: str
    ours: Sequence[float]
    peer: Sequence[float] = ()
    target: Target | None = None
    note: str = ""

    @property
    def is_held(self) -> bool | None:
        if self.target is None or not self.ours:
            return None
        return self.target.is_held_by(median(self.ours))


class Row(NamedTuple):
    name: str
    title: str
    measure: Callable[[Bench], Iterator[Line]]


class Measured(NamedTuple):
    """The lines of a row. Sizes that are not the full ones have no targets."""

    row: Row
    lines: list[Line]
    # Why there are no lines, or not all.
    failure: str = ""


def number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _shown(values: Sequence[float]) -> str:
    return number(median(values)) if values else NOT_RUN


def _cells(line: Line) -> tuple[str, ...]:
    held = {None: "", True: "yes", False: "NO"}[line.is_held]
    if line.target is not None and line.target.is_excused and line.is_held:
        held = "yes: the client's limit"
    return (
        line.what,
        line.unit,
        line.target.text if line.target else "",
        _shown(line.ours),
        _shown(line.peer),
        held,
        line.note,
    )


HEADINGS = ("measurement", "unit", "target", "ours", "peer's", "held", "note")


def print_table(measured: Iterable[Measured], console: Console) -> None:
    for each in measured:
        table = Table(title=each.row.title, title_justify="left")
        for place, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if place in (2, 3, 4) else "left")
        for line in each.lines:
            table.add_row(*_cells(line), style="red" if line.is_held is False else None)
        console.print(table)
        if each.failure:
            console.print(f"  {each.failure}", style="red")


def markdown(machine: Mapping[str, str], measured: Iterable[Measured]) -> str:
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    for each in measured:
        lines += ["", f"**{each.row.title}** (`{each.row.name}`)", ""]
        lines += [f"| {' | '.join(HEADINGS)} |", "|---|---|---:|---:|---:|---|---|"]
        lines += [f"| {' | '.join(_cells(line))} |" for line in each.lines]
        if each.failure:
            lines += ["", f"Not finished: {each.failure}"]
    return "\n".join(lines) + "\n"


def document(machine: Mapping[str, str], measured: Iterable[Measured]) -> dict[str, Any]:
    return {
        "machine": dict(machine),
        "rows": [
            {
                "row": each.row.name,
                "title": each.row.title,
                "failure": each.failure,
                "lines": [
                    {
                        "what": line.what,
                        "unit": line.unit,
                        "target": line.target.text if line.target else None,
                        "held": line.is_held,
                        "ours": list(line.ours),
                        "peer": list(line.peer),
                        "note": line.note,
                    }
                    for line in each.lines
                ],
            }
            for each in measured
        ],
    }


def write(folder: Path, machine: Mapping[str, str], measured: Sequence[Measured]) -> None:
    text = json.dumps(document(machine, measured), indent=2)
    (folder / "kafka.json").write_text(text + "\n")
    (folder / "kafka.md").write_text(markdown(machine, measured))
