"""Counting: sums that never fall, and names that are bounded."""

from __future__ import annotations

import pytest

from headrace.core import limits
from headrace.server.metrics.bounded import Places
from headrace.server.metrics.counting import OTHER, Counts, Histogram


def test_a_value_counts_for_the_first_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        histogram.add(value)
    histogram.add(1.5, count=10)
    assert histogram.counts == [2, 12, 1]
    assert histogram.sum == pytest.approx(27.0)


def test_a_copy_of_a_histogram_stays_as_it_was() -> None:
    histogram = Histogram((1.0,))
    histogram.add(0.5)
    twin = histogram.copy()
    histogram.add(0.5)
    assert twin.counts == [1, 0]
    assert twin.sum == 0.5


def test_an_api_has_one_endpoint_at_each_door() -> None:
    counts = Counts()
    assert counts.endpoint("kafka", "Fetch") is counts.endpoint("kafka", "Fetch")
    assert counts.endpoint("kafka", "Fetch") is not counts.endpoint("sdk", "Fetch")


def test_topics_beyond_the_limit_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METRIC_TOPICS_MAX", 2)
    counts = Counts()
    for name in ("a", "b", "c", "d", "a"):
        counts.traffic(name, "http").add_in(1, 10)
    counts.traffic("a", "grpc").add_out(1, 10)
    rows = {key: (row.messages_in, row.bytes_in) for key, row in counts.rows.items()}
    assert rows == {
        ("a", "http"): (2, 20),
        ("b", "http"): (1, 10),
        (OTHER, "http"): (2, 20),
        ("a", "grpc"): (0, 0),
    }


def test_what_a_deleted_topic_counted_is_not_lost() -> None:
    counts = Counts()
    counts.traffic("gone", "http").add_in(3, 30)
    counts.traffic("gone", "http").add_out(2, 20)
    counts.traffic("kept", "http").add_in(1, 10)
    counts.forget_topics({"kept"})
    assert set(counts.rows) == {("kept", "http"), (OTHER, "http")}
    other = counts.rows[OTHER, "http"]
    assert (other.messages_in, other.bytes_in) == (3, 30)
    assert (other.messages_out, other.bytes_out) == (2, 20)


def test_a_deleted_topic_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METRIC_TOPICS_MAX", 1)
    counts = Counts()
    counts.traffic("gone", "http")
    counts.forget_topics(())
    counts.traffic("new", "http").add_in(1, 1)
    assert ("new", "http") in counts.rows


def test_who_has_a_place_keeps_it_until_it_is_gone() -> None:
    places: Places[str] = Places(2)
    for names, expected in (
        (("a", "b", "c"), {"a", "b"}),
        (("c", "b", "a"), {"a", "b"}),
        (("c", "b"), {"b"}),
        (("c", "b", "a"), {"b", "c"}),
    ):
        places.begin()
        assert {name for name in names if places.has(name)} == expected
        places.end()
