"""Order by key and by partition, over nacks, ends of leases, deaths and reopens.

The twin does not say which message comes: it says which may not, and how many
must. Chunks and snapshots are made small, so that short histories meet their borders.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core.values import MessageId, Outgoing, Receipt
from headrace.engine import state_log
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import attribute_headers

CHUNK_BITS = 3
TOPIC, GROUP = "orders", "workers"
KEYS = (b"a", b"b", b"c", None)
DONE = ("acked", "dead-lettered", "expired", "cancelled")
# Given out and not done: whatever its state, others behind it have to wait.
ACTIVE = ("leased", "retrying")
ALL = 1_000

Place = tuple[int, int]


class HandClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture(autouse=True, scope="module")
def small_borders() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("headrace.engine.") and hasattr(module, "CHUNK_BITS"):
                patch.setattr(module, "CHUNK_BITS", CHUNK_BITS)
                patch.setattr(module, "CHUNK", 1 << CHUNK_BITS)
        patch.setattr(state_log, "SNAPSHOT_BYTES_MIN", 800)
        patch.setattr(state_log, "SNAPSHOT_FACTOR", 1)
        yield


class OrderedQueue(RuleBasedStateMachine):
    """What is the same for both orders."""

    ordering = "key"
    partitions = 1

    @initialize(buries_expired=st.booleans())
    def begin(self, buries_expired: bool) -> None:
        self.disk, self.clock = MemoryDisk(), HandClock()
        self.node = Node.open(":memory:", disk=self.disk, clock=self.clock)
        chosen = {"ordering": self.ordering, "dead_letter_expired": buries_expired}
        self.node.create_topic(TOPIC, partitions=self.partitions, settings=chosen)
        self.node.open_queue(
            GROUP, [TOPIC], "ann", {"visibility_ms": 1_000, "max_attempts": 2, "backoff_ms": 50}
        )
        self.messages: dict[Place, dict[str, Any]] = {}
        self.receipts: dict[Place, Receipt] = {}

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.node.close()

    def status(self, place: Place) -> str:
        return self.node.status(MessageId(TOPIC, *place), GROUP).state

    def chain_of(self, place: Place) -> Any:
        """What a message has to share its turn with; None for nothing."""
        raise NotImplementedError

    # What users do.

    @rule(data=st.data(), count=st.integers(1, 6))
    def publish(self, data: st.DataObject, count: int) -> None:
        now_ms = self.clock.time_ms
        outgoing, noted = [], []
        for _ in range(count):
            key = data.draw(st.sampled_from(KEYS))
            delay = data.draw(st.sampled_from([0, 0, 0, 120, 900]))
            ttl = data.draw(st.sampled_from([0, 0, 0, 200, 2_000]))
            headers = attribute_headers(
                priority=data.draw(st.sampled_from([None, None, 0, 4])),
                delay_ms=delay or None,
                ttl_ms=ttl or None,
            )
            outgoing.append(Outgoing(b"v", key, headers))
            noted.append({"key": key, "delayed": bool(delay), "due": now_ms + delay})
        for found, message in zip(self.node.publish(TOPIC, outgoing), noted, strict=True):
            self.messages[found.partition, found.offset] = message

    @rule(passed_ms=st.sampled_from([1, 50, 120, 200, 1_000]))
    def let_time_pass(self, passed_ms: int) -> None:
        self.clock.time_ms += passed_ms

    @rule()
    def reopen(self) -> None:
        self.node.close()
        self.node = Node.open(":memory:", disk=self.disk, clock=self.clock)
        self.receipts = {}

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        delayed = sorted(place for place in self.messages if self.status(place) == "delayed")
        if delayed:
            place = data.draw(st.sampled_from(delayed))
            assert self.node.cancel(MessageId(TOPIC, *place))

    @rule(
        data=st.data(),
        how=st.sampled_from(["ack", "ack", "ack", "nack", "reject", "extend", "release"]),
    )
    def settle(self, data: st.DataObject, how: str) -> None:
        held = sorted(place for place in self.receipts if self.status(place) == "leased")
        if not held:
            return
        chosen = sorted(data.draw(st.sets(st.sampled_from(held), min_size=1)))
        outcomes = getattr(self.node, how)(GROUP, [self.receipts[place] for place in chosen])
        assert outcomes == [None] * len(chosen)

    # What must hold.

    @rule(count=st.sampled_from([1, 2, ALL]))
    def lease(self, count: int) -> None:
        states = {place: self.status(place) for place in self.messages}
        wanted = self.chains_that_can_give(states)
        leased = self.node.lease(GROUP, [TOPIC], "ann", count)
        assert len(leased) == min(count, wanted)
        chains: Counter[Any] = Counter()
        for delivery in leased:
            place = (delivery.partition, delivery.offset)
            assert states[place] == "pending"
            chain = self.chain_of(place)
            if chain is not None:
                chains[chain] += 1
                assert not self.ahead_of(place, states)
            self.receipts[place] = delivery.receipt
        assert all(size == 1 for size in chains.values())

    def chains_that_can_give(self, states: dict[Place, str]) -> int:
        """How many messages can be had at once: one of each chain of which
        nothing is given out, and all that are in none."""
        pending: set[Any] = set()
        alone = 0
        for place, state in states.items():
            if state == "pending":
                chain = self.chain_of(place)
                alone += chain is None
                if chain is not None:
                    pending.add(chain)
        active = {self.chain_of(place) for place, state in states.items() if state in ACTIVE}
        return alone + len(pending - active)

    def ahead_of(self, place: Place, states: dict[Place, str]) -> list[Place]:
        """Messages that should have come first: published earlier, in the same
        chain, not done. One that was delayed joined when it was due, so it may
        be anywhere."""
        return [
            other
            for other, message in self.messages.items()
            if self.chain_of(other) == self.chain_of(place)
            and other < place
            and not message["delayed"]
            and states[other] not in DONE
        ]

    @invariant()
    def at_most_one_of_a_chain_is_given_out(self) -> None:
        if not hasattr(self, "node"):
            return
        active = Counter(
            self.chain_of(place)
            for place in self.messages
            if self.chain_of(place) is not None and self.status(place) in ACTIVE
        )
        assert all(size == 1 for size in active.values()), active

    @rule()
    def everything_comes_to_an_end(self) -> None:
        for _ in range(2 * len(self.messages) + 5):
            leased = self.node.lease(GROUP, [TOPIC], "ann", ALL)
            assert self.node.ack(GROUP, [d.receipt for d in leased]) == [None] * len(leased)
            if not leased:
                self.clock.time_ms += 1_000
        assert {self.status(place) for place in self.messages} <= set(DONE)
        numbers = self.node.queue_statistics(GROUP)
        assert numbers.depth == 0


class QueueInOrderOfKeys(OrderedQueue):
    ordering = "key"
    partitions = 1

    def chain_of(self, place: Place) -> Any:
        return self.messages[place]["key"]


class QueueInOrderOfPartitions(OrderedQueue):
    ordering = "partition"
    partitions = 2

    def chain_of(self, place: Place) -> Any:
        return place[0]


TestOrderOfKeys = pytest.mark.timeout(3_600)(QueueInOrderOfKeys.TestCase)
TestOrderOfKeys.settings = settings(stateful_step_count=30)
TestOrderOfPartitions = pytest.mark.timeout(3_600)(QueueInOrderOfPartitions.TestCase)
TestOrderOfPartitions.settings = settings(stateful_step_count=30)
