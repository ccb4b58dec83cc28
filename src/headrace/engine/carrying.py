"""Carrying: which events of a piece of a state log are kept, clipped to chosen messages.

    1. read     what failed is noted, as runs of offsets; nearly every event is about one
                message that is not sampled, and is put aside as it is
    2. choose   of the others, and of what was put aside and failed after all, the runs
                that are sampled or failed

Both in steps that touch nothing but files of their own. Where everything is sampled there
is nothing to put aside. A large piece is not held in memory, but read twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import msgspec

from headrace.core.errors import CorruptLog
from headrace.core.settings import TopicSettings
from headrace.engine import state as events
from headrace.engine.partition import Partition
from headrace.engine.runs import Runs, count_of, offsets_of, pairs, runs_of
from headrace.engine.sampling import Sample
from headrace.engine.state_log import TransactionDecided
from headrace.engine.state_reading import Placed, Raw, SegmentTwins, read_raw
from headrace.log.compaction import some

T = TypeVar("T")

# Of a piece of the log, held in memory about twice as large.
HELD_BYTES_MAX = 16 * 1024 * 1024
# Offsets for which it is worked out at once which are sampled; so many are remembered.
BLOCK_BITS = 16
BLOCKS_MAX = 64
# What failed is looked up by offset, unless it is too much.
LISTED_MAX = 100_000
# The end of what an event is about that may be about any message.
NO_END = 1 << 62
# The attempts of a lease of messages that were never delivered before.
_FIRST = [1]


class Chosen(NamedTuple):
    """An event, its position, and the offsets that it speaks of."""

    position: int
    event: events.Event
    first: int
    last: int


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
        self._sampled: dict[int, frozenset[int]] = {}
        # By producer, the groups in which a transaction decides about chosen messages,
        # and between which offsets those lie.
        self._held: dict[int, dict[int, tuple[int, int]]] = {}
        self._is_snapshot = False
        self._chosen: list[Chosen] = []
        # What is put aside: offsets, positions and events as they were read. Thousands of
        # objects would keep the collector busy, bytes do not.
        self._aside: tuple[list[int], list[int], list[bytes]] = ([], [], [])
        self._others: list[Placed] = []
        self._work = self._run()

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def drain(self) -> list[Chosen]:
        """What was chosen since it was last asked for."""
        chosen, self._chosen = self._chosen, []
        return chosen

    def close(self) -> None:
        self._twins.close()

    def _run(self) -> Iterator[int]:
        is_held = sum(each.size_bytes for each in self._twins.segments) <= HELD_BYTES_MAX
        if self._sample.is_everything:
            yield from self._choose_all()
            return
        for size, raw in read_raw(self._twins):
            try:
                self._read(raw, is_held=is_held)
            except msgspec.DecodeError as error:
                raise CorruptLog(f"a state event cannot be read: {error}") from error
            yield size
        self._failed.seal()
        if not is_held:
            yield from self._choose_all()
            return
        for placed in sorted([*self._others, *self._failed_after_all()], key=_position_of):
            self._choose(placed)
        # At least once more, so that what was chosen is taken.
        yield 1

    def _choose_all(self) -> Iterator[int]:
        for size, raw in read_raw(self._twins):
            for position, content in raw:
                self._choose(Placed(position, event_of(content)))
            yield size

    # What was read.

    def _read(self, raw: list[Raw], *, is_held: bool) -> None:
        offsets, positions, contents = self._aside
        decode, acked, granted = events.decode, events.Acked, events.Granted
        block, sampled = -1, frozenset[int]()
        for position, content in raw:
            event = content if isinstance(content, TransactionDecided) else decode(content)
            kind = type(event)
            if kind is acked or (kind is granted and event.attempts == _FIRST):  # type: ignore[union-attr]
                # Nearly all events are these, of one message: here every call counts.
                runs: Runs = event.runs  # type: ignore[union-attr]
                if len(runs) == 2 and runs[1] - runs[0] == 1:
                    offset = runs[0]
                    if offset >> BLOCK_BITS != block:
                        block = offset >> BLOCK_BITS
                        sampled = self._sampled_in(block)
                    if offset not in sampled:
                        if is_held:
                            offsets.append(offset)
                            positions.append(position)
                            contents.append(content)  # type: ignore[arg-type]
                        continue
            self._note(event)
            if is_held:
                self._others.append(Placed(position, event))

    def _note(self, event: events.Event | TransactionDecided) -> None:
        match event:
            case events.Granted():
                for number, attempt in enumerate(event.attempts):
                    # Delivered again: it must have failed before.
                    if attempt > 1:
                        self._failed.add(event.runs[2 * number : 2 * number + 2])
            case (
                events.Retried()
                | events.LeaseEnded()
                | events.Expired()
                | events.MoveIntended()
                | events.Purged()
                | events.Cancelled()
                | events.Revived()
            ):
                self._failed.add(event.runs)
            case events.SnapshotRest():
                self._failed.add(runs_of(sorted(offset for offset, _, _ in event.failures)))
                for move in event.moves:
                    self._failed.add(move.runs)
            case _:
                pass

    def _sampled_in(self, block: int) -> frozenset[int]:
        found = self._sampled.get(block)
        if found is None:
            if len(self._sampled) >= BLOCKS_MAX:
                self._sampled.clear()
            start, end = block << BLOCK_BITS, block + 1 << BLOCK_BITS
            found = self._sampled[block] = frozenset(self._sample.chosen_in(start, end))
        return found

    def _failed_after_all(self) -> Iterator[Placed]:
        """What was put aside and is of a message that failed."""
        runs = self._failed.runs()
        if runs:
            is_listed = count_of(runs) <= LISTED_MAX
            failed = frozenset(offsets_of(runs)) if is_listed else self._failed
            for offset, position, content in zip(*self._aside, strict=True):
                if offset in failed:
                    yield Placed(position, events.decode(content))

    # What is kept.

    def _choose(self, placed: Placed) -> None:
        position, event = placed
        match event:
            case events.SnapshotPartition():
                self._is_snapshot = True
            case events.SnapshotEnd():
                self._is_snapshot = False
            case events.SnapshotRest():
                for held in event.held:
                    self._hold(held, held.runs)
            case _ if self._is_snapshot:
                # It was written before, and is there again.
                pass
            case TransactionDecided():
                for group, span in sorted(self._held.pop(event.producer, {}).items()):
                    decided = events.HeldDecided(group, event.producer, event.at, event.commit)
                    self._chosen.append(Chosen(position, decided, *span))
            case events.Opened():
                first = 0 if event.start else NO_END
                self._chosen.append(Chosen(position, event, first, event.start))
            case events.Cut():
                self._chosen.append(Chosen(position, event, event.end, NO_END))
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
        runs = event.runs
        if not self._sample.is_everything:
            if len(runs) == 2 and runs[1] - runs[0] == 1 and not self._is_chosen(runs[0]):
                return
            if isinstance(event, events.Granted):
                runs, attempts = self._clip_marked(runs, event.attempts)
                event = msgspec.structs.replace(event, runs=runs, attempts=attempts)
            elif isinstance(event, events.Revived):
                runs, marks = self._clip_marked(runs, event.marks)
                event = msgspec.structs.replace(event, runs=runs, marks=marks)
            else:
                runs = self._clip(runs)
                event = msgspec.structs.replace(event, runs=runs)
        if runs:
            self._chosen.append(Chosen(position, event, runs[0], runs[-1] - 1))
            if isinstance(event, events.AckHeld):
                self._hold(event, runs)

    def _is_chosen(self, offset: int) -> bool:
        return offset in self._sampled_in(offset >> BLOCK_BITS) or offset in self._failed

    def _hold(self, event: events.AckHeld, runs: Runs) -> None:
        runs = runs if self._sample.is_everything else self._clip(runs)
        if runs:
            spans = self._held.setdefault(event.producer, {})
            first, last = spans.get(event.group, (NO_END, 0))
            spans[event.group] = (min(first, runs[0]), max(last, runs[-1] - 1))

    def _clip_marked(self, runs: Runs, marks: list[T]) -> tuple[Runs, list[T]]:
        """The same of runs that have a mark each."""
        kept: Runs = []
        kept_marks: list[T] = []
        for (start, end), mark in zip(pairs(runs), marks, strict=True):
            part = self._clip([start, end])
            kept += part
            kept_marks += [mark] * (len(part) // 2)
        return kept, kept_marks

    def _clip(self, runs: Runs) -> Runs:
        """The part of the runs that is chosen."""
        chosen = RunSet()
        for start, end in pairs(runs):
            chosen.add([each for part in self._failed.within(start, end) for each in part])
            chosen.add(runs_of(self._sample.chosen_in(start, end)))
        chosen.seal()
        return chosen.runs()


def event_of(content: bytes | TransactionDecided) -> events.Event | TransactionDecided:
    return content if isinstance(content, TransactionDecided) else events.decode_event(content)


def _position_of(placed: Placed) -> int:
    return placed.position
