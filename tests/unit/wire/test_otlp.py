"""Metrics in OTLP, against the library that others make them with."""

from __future__ import annotations

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)

from headrace.core.errors import MalformedMessage
from headrace.wire.otlp import Point, decode_metrics


def of(*metrics: Metric) -> bytes:
    scope = ScopeMetrics(metrics=metrics)
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[scope])])
    return bytes(data.SerializeToString())


ATTRIBUTES = [
    KeyValue(key="topic", value=AnyValue(string_value="orders")),
    KeyValue(key="node", value=AnyValue(int_value=-3)),
]


def test_numbers_are_read_with_their_attributes() -> None:
    data = of(
        Metric(
            name="depth",
            gauge=Gauge(
                data_points=[NumberDataPoint(as_double=1.5, attributes=ATTRIBUTES, flags=1)]
            ),
        ),
        Metric(name="sent", sum=Sum(data_points=[NumberDataPoint(as_int=-7)], is_monotonic=True)),
        Metric(name="waits", histogram=Histogram(data_points=[HistogramDataPoint(count=3)])),
    )
    assert decode_metrics(data, 10) == [
        Point("depth", (("node", "-3"), ("topic", "orders")), 1.5),
        Point("sent", (), -7.0),
    ]
    assert len(decode_metrics(data, 1)) == 1


def test_very_long_names_are_left_out() -> None:
    points = [NumberDataPoint(as_int=1)]
    data = of(Metric(name="x" * 5_000, gauge=Gauge(data_points=points)))
    assert decode_metrics(data, 10) == []


def test_what_is_cut_or_changed_is_refused_or_read_and_nothing_else() -> None:
    data = of(
        Metric(name="depth", gauge=Gauge(data_points=[NumberDataPoint(attributes=ATTRIBUTES)]))
    )
    for size in range(1, len(data)):
        with pytest.raises(MalformedMessage):
            decode_metrics(data[:size], 10)
    for position in range(len(data)):
        for byte in (0, 0x7F, 0xFF):
            changed = data[:position] + bytes([byte]) + data[position + 1 :]
            try:
                decode_metrics(changed, 10)
            except MalformedMessage:
                continue
