"""A lease of many against as many leases of one: the same lanes in the same order,
the same messages of each, and the same shares left over for the next call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.values import Delivery, Outgoing
from headrace.engine.lane import LANE_COUNT
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers

TOPIC, GROUP = "orders", "workers"
SETTINGS = {"leases_per_consumer_max": 1_000_000, "starvation_ms": 1_000}

# Runs of one lane: so many of it, to one partition.
arrivals = st.lists(
    st.tuples(st.integers(0, LANE_COUNT - 1), st.integers(0, 2), st.integers(1, 40)), max_size=12
)
steps = st.lists(st.tuples(arrivals, st.integers(1, 150), st.integers(0, 700)), max_size=4)


class HandClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Shop:
    """One node with one group on one topic."""

    def __init__(self, partitions: int, ordering: str) -> None:
        self.clock = HandClock()
        self.partitions = partitions
        self.node = Node.open(":memory:", disk=MemoryDisk(), clock=self.clock)
        self.node.create_topic(TOPIC, partitions=partitions, settings={"ordering": ordering})
        self.node.open_queue(GROUP, [TOPIC], "ann", SETTINGS)

    def publish(self, arrived: Sequence[tuple[int, int, int]]) -> None:
        for lane, partition, count in arrived:
            # Every third has a visibility of its own: another deadline, another grant.
            messages = [
                Outgoing(
                    b"x",
                    str(number % 5).encode(),
                    attribute_headers(
                        priority=lane, visibility_ms=60_000 if number % 3 == 0 else None
                    ),
                    partition=partition % self.partitions,
                )
                for number in range(count)
            ]
            self.node.publish(TOPIC, messages)

    def lease(self, count: int) -> list[Delivery]:
        return self.node.lease(GROUP, [TOPIC], "ann", count)

    def close(self) -> None:
        self.node.close()

    def shares(self) -> list[int]:
        broker = self.node._broker
        group = broker.topics.catalog.groups[GROUP]
        return broker.groups.serving(group).schedule.encode()


# A lane that a lease of many has emptied, and that gets new messages before anybody looks.
EMPTIED = [([(3, 0, 1), (4, 0, 1)], 2, 0), ([(0, 0, 40), (3, 0, 1)], 20, 576), ([], 1, 424)]


@pytest.mark.parametrize("ordering", ["none", "key", "partition"])
@example(partitions=1, history=EMPTIED)
@given(partitions=st.integers(1, 3), history=steps)
def test_a_lease_of_many_gives_what_as_many_leases_of_one_would(
    ordering: str, partitions: int, history: list[tuple[list[tuple[int, int, int]], int, int]]
) -> None:
    with closing(Shop(partitions, ordering)) as many, closing(Shop(partitions, ordering)) as one:
        for arrived, count, passed_ms in history:
            many.publish(arrived)
            one.publish(arrived)
            many.clock.time_ms += passed_ms
            one.clock.time_ms += passed_ms
            at_once = many.lease(count)
            in_turn = [message for _ in range(count) for message in one.lease(1)]
            assert [each.lane for each in at_once] == [each.lane for each in in_turn]
            assert many.shares() == one.shares()
            if partitions == 1:
                assert [each.offset for each in at_once] == [each.offset for each in in_turn]
            for lane in range(LANE_COUNT):
                for partition in range(partitions):
                    offsets = [
                        each.offset
                        for each in at_once
                        if (each.lane, each.partition) == (lane, partition)
                    ]
                    assert offsets == sorted(offsets)
