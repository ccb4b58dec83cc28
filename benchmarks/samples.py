"""What a row measures: numbers with a name, a unit and, for ours, a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.sizes import Sizes

OURS = "headrace"


class Sample(NamedTuple):
    """One number of one run."""

    system: str
    quantity: str
    unit: str
    value: float


class Target(NamedTuple):
    """What the number has to be: at least or at most `value`. With `times_peers`
    the value counts in multiples of the best peer of the same row."""

    quantity: str
    value: float
    at_least: bool
    times_peers: bool = False


class Row(NamedTuple):
    name: str
    title: str
    measure: Callable[[Path, Sizes], list[Sample]]
    targets: tuple[Target, ...] = ()
    # Rows that take long or fill a million messages are run once.
    once: bool = False


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all keep to."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
