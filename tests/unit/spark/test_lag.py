"""The lag of a stream, from its progress."""

from __future__ import annotations

import json
from typing import Any

from headrace.spark.lag import lag_of


def source(end: object, latest: object) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


def position(**topics: list[int]) -> str:
    return json.dumps(
        {
            name: {"id": "a"} | {str(index): offset for index, offset in enumerate(offsets)}
            for name, offsets in topics.items()
        }
    )


def test_lag_is_what_was_there_behind_the_end_of_the_batch() -> None:
    behind = source(position(orders=[5, 7], refunds=[1]), position(orders=[9, 7], refunds=[3]))
    assert lag_of({"sources": [behind]}) == {"orders": 4, "refunds": 2}


def test_sources_of_a_join_are_added() -> None:
    one = source(position(orders=[5]), position(orders=[9]))
    assert lag_of({"sources": [one, one]}) == {"orders": 8}


def test_a_partition_that_is_new_is_all_lag() -> None:
    grown = source(position(orders=[5]), position(orders=[5, 3], refunds=[2]))
    assert lag_of({"sources": [grown]}) == {"orders": 3, "refunds": 2}


def test_a_topic_that_has_fewer_records_than_before_has_no_lag() -> None:
    assert lag_of({"sources": [source(position(orders=[5]), position(orders=[2]))]}) == {
        "orders": 0
    }


def test_other_sources_are_passed_over() -> None:
    others = [
        source('{"logOffset": 3}', None),
        source("3", "9"),
        source(None, None),
        source("not JSON", position(orders=[5])),
    ]
    assert lag_of({"sources": others}) == {}
