"""Samples as OpenTelemetry's values, which its exporter encodes and sends.

counter      a sum that only grows, from the node's start on
gauge        a gauge
histogram    a histogram with our bounds, from the node's start on
info         a gauge that is always 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from headrace.server.metrics.counting import Histogram
from headrace.server.metrics.families import Family, Sample, Samples

# By the end of a name, in the units of UCUM.
_UNITS = {"seconds": "s", "bytes": "By", "messages": "{message}"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


def metrics_data(samples: Samples, resource: Resource, began_ms: int, now_ms: int) -> MetricsData:
    metrics = [
        _metric(family, found, began_ms * 1_000_000, now_ms * 1_000_000)
        for family, found in samples.items()
        if found
    ]
    scope = InstrumentationScope("headrace")
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric(family: Family, found: Sequence[Sample], began: int, now: int) -> Metric:
    name = f"{family.name}_info" if family.kind == "info" else family.name
    unit = _UNITS.get(family.name.rpartition("_")[2], "1")
    data: Sum | Gauge | HistogramData
    if family.kind == "histogram":
        points = [_histogram(family, sample, began, now) for sample in found]
        data = HistogramData(points, _CUMULATIVE)
    else:
        numbers = [_number(family, sample, began, now) for sample in found]
        data = Sum(numbers, _CUMULATIVE, True) if family.kind == "counter" else Gauge(numbers)
    return Metric(name, family.help, unit, data)


def _number(family: Family, sample: Sample, began: int, now: int) -> NumberDataPoint:
    labels, value = sample
    assert not isinstance(value, Histogram)
    return NumberDataPoint(_attributes(family, labels), began, now, value)


def _histogram(family: Family, sample: Sample, began: int, now: int) -> HistogramDataPoint:
    labels, value = sample
    assert isinstance(value, Histogram)
    # The least and the greatest are not known, and may be left out.
    unknown = cast(Any, None)
    return HistogramDataPoint(
        _attributes(family, labels),
        began,
        now,
        sum(value.counts),
        value.sum,
        tuple(value.counts),
        tuple(value.bounds),
        unknown,
        unknown,
    )


def _attributes(family: Family, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(family.labels, labels, strict=True))
