"""Numbers as people read them, a Markdown table, and as programs do, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.samples import OURS, Row, Sample, Target
from benchmarks.sizes import FULL, Sizes
from benchmarks.systems import PEERS

Key = tuple[str, str, str]


class Findings:
    """All samples of a row, by system and quantity."""

    def __init__(self, row: Row, sizes: Sizes) -> None:
        self.row = row
        self.title = row.title.format(**sizes._asdict())
        self._is_judged = sizes._replace(runs=FULL.runs) == FULL
        self._values: dict[Key, list[float]] = {}

    def add(self, samples: Sequence[Sample]) -> None:
        for system, quantity, unit, value in samples:
            self._values.setdefault((system, quantity, unit), []).append(value)

    def medians(self) -> dict[Key, float]:
        return {key: median(values) for key, values in self._values.items()}

    def best_peer(self, quantity: str) -> float | None:
        found = [
            value
            for (system, name, _), value in self.medians().items()
            if name == quantity and system in PEERS
        ]
        return max(found, default=None)

    def verdicts(self, quantity: str, value: float) -> Iterator[str]:
        """What each target of ours asked for, and whether it was reached. Targets
        are about the full sizes and mean nothing for others."""
        if not self._is_judged:
            return
        for target in self.row.targets:
            if target.quantity == quantity:
                yield self._verdict(target, value)

    def _verdict(self, target: Target, value: float) -> str:
        sign = "≥" if target.at_least else "≤"
        wanted = target.value
        text = f"{sign} {_number(wanted)}"
        if target.times_peers:
            best = self.best_peer(target.quantity)
            if not best:
                return f"{text}x the best peer: none was measured"
            value /= best
            text = f"{text}x the best peer, is {_number(value)}x"
        reached = value >= wanted if target.at_least else value <= wanted
        return f"{text}: {'yes' if reached else 'NO'}"

    def document(self) -> dict[str, Any]:
        return {
            "row": self.row.name,
            "title": self.title,
            "results": [
                {
                    "system": system,
                    "quantity": quantity,
                    "unit": unit,
                    "median": median(values),
                    "runs": values,
                    "targets": list(self.verdicts(quantity, median(values)))
                    if system == OURS
                    else [],
                }
                for (system, quantity, unit), values in self._values.items()
            ],
        }


def markdown(machine: Mapping[str, str], rows: Sequence[Findings]) -> str:
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    lines += [
        "",
        "| measurement | system | what | median | runs | target |",
        "|---|---|---|---:|---|---|",
    ]
    for findings in rows:
        for entry in findings.document()["results"]:
            runs = [_number(value) for value in entry["runs"]]
            lines.append(
                f"| {findings.title} | {entry['system']} | {entry['quantity']} "
                f"| {_number(entry['median'])} {entry['unit']} | {' '.join(runs)} "
                f"| {'; '.join(entry['targets'])} |"
            )
    return "\n".join(lines) + "\n"


def write(folder: Path, machine: Mapping[str, str], rows: Sequence[Findings]) -> None:
    document = {"machine": dict(machine), "rows": [row.document() for row in rows]}
    (folder / "results.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "results.md").write_text(markdown(machine, rows))


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
