"""Traces against a recorded model: histories of publishes, leases, failures, redrives and
restarts, with state logs that are cut every few events.

Where everything is sampled, `trace` tells exactly what happened. Where hardly anything
is, it tells the state and the time of publishing of every message, nothing that did not
happen, and of a message that failed everything from its failure on.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from tests.property.trace_twin import SETTINGS, Message, TraceTwin

from headrace.core.trace_values import MessageTrace, TraceEvent, TraceQuery
from headrace.core.values import MessageId, Outgoing, Receipt
from headrace.engine import carrying, state_log, trace_topic
from headrace.node import Node
from headrace.record import attribute_headers
from headrace.testing.fault_disk import FaultDisk, keep_everything

TOPIC = "orders"
GROUPS = ("one", "two")
CONSUMERS = ("ann", "bob")
REDRIVES_MAX = 3
FAILURES = ("nacked", "lease-expired", "dead-lettered", "expired", "cancelled")


class HandClock:
    def __init__(self) -> None:
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class TraceAgainstModel(RuleBasedStateMachine):
    share = 1.0

    @initialize()
    def begin(self) -> None:
        self.disk, self.clock = FaultDisk(), HandClock()
        self.node = Node.open(":memory:", disk=self.disk, clock=self.clock, free_bytes_min=0)
        self.node.create_topic(TOPIC, partitions=1, settings={"trace_sample": self.share})
        for group in GROUPS:
            self.node.open_queue(group, [TOPIC], "ann", SETTINGS)
        self.twin = TraceTwin(GROUPS)
        self.receipts: dict[tuple[str, int], Receipt] = {}
        # By id: of which message and group, and what happened to it since.
        self.letters: dict[str, tuple[Message, str, list[TraceEvent]]] = {}

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.check()
            self.node.close()

    @property
    def now_ms(self) -> int:
        return self.clock.time_ms

    def tick(self) -> None:
        self.twin.tick(self.now_ms)
        for group in GROUPS:
            # The node looks at the time when it is asked, and finishes what that began
            # when it is asked to write.
            self.node.queue_statistics(group)
            self.node.release(group, [])

    # What may happen.

    @rule(
        count=st.integers(1, 3),
        delay_ms=st.sampled_from([0, 0, 0, 150, 1200]),
        ttl_ms=st.sampled_from([0, 0, 0, 400, 2000]),
    )
    def publish(self, count: int, delay_ms: int, ttl_ms: int) -> None:
        headers = attribute_headers(delay_ms=delay_ms or None, ttl_ms=ttl_ms or None)
        places = self.node.publish(TOPIC, [Outgoing(b"x", headers=headers)] * count)
        for place in places:
            id = MessageId(TOPIC, place.partition, place.offset)
            self.twin.publish(id, self.now_ms, delay_ms, ttl_ms)
        self.tick()

    @rule(group=st.sampled_from(GROUPS), who=st.sampled_from(CONSUMERS), count=st.integers(1, 5))
    def lease(self, group: str, who: str, count: int) -> None:
        for delivery in self.node.lease(group, [TOPIC], who, count):
            attempt = self.twin.lease(group, delivery.offset, who, self.now_ms)
            assert attempt == delivery.attempt
            self.receipts[group, delivery.offset] = delivery.receipt
        self.tick()

    @rule(
        how=st.sampled_from(["ack", "ack", "nack", "nack", "reject", "extend", "release"]),
        group=st.sampled_from(GROUPS),
        who=st.sampled_from(CONSUMERS),
        most=st.integers(1, 4),
        text=st.sampled_from([None, "boom"]),
    )
    def settle(self, how: str, group: str, who: str, most: int, text: str | None) -> None:
        offsets = self.twin.held(group, who)[:most]
        receipts = [self.receipts[group, offset] for offset in offsets]
        node, now_ms = self.node, self.now_ms
        if how == "ack":
            outcomes = node.ack(group, receipts)
        elif how == "nack":
            outcomes = node.nack(group, receipts, error=text)
        elif how == "reject":
            outcomes = node.reject(group, receipts, reason=text)
        elif how == "extend":
            outcomes = node.extend(group, receipts, visibility_ms=3000)
        else:
            outcomes = node.release(group, receipts)
        assert outcomes == [None] * len(receipts)
        for offset in offsets:
            if how == "ack":
                self.twin.ack(group, offset, now_ms)
            elif how == "nack":
                self.twin.nack(group, offset, text, now_ms)
            elif how == "reject":
                self.twin.reject(group, offset, text, now_ms)
            elif how == "extend":
                self.twin.extend(group, offset, 3000, now_ms)
            else:
                self.twin.release(group, offset, now_ms)
        self.tick()

    @rule(time_ms=st.sampled_from([50, 200, 500, 1000, 2500]))
    def wait(self, time_ms: int) -> None:
        self.clock.time_ms += time_ms
        self.tick()

    @rule(number=st.integers(0, 5))
    def cancel(self, number: int) -> None:
        delayed = [
            offset
            for offset, message in self.twin.messages.items()
            if message.deliver_at_ms > self.now_ms
            and all(seen.state == "delayed" for seen in message.groups.values())
        ]
        if delayed:
            offset = delayed[number % len(delayed)]
            assert self.node.cancel(MessageId(TOPIC, 0, offset))
            self.twin.cancel(offset, self.now_ms)

    @rule()
    def redrive(self) -> None:
        if not any(each.source_id for each in self.node._broker.topics.catalog.topics.values()):
            return
        self.find_letters()
        letters = [each for each in self.node.dead_letters(TOPIC) if each.redrives < REDRIVES_MAX]
        if not letters:
            return
        end = self.node.partition_info(TOPIC, 0).end_offset
        ids = [MessageId(each.topic, each.partition, each.offset) for each in letters]
        assert self.node.redrive(TOPIC, ids).redriven == len(ids)
        for id, letter in zip(ids, letters, strict=True):
            message, group, told = self.letters[str(id)]
            assert letter.group == group
            if self.twin.revive(message, group, self.now_ms):
                way, to = "in place", message.id
            else:
                way, to = "as a copy", MessageId(TOPIC, 0, end)
                ttl_ms = max(0, message.expires_at_ms - message.published_ms)
                copy = self.twin.publish(to, self.now_ms, 0, ttl_ms, group)
                copy.redriven_from = str(id)
                end += 1
            told.append(
                TraceEvent(self.now_ms, "redriven", "__dead-letters", reason=way, to=str(to))
            )
        self.tick()

    @rule(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        if is_killed:
            # Whatever was written is there; nothing more is said or synced.
            killed, self.disk = self.node, self.disk.crash(keep_everything)
            # Only its threads are ended: its disk is one that nobody reads again.
            killed.close()
        else:
            self.node.close()
        self.node = Node.open(":memory:", disk=self.disk, clock=self.clock, free_bytes_min=0)
        self.twin.restart(self.now_ms)
        for group in GROUPS:
            self.node.open_queue(group, [TOPIC], "ann")
        self.tick()

    # What is told of it.

    @rule()
    def check(self) -> None:
        self.find_letters()
        page = self.node.traces(TraceQuery(TOPIC), limit=1000)
        assert page.next is None
        assert [each.id for each in page.traces] == [each.id for each in self.messages()]
        for trace, message in zip(page.traces, self.messages(), strict=True):
            self.check_one(trace, message)
        for id, (message, _, told) in self.letters.items():
            trace = self.node.trace(id)
            links = [("origin", str(message.id))]
            links += [("redriven-to", event.to or "") for event in told]
            assert [(each.relation, each.id) for each in trace.links] == links
            assert list(trace.events[1:]) == told
            assert trace.published_at_ms == message.published_ms

    def messages(self) -> list[Message]:
        return list(self.twin.messages.values())

    def check_one(self, trace: MessageTrace, message: Message) -> None:
        assert trace.published_at_ms == message.published_ms
        states = {each.group: each for each in trace.groups}
        assert states.keys() == message.groups.keys()
        for group, seen in message.groups.items():
            found = states[group]
            assert (found.state, found.consumer, found.due_ms) == (
                seen.state, seen.consumer, seen.due_ms,
            )  # fmt: skip
            if seen.state in ("pending", "leased", "retrying"):
                assert found.attempts == seen.attempts
        told: dict[str | None, list[TraceEvent]] = {}
        for event in trace.events:
            told.setdefault(event.group, []).append(event._replace(to=None))
        assert [e.at_ms for e in trace.events] == sorted(e.at_ms for e in trace.events)
        self.check_events(told.pop(None, []), message.own)
        for group, seen in message.groups.items():
            self.check_events(told.pop(group, []), seen.events)
        assert not told
        if message.redriven_from is not None:
            assert ("redriven-from", message.redriven_from) in trace.links

    def check_events(self, told: Sequence[TraceEvent], happened: Sequence[TraceEvent]) -> None:
        assert list(told) == list(happened)

    def find_letters(self) -> None:
        """Every dead-lettered message says where its letter is; no two say the same."""
        for message in self.messages():
            expected = [
                group
                for group, seen in message.groups.items()
                for event in seen.events
                if became_letter(event)
            ]
            if not expected:
                continue
            trace = self.node.trace(str(message.id))
            gone = [event for event in trace.events if became_letter(event)]
            assert sorted(event.group or "" for event in gone) == sorted(expected)
            assert {e.to for e in gone} == {
                each.id for each in trace.links if each.relation == "dead-letter"
            }
            for event in gone:
                assert event.to is not None
                known = self.letters.setdefault(event.to, (message, event.group or "", []))
                assert known[:2] == (message, event.group)


def became_letter(event: TraceEvent) -> bool:
    return event.kind == "dead-lettered" or (event.kind, event.reason) == ("expired", "expired")


class SparseTraceAgainstModel(TraceAgainstModel):
    share = 0.01

    def check_events(self, told: Sequence[TraceEvent], happened: Sequence[TraceEvent]) -> None:
        missing = iter(happened)
        assert all(event in missing for event in told), "told what did not happen, or out of order"
        failed = next((n for n, event in enumerate(happened) if event.kind in FAILURES), None)
        if failed is not None:
            count = len(happened) - failed
            assert list(told[-count:]) == list(happened[failed:])


@pytest.mark.parametrize("machine", [TraceAgainstModel, SparseTraceAgainstModel])
@pytest.mark.parametrize("is_large", [False, True], ids=["held", "read twice"])
def test_a_trace_tells_what_happened(
    machine: type[TraceAgainstModel], is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_log, "SNAPSHOT_BYTES_MIN", 700)
    monkeypatch.setattr(state_log, "SNAPSHOT_FACTOR", 1)
    if is_large:
        # As if no piece of a state log were small enough to be held in memory.
        monkeypatch.setattr(carrying, "HELD_BYTES_MAX", 0)
        monkeypatch.setattr(carrying, "LISTED_MAX", 0)
    else:
        # Marks after every few events, so that hardly anything is read from the start, and
        # batches of traces that speak of few messages.
        monkeypatch.setattr(state_log, "MARK_BYTES", 150)
        monkeypatch.setattr(trace_topic, "BATCH_BYTES", 300)
        monkeypatch.setattr(carrying, "LISTED_MAX", 2)
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=40))
