"""Exposition: samples as the text that Prometheus reads, or as OpenMetrics.

    # HELP and # TYPE     by prometheus_client, once for each family
    name{labels} value    by us: its lines, to the byte, at a tenth of the cost

Twenty thousand lines are usual where there are many groups. prometheus_client checks and
escapes the name of every label in each of them, which are ours and do not change; so a
family is one template, filled in. A test holds that the text is the one that it writes.

A few hundred lines are written at a time, and others have their turn in between: all of them
in one go would take as long as they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headrace.server.metrics.counting import Histogram
from headrace.server.metrics.families import Family, Sample, Samples, Value
from headrace.server.slices import Slices

OPEN_METRICS = "application/openmetrics-text"
# Lines that are written in one go: half a millisecond's work.
LINES_AT_ONCE = 400
_END = b"# EOF\n"
# Between two slices of work.
PAUSE_SECONDS = 0.001
# Label values that are remembered as they are written.
_ESCAPED_MAX: Final = 4_096
# From here on numbers are written with an exponent.
_LONG: Final = 1_000_000
_METRICS: Final = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
    "info": InfoMetricFamily,
}
_SUFFIXES: Final = {"counter": "_total", "gauge": "", "histogram": "", "info": "_info"}


class _One(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> tuple[Metric, ...]:
        return (self._metric,)


async def expose(samples: Samples, accept: str) -> tuple[bytes, str]:
    """The text in the form that is asked for, and that form's content type."""
    is_open = OPEN_METRICS in accept.lower()
    encode, content_type = choose_encoder(f"{OPEN_METRICS}; version=1.0.0" if is_open else "")
    slices = Slices(PAUSE_SECONDS)
    parts: list[bytes] = []
    for family, found in samples.items():
        if found:
            parts.append(_head(encode, family))
        write = _writer_of(family)
        for piece in _pieces(found):
            parts.append("".join([write(*sample) for sample in piece]).encode())
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


def _head(encode: Callable[[Collector], bytes], family: Family) -> bytes:
    metric = _METRICS[family.kind](family.name, family.help, labels=family.labels)
    return encode(_One(metric)).removesuffix(_END)


def _writer_of(family: Family) -> Callable[[Sequence[str], Value], str]:
    """What makes the lines of one sample."""
    return _histogram_writer(family) if family.kind == "histogram" else _line_writer(family)


def _line_writer(family: Family) -> Callable[[Sequence[str], Value], str]:
    # Labels stand in the order of their names.
    order = sorted(range(len(family.labels)), key=family.labels.__getitem__)
    inside = ",".join(f'{family.labels[place]}="%s"' for place in order)
    template = family.name + _SUFFIXES[family.kind] + (f"{{{inside}}}" if inside else "") + " %s\n"

    def write(labels: Sequence[str], value: Value) -> str:
        assert not isinstance(value, Histogram)
        return template % (*[_escaped(labels[place]) for place in order], _number(value))

    return write


def _histogram_writer(family: Family) -> Callable[[Sequence[str], Value], str]:
    name = family.name
    names = sorted((label, place) for place, label in enumerate(family.labels))

    def write(labels: Sequence[str], value: Value) -> str:
        assert isinstance(value, Histogram)
        pairs = [(label, f'{label}="{_escaped(labels[place])}"') for label, place in names]
        before = "".join(f"{pair}," for label, pair in pairs if label < "le")
        after = "".join(f",{pair}" for label, pair in pairs if label > "le")
        inside = ",".join(pair for _, pair in pairs)
        lines: list[str] = []
        total = 0
        for bound, count in zip((*value.bounds, "+Inf"), value.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{before}le="{bound}"{after}}} {_number(total)}\n')
        around = f"{{{inside}}}" if inside else ""
        lines.append(f"{name}_count{around} {_number(total)}\n")
        lines.append(f"{name}_sum{around} {_number(value.sum)}\n")
        return "".join(lines)

    return write


@lru_cache(_ESCAPED_MAX)
def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    if type(value) is int and 0 <= value < _LONG:
        return f"{value}.0"
    written: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return written
