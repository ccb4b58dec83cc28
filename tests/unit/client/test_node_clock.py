"""The node's time as a client knows it: never behind the node's own clock, so that no
message of a producer is due before its delay is over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.node_clock import BEHIND_MS_MAX, NodeClock

TRIPS = st.floats(0, 5_000)
PASSED = st.floats(0, 86_400_000)


class World:
    """A node's clock that runs a little faster or slower than ours, and starts anywhere."""

    def __init__(self, ahead_ms: float, drift: float) -> None:
        self.steady_ms = 1_000_000.0
        self._ahead_ms = ahead_ms
        self._rate = 1 + drift
        self.clock = NodeClock(lambda: self.steady_ms)

    @property
    def node_exact_ms(self) -> float:
        return 1_700_000_000_000 + self._ahead_ms + self.steady_ms * self._rate

    @property
    def node_ms(self) -> int:
        return int(self.node_exact_ms)

    def ask(self, there_ms: float, back_ms: float) -> None:
        begun = self.clock.begin()
        self.steady_ms += there_ms
        said = self.node_ms
        self.steady_ms += back_ms
        self.clock.on_answer(said, begun)


@given(st.floats(-1e9, 1e9), st.floats(-0.0001, 0.0001), TRIPS, TRIPS, PASSED, TRIPS)
def test_it_is_never_behind_the_node(
    ahead: float, drift: float, there: float, back: float, passed: float, late: float
) -> None:
    world = World(ahead, drift)
    world.ask(there, back)
    assert world.clock.now_ms() >= world.node_exact_ms
    # At most by the trip, and what is rounded and allowed for drift.
    assert world.clock.now_ms() <= world.node_exact_ms + there + back + 4
    world.steady_ms += passed
    assert world.clock.now_ms() >= world.node_exact_ms
    # News that were under way for a while do not put it back.
    said = world.node_ms
    world.steady_ms += late
    world.clock.on_news(said)
    assert world.clock.now_ms() >= world.node_exact_ms


def test_a_node_whose_clock_was_set_back_is_believed_at_last() -> None:
    world = World(3_600_000, 0)
    world.ask(1, 1)
    world._ahead_ms = 0
    world.clock.on_news(world.node_ms)
    assert abs(world.clock.now_ms() - world.node_ms) <= 5
    assert BEHIND_MS_MAX < 3_600_000


def test_a_node_whose_clock_was_set_ahead_is_believed_at_once() -> None:
    world = World(0, 0)
    world.ask(1, 1)
    world._ahead_ms = 3_600_000
    world.clock.on_news(world.node_ms)
    assert world.clock.now_ms() >= world.node_ms
