"""Topic patterns: what they match, and what they are not."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidArgument
from headrace.core.limits import NAME_CHARACTERS_MAX, TOPIC_PATTERN_CHARACTERS_MAX
from headrace.engine.coordinator.topic_pattern import TopicPattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", "orders", "orders2"),
        ("orders.*", "orders2", "my-orders"),
        ("^orders-\\d+$", "orders-17", "orders-x"),
        ("(eu|us)\\.(orders|payments)", "us.orders", "us-orders"),
        ("[a-c]{2,3}", "abc", "abcd"),
        ("[^a-c]+", "xyz", "xbz"),
        ("[]x-]+", "x]-", "y"),
        ("[\\w.]+", "a_1.b", "a-b"),
        ("\\S*\\D", "ab", "a1"),
        ("a{2}b?", "aab", "ab"),
        ("(?:ab)+?", "abab", "aba"),
        ("a|", "", "b"),
        ("x^a|b", "b", "xa"),
        ("", "", "a"),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: str, other: str) -> None:
    compiled = TopicPattern(pattern)
    assert compiled.matches(matching)
    assert not compiled.matches(other)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[",
        "*a",
        "a**",
        "a{2",
        "a{x}",
        "a{3,2}",
        "{2}",
        "[b-a]",
        "[a-\\d]",
        "\\",
        "\\1",
        "\\q",
        "(?=a)",
        "(?P<n>a)",
        "((a{99}){99}){99}",
        "(" * 100 + ")" * 100,
        "a" * (TOPIC_PATTERN_CHARACTERS_MAX + 1),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="pattern"):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)b"])
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    # A backtracking matcher would not come back from this at all.
    assert not TopicPattern(pattern).matches("a" * NAME_CHARACTERS_MAX)
