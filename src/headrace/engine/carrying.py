"""Carrying: which events of a piece of a state log are kept, clipped to chosen messages.

    1. read     every event; what failed is noted, as runs of offsets
    2. choose   of each event the runs that are sampled or failed

Both in steps that touch nothing but files of their own. Where everything is sampled the
first is left out. The events of a usual piece are held in memory between the two; of a
larger one they are read twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from headrace.core.settings import TopicSettings
from headrace.engine import state as events
from headrace.engine.partition import Partition
from headrace.engine.runs import Runs, pairs, runs_of
from headrace.engine.sampling import Sample
from headrace.engine.state_log import TransactionDecided
from headrace.engine.state_reading import Placed, SegmentTwins, read_events
from headrace.log.compaction import some

# Of a piece of the log, held in memory about ten times as large.
HELD_BYTES_MAX = 8 * 1024 * 1024
# Chosen offsets are listed once for a piece, unless it spans too many.
LISTED_MAX = 1_000_000
# The attempts of a lease of messages that were never delivered before.
_FIRST = [1]


class RunSet:
    """Offsets, as runs in any order, asked about once all of them are there."""

    def __init__(self) -> None:
        self._added: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, runs: Runs) -> None:
        self._added += pairs(runs)

    def seal(self) -> None:
        for start, end in sorted(self._added):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)
        self._added = []

    def runs(self) -> Runs:
        return [each for run in zip(self._starts, self._ends, strict=True) for each in run]

    def __contains__(self, offset: int) -> bool:
        if not self._starts:
            return False
        number = bisect_right(self._starts, offset) - 1
        return number >= 0 and offset < self._ends[number]

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of its runs that lie between the two."""
        for number in range(bisect_right(self._ends, start), bisect_left(self._starts, end)):
            yield max(start, self._starts[number]), min(end, self._ends[number])


