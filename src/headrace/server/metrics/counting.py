"""Counting: plain numbers, added to where something happens.

    door --- endpoint("kafka", "Fetch") --- latency, errors by code
      '----- traffic("orders", "kafka") --- messages and bytes, in and out
    disk --- syncs                          threads --- loop_lag

Whoever handles a request, a batch or a sync adds to one of these, on the loop's
thread, without a lock and without a name to look up where it happens often. What can
be found out by looking, such as the depth of a queue, is not counted at all: a scrape
looks.

What strangers name is bounded: so many topics have a row of their own, in the order
in which they were first used, and all others share one. A row stays until its topic is
deleted; then what it counted goes to that shared row, so that sums never fall.

Rejected: prometheus_client's own counters. Each of them locks, and looks its labels
up in a dictionary: five times the cost, for every request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Sequence

from headrace.core import limits

# What stands for everything that has no row of its own. No topic and no group can
# have this name.
OTHER = "(other)"

# Seconds: from what memory answers to what somebody complains about.
REQUEST_BOUNDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
SYNC_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
)  # fmt: skip
LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Histogram:
    """How many were at most so large; the last count is of all that were larger."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def copy(self) -> Histogram:
        twin = Histogram(self.bounds)
        twin.counts = list(self.counts)
        twin.sum = self.sum
        return twin


class Endpoint:
    """One API of one door."""

    __slots__ = ("api", "door", "errors", "latency")

    def __init__(self, door: str, api: str) -> None:
        self.door = door
        self.api = api
        self.latency = Histogram(REQUEST_BOUNDS)
        self.errors: Counter[str] = Counter()


class Traffic:
    """One topic through one door."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0

    def add_in(self, messages: int, size: int) -> None:
        self.messages_in += messages
        self.bytes_in += size

    def add_out(self, messages: int, size: int) -> None:
        self.messages_out += messages
        self.bytes_out += size

    def take_over(self, other: Traffic) -> None:
        self.add_in(other.messages_in, other.bytes_in)
        self.add_out(other.messages_out, other.bytes_out)


class Counts:
    """Everything that one node counts."""

    def __init__(self) -> None:
        self.endpoints: dict[tuple[str, str], Endpoint] = {}
        self.rows: dict[tuple[str, str], Traffic] = {}
        self.syncs = Histogram(SYNC_BOUNDS)
        self.loop_lag = Histogram(LAG_BOUNDS)
        # Connections that were cut, by door and reason; a door names its reasons first.
        self.cuts: Counter[tuple[str, str]] = Counter()
        self._topics: set[str] = set()

    def endpoint(self, door: str, api: str) -> Endpoint:
        """To be kept by whoever adds to it: APIs are ours to name, and few."""
        found = self.endpoints.get((door, api))
        if found is None:
            found = self.endpoints[door, api] = Endpoint(door, api)
        return found

    def traffic(self, topic: str, door: str) -> Traffic:
        return self.rows.get((topic, door)) or self._new_row(topic, door)

    def _new_row(self, topic: str, door: str) -> Traffic:
        if topic not in self._topics and len(self._topics) >= limits.METRIC_TOPICS_MAX:
            topic = OTHER
        elif topic != OTHER:
            self._topics.add(topic)
        return self.rows.setdefault((topic, door), Traffic())

    def forget_topics(self, known: Container[str]) -> None:
        """Topics that are not among the known ones are gone."""
        for topic in [each for each in self._topics if each not in known]:
            self._topics.discard(topic)
            for key in [key for key in self.rows if key[0] == topic]:
                row = self.rows.pop(key)
                self.traffic(OTHER, key[1]).take_over(row)
