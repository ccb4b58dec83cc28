"""Where a producer begins is chance, and not the chance that the program seeds."""

from __future__ import annotations

import random
from typing import Any

from headrace.client.routing import Route
from headrace.core.values import PartitionInfo, TopicInfo

SETTINGS: dict[str, Any] = {"record_bytes_max": 1_000, "dedup": False, "partitioner": "sticky"}
PARTITIONS = 1_000


def new_route() -> Route:
    partitions = tuple(PartitionInfo(number, 0, 0, 0, 0, 1, 0) for number in range(PARTITIONS))
    return Route(TopicInfo("orders", "id", partitions, SETTINGS), 0.0)


def test_a_program_gets_the_numbers_it_seeded_for() -> None:
    before = random.getstate()
    new_route()
    assert random.getstate() == before


def test_producers_of_programs_with_one_seed_begin_at_different_places() -> None:
    begun = set()
    before = random.getstate()
    try:
        for _ in range(20):
            random.seed(7)
            begun.add(new_route().choose(None, None))
    finally:
        random.setstate(before)
    # That twenty of a thousand are all the same has a chance of one in 10 to the 57th.
    assert len(begun) > 1
    assert begun <= set(range(PARTITIONS))