class Carrying:
    def __init__(self, partition: Partition, start: int, end: int) -> None:
        assert partition.state is not None
        settings: TopicSettings = partition.topic.settings
        self._sample = Sample(partition.topic.id, partition.index, settings.trace_sample)
        self._twins = SegmentTwins(partition.state.log, start, end)
        self._failed = RunSet()
        # Every offset that is spoken of lies between the two.
        self._first, self._last = 1 << 62, -1
        self._sampled: list[int] | None = None
        self._sampled_set: frozenset[int] = frozenset()
        # By producer, the groups in which a transaction decides about chosen messages.
        self._held: dict[int, set[int]] = {}
        self._is_snapshot = False
        self._chosen: list[Placed] = []
        self._work = self._run()

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def drain(self) -> list[Placed]:
        """What was chosen since it was last asked for."""
        chosen, self._chosen = self._chosen, []
        return chosen

    def close(self) -> None:
        self._twins.close()

    def _run(self) -> Iterator[int]:
        if self._sample.is_everything:
            for size, placed in read_events(self._twins):
                self._choose(placed)
                yield size
            return
        held: list[list[Placed]] | None = []
        held_bytes = 0
        for size, placed in read_events(self._twins):
            for each in placed:
                self._note(each.event)
            held_bytes += size
            if held is not None:
                held.append(placed)
                if held_bytes > HELD_BYTES_MAX:
                    held = None
            yield size
        self._failed.seal()
        self._list_sampled()
        self._is_snapshot = False
        if held is None:
            for size, placed in read_events(self._twins):
                self._choose(placed)
                yield size
            return
        for placed in held:
            self._choose(placed)
            # The second time costs about as much as the first.
            yield 128 * len(placed)

    # What failed.

    def _note(self, event: events.Event | TransactionDecided) -> None:
        kind = type(event)
        if kind is events.Granted or kind is events.Acked:
            # What nearly all of them are comes first.
            self._note_span(event.runs)  # type: ignore[union-attr]
            if isinstance(event, events.Granted) and event.attempts != _FIRST:
                # Delivered again: it must have failed before.
                for number, attempt in enumerate(event.attempts):
                    if attempt > 1:
                        self._failed.add(event.runs[2 * number : 2 * number + 2])
            return
        match event:
            case (
                events.Retried()
                | events.LeaseEnded()
                | events.Expired()
                | events.MoveIntended()
                | events.Purged()
                | events.Cancelled()
            ):
                self._note_span(event.runs)
                self._failed.add(event.runs)
            case events.SnapshotRest():
                self._failed.add(runs_of(sorted(offset for offset, _, _ in event.failures)))
                for move in event.moves:
                    self._failed.add(move.runs)
            case events.Released() | events.Extended() | events.AckHeld():
                self._note_span(event.runs)
            case _:
                pass

    def _note_span(self, runs: Runs) -> None:
        if runs:
            if runs[0] < self._first:
                self._first = runs[0]
            if runs[-1] > self._last:
                self._last = runs[-1]

    def _list_sampled(self) -> None:
        if self._last - self._first <= LISTED_MAX:
            self._sampled = list(self._sample.chosen_in(self._first, max(self._first, self._last)))
            self._sampled_set = frozenset(self._sampled)

    # What is kept.

    def _choose(self, placed: list[Placed]) -> None:
        is_listed = self._sampled is not None
        for position, event in placed:
            kind = type(event)
            if is_listed and (kind is events.Acked or kind is events.Granted):
                # Nearly all events are these, of one message that is not chosen.
                runs = event.runs  # type: ignore[union-attr]
                if len(runs) == 2 and runs[1] - runs[0] == 1:
                    offset = runs[0]
                    if offset not in self._sampled_set and offset not in self._failed:
                        continue
            match event:
                case events.SnapshotPartition():
                    self._is_snapshot = True
                case events.SnapshotEnd():
                    self._is_snapshot = False
                case events.SnapshotRest():
                    for held in event.held:
                        self._hold(held)
                case _ if self._is_snapshot:
                    # It was written before, and is there again.
                    pass
                case TransactionDecided():
                    for group in sorted(self._held.pop(event.producer, ())):
                        decided = events.HeldDecided(group, event.producer, event.at, event.commit)
                        self._chosen.append(Placed(position, decided))
                case events.Opened() | events.Cut():
                    self._chosen.append(Placed(position, event))
                case (
                    events.HeldDecided()
                    | events.Closed()
                    | events.MoveDone()
                    | events.SnapshotGroup()
                    | events.SnapshotChunk()
                    | events.SnapshotKeys()
                ):
                    pass
                case _:
                    self._choose_runs(position, event)

    def _choose_runs(self, position: int, event: events.MessageEvent | events.Cancelled) -> None:
        if isinstance(event, events.AckHeld):
            self._hold(event)
        if self._sample.is_everything:
            self._chosen.append(Placed(position, event))
            return
        runs = event.runs
        if len(runs) == 2 and runs[1] - runs[0] == 1:
            # One message alone: nearly always, where speed matters.
            if self._is_sampled(runs[0]) or runs[0] in self._failed:
                self._chosen.append(Placed(position, event))
            return
        if isinstance(event, events.Granted):
            kept: Runs = []
            attempts: list[int] = []
            for (start, end), attempt in zip(pairs(runs), event.attempts, strict=True):
                part = self._clip([start, end])
                kept += part
                attempts += [attempt] * (len(part) // 2)
            if kept:
                clipped = msgspec.structs.replace(event, runs=kept, attempts=attempts)
                self._chosen.append(Placed(position, clipped))
            return
        kept = self._clip(runs)
        if kept:
            self._chosen.append(Placed(position, msgspec.structs.replace(event, runs=kept)))

    def _hold(self, event: events.AckHeld) -> None:
        if self._sample.is_everything or self._clip(event.runs):
            self._held.setdefault(event.producer, set()).add(event.group)

    def _is_sampled(self, offset: int) -> bool:
        if self._sampled is None:
            return self._sample.has(offset)
        return offset in self._sampled_set

    def _clip(self, runs: Runs) -> Runs:
        """The part of the runs that is chosen."""
        chosen = RunSet()
        for start, end in pairs(runs):
            chosen.add([each for part in self._failed.within(start, end) for each in part])
            if self._sampled is None:
                sampled = list(self._sample.chosen_in(start, end))
            else:
                low = bisect_left(self._sampled, start)
                sampled = self._sampled[low : bisect_left(self._sampled, end)]
            chosen.add(runs_of(sampled))
        chosen.seal()
        return chosen.runs()
