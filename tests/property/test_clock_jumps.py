"""Clocks that are set, and machines that sleep: a queue against a twin that only knows how
much of each duration is left.

    lease            lasts as long as somebody could use it: neither a set clock nor sleep
                     count
    delay, retry     last as long as they were to, whatever the clock shows; sleep counts
    deliver_at       comes when the clock shows that moment
    dedup ids        are known for as long as a delay lasts

Over a restart the wall clock is all there is. A delay is then what it lacks of its moment,
and never more than it was to last in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core.values import Delivery, MessageId, Outgoing
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers
from headrace.testing import ManualClock

TOPIC, GROUP = "orders", "workers"
WINDOW_MS = 15_000
YEAR_MS = 365 * 24 * 3_600_000
durations = st.integers(1, 40).map(lambda number: number * 500)
jumps = st.integers(-8, 8).map(lambda number: number * 9_000)


@dataclass
class Twin:
    """One message: what it is, and how much is left of that."""

    state: str
    published_ms: int
    delay_ms: int = 0
    moment_ms: int = 0
    left_ms: int = 0
    # It was given back and nobody had it since.
    is_resting: bool = False
    # What a retry waits for after a restart is bounded, and no more is promised.
    is_vague: bool = False
    delivery: Delivery | None = None


class ClockJumps(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.disk = MemoryDisk()
        self.clock = ManualClock(autoskip=False)
        self.twins: dict[int, Twin] = {}
        self.ids: dict[bytes, Twin] = {}
        self.node = self.opened()
        self.node.create_topic(
            TOPIC, partitions=1, settings={"dedup": True, "dedup_window_ms": WINDOW_MS}
        )
        self.node.open_queue(GROUP, [TOPIC], "one", {"max_attempts": 200})

    def opened(self) -> Node:
        return Node.open(":memory:", disk=self.disk, clock=self.clock)

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.node.close()

    def publish(self, twin: Twin, **attributes: Any) -> None:
        made = Outgoing(b"v", headers=attribute_headers(**attributes))
        (published,) = self.node.publish(TOPIC, [made])
        self.twins[published.offset] = twin

    @rule(delay_ms=durations)
    def publish_delayed(self, delay_ms: int) -> None:
        now_ms = self.clock.now_ms()
        self.publish(
            Twin("delayed", now_ms, delay_ms=delay_ms, left_ms=delay_ms), delay_ms=delay_ms
        )

    @rule(in_ms=durations)
    def publish_scheduled(self, in_ms: int) -> None:
        now_ms = self.clock.now_ms()
        self.publish(
            Twin("scheduled", now_ms, moment_ms=now_ms + in_ms), deliver_at_ms=now_ms + in_ms
        )

    @rule()
    def publish_plain(self) -> None:
        self.publish(Twin("pending", self.clock.now_ms()))

    @rule(name=st.sampled_from([b"one", b"two", b"three"]))
    def publish_once(self, name: bytes) -> None:
        headers = attribute_headers(dedup_id=name, delay_ms=YEAR_MS)
        (published,) = self.node.publish(TOPIC, [Outgoing(b"v", headers=headers)])
        known = self.ids.get(name)
        if known is None or known.left_ms <= 0:
            assert not published.duplicate
        elif not known.is_vague:
            assert published.duplicate
        if not published.duplicate:
            self.ids[name] = Twin("known", self.clock.now_ms(), left_ms=WINDOW_MS)

    @rule(visibility_ms=durations, count=st.integers(1, 5))
    def lease(self, visibility_ms: int, count: int) -> None:
        leased = self.node.lease(GROUP, [TOPIC], "one", count, visibility_ms=visibility_ms)
        ready = [twin for twin in self.twins.values() if twin.state == "pending"]
        vague = [twin for twin in self.twins.values() if twin.is_vague]
        assert min(count, len(ready)) <= len(leased) <= min(count, len(ready) + len(vague))
        for delivery in leased:
            twin = self.twins[delivery.offset]
            assert twin.state == "pending" or twin.is_vague
            assert delivery.deadline_ms - delivery.delivered_at_ms == visibility_ms
            twin.state, twin.left_ms, twin.delivery = "leased", visibility_ms, delivery
            twin.is_vague = twin.is_resting = False

    @rule(delay_ms=durations)
    def nack(self, delay_ms: int) -> None:
        held = [twin for twin in self.twins.values() if twin.state == "leased"]
        if held:
            twin = held[0]
            assert twin.delivery is not None
            assert self.node.nack(GROUP, [twin.delivery.receipt], delay_ms=delay_ms) == [None]
            twin.state, twin.left_ms, twin.is_resting = "retrying", delay_ms, True

    @rule(visibility_ms=durations)
    def extend(self, visibility_ms: int) -> None:
        held = [twin for twin in self.twins.values() if twin.state == "leased"]
        if held:
            twin = held[-1]
            assert twin.delivery is not None
            extended = self.node.extend(GROUP, [twin.delivery.receipt], visibility_ms=visibility_ms)
            assert extended == [None]
            twin.left_ms = visibility_ms

    # Time.

    @rule(duration_ms=durations)
    def live(self, duration_ms: int) -> None:
        self.clock.skip(duration_ms / 1000)
        self.pass_time(duration_ms, ("delayed", "retrying", "leased"))

    @rule(duration_ms=durations)
    def sleep(self, duration_ms: int) -> None:
        self.clock.sleep(duration_ms / 1000)
        self.pass_time(duration_ms, ("delayed", "retrying"))

    @rule(by_ms=jumps)
    def set_clock(self, by_ms: int) -> None:
        self.clock.jump(by_ms / 1000)
        self.pass_time(0, ())

    @rule(by_ms=jumps)
    def restart(self, by_ms: int) -> None:
        """The clock may have been set meanwhile."""
        self.node.close()
        self.clock.jump(by_ms / 1000)
        self.node = self.opened()
        now_ms = self.clock.now_ms()
        for twin in self.twins.values():
            if twin.state == "delayed":
                left_ms = twin.published_ms + twin.delay_ms - now_ms
                twin.left_ms = min(left_ms, twin.delay_ms)
            elif twin.state == "leased":
                twin.state = "pending"
            elif twin.is_resting:
                # No longer than the longest retry there is.
                twin.state, twin.left_ms, twin.is_vague = "retrying", 20_000, True
            elif twin.delay_ms or twin.moment_ms:
                # A delay that was over counts from its own moment again, if nobody had it.
                self.judge_again(twin, now_ms)
        for known in self.ids.values():
            # By the clock it may be over or not, but it does not last longer than in all.
            known.left_ms, known.is_vague = WINDOW_MS, True
        self.pass_time(0, ())

    def judge_again(self, twin: Twin, now_ms: int) -> None:
        if twin.delivery is not None:
            return
        if twin.moment_ms > now_ms:
            twin.state = "scheduled"
        elif twin.delay_ms:
            left_ms = min(twin.published_ms + twin.delay_ms - now_ms, twin.delay_ms)
            if left_ms > 0:
                twin.state, twin.left_ms = "delayed", left_ms

    def pass_time(self, duration_ms: int, states: tuple[str, ...]) -> None:
        if "delayed" in states:
            for known in self.ids.values():
                known.left_ms -= duration_ms
        for twin in self.twins.values():
            if twin.state in states:
                twin.left_ms -= duration_ms
            if twin.state in ("delayed", "retrying", "leased") and twin.left_ms <= 0:
                twin.state, twin.is_vague = "pending", False
            if twin.state == "scheduled" and twin.moment_ms <= self.clock.now_ms():
                twin.state = "pending"

    @invariant()
    def states_agree(self) -> None:
        for offset, twin in getattr(self, "twins", {}).items():
            found = self.node.status(MessageId(TOPIC, 0, offset), GROUP)
            expected = "delayed" if twin.state == "scheduled" else twin.state
            if twin.is_vague:
                assert found.state in ("retrying", "pending")
                continue
            assert found.state == expected, (offset, twin)
            if expected in ("delayed", "retrying", "leased") and found.due_ms is not None:
                left_ms = found.due_ms - self.clock.now_ms()
                assert left_ms == (
                    twin.moment_ms - self.clock.now_ms()
                    if twin.state == "scheduled"
                    else twin.left_ms
                )


TestClockJumps = ClockJumps.TestCase
