"""Exposition: written in pieces, it reads as if it had been written at once."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from headrace.server.metrics import exposition
from headrace.server.metrics.counting import Histogram
from headrace.server.metrics.families import Family, Samples

GAUGE = Family("some_bytes", "gauge", ("topic",), "Bytes, with a \\ and more.")
COUNTER = Family("some_messages", "counter", ("topic", "door"), "Messages.")
TIMES = Family("some_seconds", "histogram", ("api",), "Seconds.")
BUILD = Family("some_build", "info", ("version",), "What runs.")
EMPTY = Family("some_nothing", "gauge", (), "Nothing was found.")


def made_samples() -> Samples:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.6, 5.0):
        histogram.add(value)
    return {
        GAUGE: [((f"topic-{number}",), number) for number in range(500)],
        COUNTER: [(('quoted "\n', "http"), 3)],
        TIMES: [((f"api-{number}",), histogram) for number in range(40)],
        BUILD: [(("1.0",), 1)],
        EMPTY: [],
    }


@pytest.mark.parametrize(
    ("accept", "content_type", "ending"),
    [
        ("", "text/plain; version=0.0.4", ""),
        ("text/html;q=0.9, */*", "text/plain; version=0.0.4", ""),
        ("application/openmetrics-text; version=1.0.0, */*;q=0.1", "openmetrics-text", "# EOF\n"),
        ("application/openmetrics-text; version=nonsense", "openmetrics-text", "# EOF\n"),
    ],
)
def test_every_sample_is_read_back_once(accept: str, content_type: str, ending: str) -> None:
    text, given = asyncio.run(exposition.expose(made_samples(), accept))
    assert content_type in given
    written = text.decode()
    assert written.endswith(ending)
    assert written.count("# EOF") == len(ending) // 6
    read = list((read_open if ending else read_plain)(written))
    assert [family.name for family in read] == [
        GAUGE.name,
        COUNTER.name,
        TIMES.name,
        BUILD.name if ending else f"{BUILD.name}_info",
    ]
    bytes_, messages, times, build = read
    assert [sample.value for sample in bytes_.samples] == list(range(500))
    assert bytes_.documentation == GAUGE.help
    assert [(each.labels, each.value) for each in messages.samples] == [
        ({"topic": 'quoted "\n', "door": "http"}, 3)
    ]
    of_one = [each for each in times.samples if each.labels["api"] == "api-39"]
    assert [(each.name, each.labels.get("le"), each.value) for each in of_one] == [
        ("some_seconds_bucket", "0.1", 1),
        ("some_seconds_bucket", "1.0", 3),
        ("some_seconds_bucket", "+Inf", 4),
        ("some_seconds_count", None, 4),
        ("some_seconds_sum", None, pytest.approx(6.15)),
    ]
    assert build.samples[0].labels == {"version": "1.0"}


def test_pieces_read_like_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces, _ = asyncio.run(exposition.expose(made_samples(), ""))
    monkeypatch.setattr(exposition, "LINES_AT_ONCE", 1_000_000)
    whole, _ = asyncio.run(exposition.expose(made_samples(), ""))
    assert pieces == whole
