"""The table of metrics: names by convention, and a page that has all of them."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.core import limits
from headrace.server.metrics.families import BY_PARTITION, FAMILIES

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "monitoring.md"


def test_every_name_is_there_once_and_by_convention() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert re.fullmatch(r"(headrace|process)_[a-z]+(_[a-z]+)*", family.name), family.name
        # The suffix of a counter is the exposition's to write.
        assert not family.name.endswith(("_total", "_info", "_count", "_sum", "_bucket"))
        assert family.help.endswith("."), family.name
        if family.kind == "histogram":
            assert family.name.endswith("_seconds"), family.name


def test_the_page_has_a_row_for_every_family() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \| (.+) \|$", PAGE.read_text(), re.M)
    suffixes = {"counter": "_total", "info": "_info"}
    assert rows == [
        (
            family.name + suffixes.get(family.kind, ""),
            family.kind,
            ", ".join(family.labels),
            family.help,
        )
        for family in FAMILIES
    ]


def test_the_page_says_how_many_series_there_are() -> None:
    page = PAGE.read_text()
    for most in (
        limits.METRIC_TOPICS_MAX,
        limits.METRIC_GROUP_TOPICS_MAX,
        limits.METRIC_HOLDERS_MAX,
        limits.METRIC_PARTITIONS_MAX,
    ):
        assert f"{most:,}" in page
    assert f"at most {limits.METRIC_AGES_MAX:,} ages" in page
    assert len(BY_PARTITION) == 4 and "four series" in page
