"""History: what a partition's logs tell of some of its messages.

    topic of traces   . . x . . x .          what was carried over before a cut
    state log                 | x . x . x    what it still has

Both are read through files of their own, in pieces; what is in both counts once, by
its position in the state log. Between a snapshot's begin and end nothing happened: the
events in it have been written before.

Reading takes about as long as the messages' own lives did: the state log is read from the
mark at which they were not there yet until every group is done with them, and of the
topic of traces only the batches that speak of offsets like theirs.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.core import limits
from headrace.engine import state as events
from headrace.engine.partition import Partition
from headrace.engine.runs import pairs
from headrace.engine.state_log import TransactionDecided
from headrace.engine.state_reading import SegmentTwins, read_events
from headrace.engine.trace_topic import key_of, read_carried
from headrace.engine.window import CHUNK, CHUNK_BITS, STATE_MASK, is_done
from headrace.log.compaction import some

# What a message's own events are, and what is about many and may be about it.
Decided = events.HeldDecided | TransactionDecided
Story = events.MessageEvent | events.Cancelled | Decided | events.Cut | events.Opened


class Happened(NamedTuple):
    position: int
    # As it is named in the topic of traces; empty where the catalog knows it.
    group: str
    event: Story


class History:
    """Of messages of one partition, by offset, as of the moment it is made. `step` is
    to be called until it returns None."""

    def __init__(
        self, partition: Partition, carried: Partition | None, offsets: Sequence[int]
    ) -> None:
        self._key = key_of(partition.topic.id, partition.index)
        self._wanted = sorted(offsets)
        self._found: dict[int, dict[tuple[int, str], Happened]] = {o: {} for o in offsets}
        # What is about whole groups or about everything, by position.
        self._rest: dict[tuple[int, int], Happened] = {}
        # Messages that groups know of, and those of which they may have more to say.
        self._known = {
            (number, offset)
            for number, view in partition.views.items()
            for offset in offsets
            if offset < view.window.end
        }
        self._open = set(self._known)
        self._held: dict[int, set[tuple[int, int]]] = {}
        # Producers whose transactions decide about these messages.
        self._holders: set[int] = set()
        self._long: set[int] = set()
        state = partition.state
        self._turned_at = -1 if state is None else state.turned_at
        start = 0
        if state is not None:
            start = max(state.log.start_offset, state.marks.floor(self._wanted[0]))
        self._state = SegmentTwins(
            None if state is None else state.log, start, 0 if state is None else
            state.log.end_offset,
        )  # fmt: skip
        log = None if carried is None else carried.log
        self._carried = SegmentTwins(
            log, 0 if log is None else log.start_offset, 0 if carried is None else
            carried.high_watermark,
        )  # fmt: skip
        self._work = self._run()

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def of(self, offset: int) -> list[Happened]:
        """Everything that may be about this message, in order."""
        self._forget_oldest(offset)
        return sorted([*self._found[offset].values(), *self._rest.values()], key=_position_of)

    def is_long(self, offset: int) -> bool:
        """Whether so much happened to it that the beginning is not told."""
        return offset in self._long

    def close(self) -> None:
        self._state.close()
        self._carried.close()

    def _run(self) -> Iterator[int]:
        first, last = self._wanted[0], self._wanted[-1]
        for size, carried in read_carried(self._carried, self._key, first, last):
            for each in carried:
                self._add(each.position, each.group, each.event)
            yield size
        is_snapshot = False
        for size, placed in read_events(self._state):
            for position, event in placed:
                if isinstance(event, events.SnapshotPartition):
                    is_snapshot = True
                elif isinstance(event, events.SnapshotEnd):
                    is_snapshot = False
                elif is_snapshot:
                    self._look_at_snapshot(event)
                else:
                    self._add(position, "", event)
                    self._close(event)
            yield size
            if not self._open and placed and placed[-1].position >= self._turned_at:
                return

    # What need not be looked for any more.

    def _close(self, event: events.Event | TransactionDecided) -> None:
        match event:
            case events.Acked() | events.Expired() | events.MoveDone() | events.Purged():
                self._open -= self._named_in(event.group, event.runs)
            case events.Revived():
                self._open |= self._named_in(event.group, event.runs) & self._known
            case events.Opened():
                self._open |= {each for each in self._known if each[0] == event.group}
                self._open -= self._named_in(event.group, [0, event.start])
            case events.SnapshotGroup():
                self._open -= self._named_in(event.group, [0, event.start])
            case events.Cut():
                # Other messages took the places of those.
                self._open |= {each for each in self._known if each[1] >= event.end}
            case events.AckHeld():
                held = self._held.setdefault(event.producer, set())
                held |= self._named_in(event.group, event.runs)
            case events.HeldDecided() | TransactionDecided():
                decided = self._held.pop(event.producer, set())
                if event.commit:
                    self._open -= decided

    def _look_at_snapshot(self, event: events.Event | TransactionDecided) -> None:
        if not isinstance(event, events.SnapshotChunk):
            self._close(event)
            return
        start = event.number << CHUNK_BITS
        named = self._open & self._named_in(event.group, [start, start + CHUNK])
        if named:
            states = zlib.decompress(event.state)
            self._open -= {
                (group, offset)
                for group, offset in named
                if offset - start < len(states) and is_done(states[offset - start] & STATE_MASK)
            }

    def _named_in(self, group: int, runs: list[int]) -> set[tuple[int, int]]:
        return {(group, offset) for offset in self._wanted_in(runs)}

    def _wanted_in(self, runs: list[int]) -> Iterator[int]:
        wanted = self._wanted
        if not runs or runs[-1] <= wanted[0] or runs[0] > wanted[-1]:
            return
        for start, end in pairs(runs):
            yield from wanted[bisect_left(wanted, start) : bisect_left(wanted, end)]

    # What is told.

    def _add(self, position: int, group: str, event: events.Event | TransactionDecided) -> None:
        match event:
            case events.HeldDecided() | TransactionDecided() | events.Cut() | events.Opened():
                if not isinstance(event, Decided) or event.producer in self._holders:
                    number = event.group if isinstance(event, events.HeldDecided) else -1
                    self._rest.setdefault((position, number), Happened(position, group, event))
            case (
                events.Closed()
                | events.SnapshotPartition()
                | events.SnapshotGroup()
                | events.SnapshotChunk()
                | events.SnapshotKeys()
                | events.SnapshotRest()
                | events.SnapshotEnd()
            ):
                pass
            case _:
                self._add_to_messages(Happened(position, group, event), event.runs)

    def _add_to_messages(self, happened: Happened, runs: list[int]) -> None:
        for offset in self._wanted_in(runs):
            found = self._found[offset]
            # The one from the state log is as good, and has no name with it.
            found.setdefault((happened.position, ""), happened)
            if isinstance(happened.event, events.AckHeld):
                self._holders.add(happened.event.producer)
            if len(found) > 2 * limits.TRACE_EVENTS_MAX:
                self._forget_oldest(offset)

    def _forget_oldest(self, offset: int) -> None:
        found = self._found[offset]
        if len(found) > limits.TRACE_EVENTS_MAX:
            self._long.add(offset)
            for key in sorted(found)[: -limits.TRACE_EVENTS_MAX]:
                del found[key]


def _position_of(happened: Happened) -> int:
    return happened.position
