"""Exposition: samples as the text that Prometheus reads, or as OpenMetrics.

prometheus_client writes it. It is given a few samples at a time, and others have their
turn in between: thousands of them in one go would take as long as they take. What it
writes around each piece, the family's head and OpenMetrics' end, is kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headrace.server.metrics.counting import Histogram
from headrace.server.metrics.families import Family, Sample, Samples
from headrace.server.slices import Slices

OPEN_METRICS = "application/openmetrics-text"
# Lines that are written in one go: half a millisecond's work.
LINES_AT_ONCE = 50
_END = b"# EOF\n"
# Between two slices of work.
PAUSE_SECONDS = 0.001


class _One(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


async def expose(samples: Samples, accept: str) -> tuple[bytes, str]:
    """The text in the form that is asked for, and that form's content type."""
    is_open = OPEN_METRICS in accept.lower()
    encode, content_type = choose_encoder(f"{OPEN_METRICS}; version=1.0.0" if is_open else "")
    slices = Slices(PAUSE_SECONDS)
    parts: list[bytes] = []
    for family, found in samples.items():
        is_first = True
        for piece in _pieces(found):
            parts.append(_write(encode, family, piece, with_head=is_first))
            is_first = False
            await slices.rest()
    if is_open:
        parts.append(_END)
    return b"".join(parts), content_type


def _pieces(samples: Sequence[Sample]) -> Iterator[Sequence[Sample]]:
    lines = 1
    if samples and isinstance(samples[0][1], Histogram):
        lines = len(samples[0][1].counts) + 2
    step = max(1, LINES_AT_ONCE // lines)
    for start in range(0, len(samples), step):
        yield samples[start : start + step]


def _write(
    encode: Callable[[Collector], bytes],
    family: Family,
    samples: Sequence[Sample],
    *,
    with_head: bool,
) -> bytes:
    text = encode(_One(_metric(family, samples))).removesuffix(_END)
    if with_head:
        return text
    # No sample begins like a comment.
    while text.startswith(b"# "):
        text = text[text.index(b"\n") + 1 :]
    return text


def _metric(family: Family, samples: Sequence[Sample]) -> Metric:
    metric = _METRICS[family.kind](family.name, family.help, labels=family.labels)
    for labels, value in samples:
        if isinstance(metric, HistogramMetricFamily):
            assert isinstance(value, Histogram)
            metric.add_metric(labels, _buckets(value), value.sum)
        elif isinstance(metric, InfoMetricFamily):
            metric.add_metric((), dict(zip(family.labels, labels, strict=True)))
        else:
            assert not isinstance(value, Histogram)
            metric.add_metric(labels, value)
    return metric


_METRICS: dict[
    str,
    type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily],
] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "info": InfoMetricFamily,
}


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """How many were at most so large, each with all that were smaller."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        total += count
        buckets.append(("+Inf" if bound is None else repr(bound), total))
    return buckets
