"""Rates: how much a second, from totals that are looked at now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

SPAN_MS = 10_000
SAMPLE_MS = 250


class Rates:
    """Per second over about the last ten, for a row of totals."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, tuple[int, ...]]] = deque()
        # The last look, though it is not kept as a sample.
        self._latest: tuple[int, Sequence[int]] = (0, ())

    @property
    def is_known(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self._samples)

    def sample(self, now_ms: int, totals: Sequence[int]) -> None:
        """The totals belong to this object from now on."""
        samples = self._samples
        self._latest = now_ms, totals
        if samples and now_ms - samples[-1][0] < SAMPLE_MS:
            return
        samples.append((now_ms, tuple(totals)))
        while len(samples) > 2 and now_ms - samples[1][0] >= SPAN_MS:
            samples.popleft()

    def on_clock_set(self, by_ms: int) -> None:
        self._samples = deque((at_ms + by_ms, totals) for at_ms, totals in self._samples)
        self._latest = self._latest[0] + by_ms, self._latest[1]

    def per_second(self, now_ms: int, totals: Sequence[int]) -> list[float]:
        if not self._samples:
            return [0.0] * len(totals)
        at_ms, first = self._base(now_ms)
        seconds = max(now_ms - at_ms, SAMPLE_MS) / 1000
        return [(now - before) / seconds for now, before in zip(totals, first, strict=True)]

    def _base(self, now_ms: int) -> tuple[int, Sequence[int]]:
        """The last look that lies the whole span back; the first of all while none does."""
        if now_ms - self._latest[0] >= SPAN_MS:
            return self._latest
        base: tuple[int, Sequence[int]] = self._samples[0]
        for each in self._samples:
            if now_ms - each[0] < SPAN_MS:
                break
            base = each
        return base
