"""Topic patterns against Python's own matcher."""

from __future__ import annotations

import re
import warnings

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import InvalidArgument
from headrace.engine.coordinator.topic_pattern import TopicPattern

ALPHABET = "ab1-._"

singles = st.sampled_from(
    [
        "a",
        "b",
        "1",
        "-",
        ".",
        "\\.",
        "\\d",
        "\\W",
        "[ab]",
        "[^a-b]",
        "[]a]",
        "[a-]",
        "[\\d_]",
        "^",
        "$",
    ]
)
repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])


def larger(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(patterns, patterns).map("".join),
        st.tuples(patterns, patterns).map("|".join),
        patterns.map("({})".format),
        st.tuples(patterns, repeats).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


@given(st.recursive(singles, larger, max_leaves=8), st.lists(st.text(ALPHABET, max_size=8)))
def test_a_pattern_matches_what_python_matches(pattern: str, names: list[str]) -> None:
    compiled = TopicPattern(pattern)
    twin = re.compile(pattern)
    for name in names:
        assert compiled.matches(name) == bool(twin.fullmatch(name))


@given(st.text("ab()[]{}|*+?\\^$.-,1d", max_size=20), st.text(ALPHABET, max_size=8))
def test_anything_else_is_refused_or_means_what_python_means(pattern: str, name: str) -> None:
    try:
        matched = TopicPattern(pattern).matches(name)
    except InvalidArgument:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            twin = re.compile(pattern)
        except re.error:
            # Python does not repeat anchors, which is harmless.
            return
    assert matched == bool(twin.fullmatch(name))
