"""Numbers as people read them, a Markdown table a row, and as programs do, JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.doors.rows import Contender, Row

HEADINGS = (
    "system", "an answer means", "calls/s", "messages/s", "p50 ms", "p99 ms",
    "server µs/message", "client µs/message", "runs, messages/s", "target",
)  # fmt: skip


class Measured(NamedTuple):
    """All runs of one contender in one row; none when it was not run, and why."""

    row: Row
    contender: Contender
    runs: Sequence[Mapping[str, Any]]
    failure: str = ""

    def _middle(self, quantity: Any) -> float:
        return median(quantity(run) for run in self.runs)

    @property
    def messages_a_second(self) -> float:
        return self._middle(_rate)

    def cells(self, *, is_judged: bool) -> list[str]:
        if not self.runs:
            return [self.contender.name, f"not run: {self.failure}", *[""] * 8]
        return [
            self.contender.name,
            self.runs[0]["promise"],
            _number(self._middle(lambda run: run["calls"] / run["seconds"])),
            _number(self.messages_a_second),
            _number(self._middle(lambda run: run["p50_ms"])),
            _number(self._middle(lambda run: run["p99_ms"])),
            _number(self._middle(lambda run: run["server_cpu"] / run["messages"] * 1e6)),
            _number(self._middle(lambda run: run["client_cpu"] / run["messages"] * 1e6)),
            " ".join(_number(_rate(run)) for run in self.runs),
            self._verdict() if is_judged else "",
        ]

    def _verdict(self) -> str:
        wanted = self.row.targets.get(self.contender.name)
        if wanted is None:
            return ""
        return f"≥ {wanted:,}: {'yes' if self.messages_a_second >= wanted else 'NO'}"


def _rate(run: Mapping[str, Any]) -> float:
    return float(run["messages"] / run["seconds"])


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def markdown(
    machine: Mapping[str, str], measured: Sequence[Measured], *, is_judged: bool = True
) -> str:
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    for row in dict.fromkeys(each.row.name for each in measured):
        found = [each for each in measured if each.row.name == row]
        lines += ["", f"**{found[0].row.title}** (`{row}`)", ""]
        lines += [f"| {' | '.join(HEADINGS)} |", "|---|---|---:|---:|---:|---:|---:|---:|---|---|"]
        lines += [f"| {' | '.join(each.cells(is_judged=is_judged))} |" for each in found]
    return "\n".join(lines) + "\n"


def write(folder: Path, machine: Mapping[str, str], measured: Sequence[Measured]) -> None:
    document = {
        "machine": dict(machine),
        "rows": [
            {
                "row": each.row.name,
                "system": each.contender.name,
                "failure": each.failure,
                "runs": list(each.runs),
            }
            for each in measured
        ],
    }
    (folder / "doors.json").write_text(json.dumps(document, indent=2) + "\n")
