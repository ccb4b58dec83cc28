"""Quantiles of counts by bucket."""

from __future__ import annotations

from collections.abc import Sequence


def quantile_ms(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Of what was counted between bounds in seconds; None where that is nothing. Within its
    bucket it is taken to lie where its rank does; above the last bound nothing more is
    known than that bound."""
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    for index, count in enumerate(counts):
        if below + count >= rank and count:
            if index == len(bounds):
                break
            low = bounds[index - 1] if index else 0.0
            high = bounds[index]
            return 1000 * (low + (high - low) * (rank - below) / count)
        below += count
    return 1000 * bounds[-1]
