"""Reports keep within the page, show a single moment, and say durations as people do."""

from __future__ import annotations

import re

import pytest

from headrace.pipelines.page import Seconds, bars, cards, columns, duration, lines, table

TOKEN = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9" * 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7384.2, "2h 3m"), (0.0402, "40ms"), (4.0, "4s"), (93_784.2, "1d 2h"), (-3.0, "-3s")],
)
def test_seconds_are_shown_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert f'<td class="n">{text}</td>' in table(["waited"], [[Seconds(seconds)]])


@pytest.mark.parametrize("made", [table(["reason"], [[TOKEN]]), bars([(TOKEN, 1)], "reasons")])
def test_a_word_that_is_too_long_for_a_column_may_be_broken(made: str) -> None:
    longest = max(re.split(r"<[^>]*>| ", made), key=len)
    assert len(longest) <= 20
    # It is copied as it was.
    assert TOKEN in made.replace("<wbr>", "")


def test_what_is_broken_is_escaped_whole() -> None:
    made = table(["reason"], [["x" * 17 + "<script>&amp;"]])
    assert "<script>" not in made and "&lt;<wbr>script&gt;&amp;amp;" in made


def test_a_single_moment_is_shown_in_the_middle() -> None:
    curve = lines([("p50", [("12:00", 7384.2)])], "latency", duration)
    assert re.findall(r'class="dot" x1="([0-9.]+)" x2="([0-9.]+)"', curve) == [("380.0", "380.0")]
    assert "12:00: p50 2h 3m" in curve and curve.count(">12:00<") == 1
    # And is not as wide as the page.
    [(x, width)] = re.findall(
        r'<rect x="([0-9.]+)".*? width="([0-9.]+)"', columns([("12", 4)], "c")
    )
    assert float(width) <= 40 and float(x) + float(width) / 2 == 380


def test_curves_of_many_moments_have_their_ends_and_no_dots() -> None:
    points = [(f"{n:03}", float(n)) for n in range(200)]
    curve = lines([("p50", points), ("p99", points)], "latency", duration)
    assert curve.count("<polyline") == 2 and "dot" not in curve
    assert ">000<" in curve and ">199<" in curve and "3m 19s" in curve


def test_nothing_is_said_to_be_none() -> None:
    for made in (table(["a"], []), bars([], "b"), columns([], "c"), lines([], "d", duration)):
        assert "none" in made
    assert cards([("rows", 1200)]).count("1,200") == 1
