"""The text of metrics is what prometheus_client would write, to the byte."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
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
from headrace.server.metrics.exposition import OPEN_METRICS, expose
from headrace.server.metrics.families import FAMILIES, Family, Sample, Samples

KINDS: dict[str, type[CounterMetricFamily | GaugeMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}

labels = st.text(max_size=6) | st.sampled_from(['a"b', "a\\b", "a\nb", "ä", "", "100%", "%s", "{}"])
numbers = st.integers(-5, 10**9) | st.sampled_from([999_999, 1_000_000, 0, 2**63]) | st.floats()
histograms = st.builds(
    lambda counts, total: _histogram(counts, total),
    st.lists(st.integers(0, 10**7), min_size=4, max_size=4),
    st.floats(0, 1e12),
)


def _histogram(counts: list[int], total: float) -> Histogram:
    made = Histogram((0.001, 1.0, 86_400.0))
    made.counts, made.sum = counts, total
    return made


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    families = draw(st.lists(st.sampled_from(FAMILIES), max_size=4, unique=True))
    return {family: draw(st.lists(sample_of(family), max_size=3)) for family in families}


def sample_of(family: Family) -> st.SearchStrategy[Sample]:
    values = histograms if family.kind == "histogram" else numbers
    if family.kind == "info":
        values = st.just(1)
    return st.tuples(st.tuples(*[labels] * len(family.labels)), values)


class All(Collector):
    def __init__(self, found: Samples) -> None:
        self._found = found

    def collect(self) -> list[Metric]:
        return [metric_of(family, each) for family, each in self._found.items() if each]


def metric_of(family: Family, found: list[Sample]) -> Metric:
    if family.kind == "histogram":
        times = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for values, histogram in found:
            assert isinstance(histogram, Histogram)
            sums = [sum(histogram.counts[: number + 1]) for number in range(4)]
            bounds = [*map(repr, histogram.bounds), "+Inf"]
            times.add_metric(values, list(zip(bounds, sums, strict=True)), histogram.sum)
        return times
    if family.kind == "info":
        info = InfoMetricFamily(family.name, family.help, labels=family.labels)
        for values, _ in found:
            info.add_metric((), dict(zip(family.labels, values, strict=True)))
        return info
    metric = KINDS[family.kind](family.name, family.help, labels=family.labels)
    for values, value in found:
        assert not isinstance(value, Histogram)
        metric.add_metric(values, value)
    return metric


@given(samples(), st.sampled_from(["", f"{OPEN_METRICS}; version=1.0.0"]))
def test_it_is_what_prometheus_client_writes(found: Samples, accept: str) -> None:
    encode, content_type = choose_encoder(accept)
    assert asyncio.run(expose(found, accept)) == (encode(All(found)), content_type)
