"""Acks that belong to transactions: held until a marker decides them.

    LEASED --held--> SETTLING --commit--> ACKED
                         '-----abort----> LEASED by nobody, until just now

From the moment it is held a message has no lease that could end, and nobody can settle
it in another way. After an abort its lease is over like any other that ran out: the
delivery counts, and the message is ready again or, out of attempts, on its way to the
dead letters. So what a consumer fails at in transaction after transaction ends there.

In the state log an ack that is held is a batch of its transaction, and the marker that
decides it is a control batch, as in the data log. Both survive a crash as they are.

Rejected: giving the delivery back after an abort. A message that makes every
transaction fail would come for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.engine import state as events
from headrace.engine.grant import count_attempts
from headrace.engine.latency import Since
from headrace.engine.runs import Runs, above, below, pairs
from headrace.engine.state_log import Waiting
from headrace.record.control import ControlKind, ControlMarker

if TYPE_CHECKING:
    from headrace.engine.partition import Partition
    from headrace.engine.queue import QueueView
    from headrace.engine.settling import Held


class HeldAcks:
    """Those of one group on one partition, by the producer whose transaction it is."""

    def __init__(self) -> None:
        self._by_producer: dict[int, list[events.AckHeld]] = {}
        # Of messages that bring a maximum of their own, while this process lives.
        self.max_attempts: dict[int, int] = {}
        # Runs of messages and since when they waited, by the number of the held ack;
        # while this process lives.
        self.since: dict[int, list[tuple[int, int, Since]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __iter__(self) -> Iterator[events.AckHeld]:
        for held in self._by_producer.values():
            yield from held

    def producers(self) -> KeysView[int]:
        return self._by_producer.keys()

    def hold(self, event: events.AckHeld) -> None:
        self._by_producer.setdefault(event.producer, []).append(event)

    def keep_since(self, number: int, held: Sequence[Held]) -> None:
        """For when it is decided: the leases of these will be over then."""
        self.since[number] = [
            (start, end, grant.since) for start, end, _, grant in held if grant.since is not None
        ]

    def take(self, producer_id: int) -> list[events.AckHeld]:
        """What a marker of this producer decides; it is not held any more."""
        return self._by_producer.pop(producer_id, [])

    def truncate_to(self, end: int) -> None:
        self.since.clear()
        for producer_id, held in list(self._by_producer.items()):
            kept = [
                msgspec.structs.replace(event, runs=below(event.runs, end))
                for event in held
                if event.runs[0] < end
            ]
            if kept:
                self._by_producer[producer_id] = kept
            else:
                del self._by_producer[producer_id]


def apply_decision(view: QueueView, event: events.HeldDecided) -> None:
    """What a marker means for the acks of one group."""
    for held in view.held_acks.take(event.producer):
        waited = view.held_acks.since.pop(held.grant, [])
        if event.commit:
            for start, end, since in waited:
                since.count(view.to_ack, [start, end], event.at)
            view.apply(events.Acked(view.group_id, held.who, event.at, held.runs))
            continue
        # What the log has lost at its start is nobody's any more.
        runs = above(held.runs, view.window.start)
        if not runs:
            continue
        split, attempts = count_attempts(view.window, runs, more=0)
        number = held.grant
        nobody = events.Granted(view.group_id, number, "", 0, event.at, event.at, split, attempts)
        view.lease(nobody)
        view.grants[number].max_attempts = view.held_acks.max_attempts
    if not view.held_acks:
        view.held_acks.max_attempts = {}


def hold_acks(
    partition: Partition,
    view: QueueView,
    runs: Runs,
    who: str,
    producer_id: int,
    producer_epoch: int,
    now_ms: int,
) -> int:
    """Write down that this transaction will ack these leased messages; returns the
    end of the state log behind it."""
    state = partition.open_state(now_ms)
    event = events.AckHeld(view.group_id, view.next_grant, who, now_ms, producer_id, runs)
    end = state.append_held(event, producer_epoch, partition.epoch, now_ms)
    view.next_grant += 1
    for start, stop in pairs(runs):
        for number in view.window.grants_in(start, stop):
            view.held_acks.max_attempts.update(view.grants[number].max_attempts)
    partition.apply_when_safe(end, view, event)
    return end


def decide_held(partition: Partition, marker: ControlMarker) -> int:
    """Write the marker where acks of its transaction are held; returns the end of
    the state log behind it, and 0 where there are none."""
    state = partition.state
    groups = None if state is None else state.holding.get(marker.producer_id)
    if state is None or not groups:
        return 0
    end = state.append_marker(marker, partition.epoch)
    del state.holding[marker.producer_id]
    is_commit = marker.kind is ControlKind.COMMIT
    for group_id in sorted(groups & partition.views.keys()):
        view = partition.views[group_id]
        decided = events.HeldDecided(group_id, marker.producer_id, marker.timestamp_ms, is_commit)
        if partition.is_awaited:
            state.waiting.append(Waiting(end, view, decided))
        else:
            view.apply(decided)
    return end
