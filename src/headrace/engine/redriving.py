"""Redriving: dead letters sent back to the group in which they failed.

    letter --- came back too often ------> stays (looping), unless forced
           --- its group is gone --------> stays (orphaned)
           --- its message is there -----> made ready again in its place (`revival`)
           --- else ---------------------> a copy is published for that group

Either way back is a move: an intent in the state log of the dead letters, what is done in
the topic, and the completion (`move`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from functools import partial

from headrace.core import limits
from headrace.core.values import DeadLetter, RedriveResult
from headrace.engine import dead_letter
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.move import Moves
from headrace.engine.partition import Partition
from headrace.engine.piece import Piece
from headrace.engine.queue import QueueView
from headrace.engine.revival import Letter, Taken, choose_revivable, find_originals
from headrace.engine.runs import above_ascending, offsets_of, runs_of
from headrace.engine.topics import Topics
from headrace.engine.window import READY
from headrace.record import Record

# Dead letters that are still there: their partition, its keeper's view, their offsets.
Kept = tuple[Partition, QueueView, set[int]]


def redrive(
    topics: Topics,
    moves: Moves,
    topic: Topic,
    kept: Sequence[Kept],
    now_ms: int,
    commit: Commit,
    *,
    dry_run: bool,
    force: bool,
) -> Generator[Commit | None, None, RedriveResult]:
    """Send dead letters of a topic back, a piece at a time: the next one is read when the
    one before is where it belongs, unless nobody else waits for a turn. A dry run says what
    would be done, in the same words."""
    total = RedriveResult(0, 0, 0, None)
    taken: Taken = {}
    begin = partial(_begin, topics, moves, topic, commit=commit, now_ms=now_ms)
    for partition, view, offsets in kept:
        left, reign = runs_of(sorted(offsets)), partition.reign
        while left:
            if total.matched:
                yield None if dry_run else commit
            if partition.is_deleted:
                break
            partition.check_reign(reign)
            # Others may have redriven or purged some of them meanwhile.
            left = runs_of(offset for offset in offsets_of(left) if view.is_in(offset, READY))
            records, gone = Piece().read(partition, left)
            left = above_ascending(left, gone[-1]) if gone else []
            going, kinds = _sort_out(topics, partition, records, force=force)
            in_place = _choose_in_place(topics, topic, going, taken, now_ms)
            total = total.plus(
                RedriveResult(
                    matched=len(records),
                    redriven=len(going),
                    looping=kinds["looping"],
                    stopped=None,
                    orphaned=kinds["orphaned"],
                    in_place=len(in_place),
                    copied=len(going) - len(in_place),
                )
            )
            if not dry_run:
                begin(partition, view, going, in_place)
    return total


def _sort_out(
    topics: Topics, partition: Partition, records: Sequence[Record], *, force: bool
) -> tuple[list[Letter], Counter[str]]:
    """Those that go back, and how many stay, by why."""
    going: list[Letter] = []
    stays: Counter[str] = Counter()
    for record in records:
        letter = dead_letter.read_letter(partition.topic.name, partition.index, record)
        if letter.redrives >= limits.REDRIVES_MAX and not force:
            stays["looping"] += 1
        elif letter.group and letter.group not in topics.catalog.groups:
            # Nobody would ever see it.
            stays["orphaned"] += 1
        else:
            going.append((record, letter))
    return going, stays


def _begin(
    topics: Topics,
    moves: Moves,
    topic: Topic,
    partition: Partition,
    view: QueueView,
    letters: Sequence[Letter],
    in_place: set[int],
    *,
    commit: Commit,
    now_ms: int,
) -> None:
    for (index, is_in_place), chosen in _by_target(topic, letters, in_place).items():
        intents = moves.intend(
            partition, view, chosen, topics.partition(topic, index), who="redrive",
            reason="redrive", error=None, now_ms=now_ms, redrive=True, in_place=is_in_place,
        )  # fmt: skip
        end = partition.write_all([(view, each) for each in intents], now_ms, wait=True)
        commit.state.append((partition, end))
        commit.moves += [moves.begin(partition, view, each, end) for each in intents]


def _choose_in_place(
    topics: Topics, topic: Topic, letters: Sequence[Letter], taken: Taken, now_ms: int
) -> set[int]:
    """The offsets of letters whose messages can be made ready where they are."""
    by_source: dict[int, list[Letter]] = {}
    for record, letter in letters:
        if letter.source.partition < topic.partitions:
            by_source.setdefault(letter.source.partition, []).append((record, letter))
    chosen: set[int] = set()
    for index, same in by_source.items():
        source = topics.partition(topic, index)
        chosen.update(choose_revivable(source, find_originals(source, same), now_ms, taken))
    return chosen


def _by_target(
    topic: Topic, letters: Sequence[Letter], in_place: set[int]
) -> dict[tuple[int, bool], list[int]]:
    """Offsets of letters by the partition that they go to, and by the way."""
    targets: dict[tuple[int, bool], list[int]] = {}
    for record, letter in letters:
        target = (index_of_target(topic, letter), record.offset in in_place)
        targets.setdefault(target, []).append(record.offset)
    return targets


def index_of_target(topic: Topic, letter: DeadLetter) -> int:
    """A letter that was written by hand may name any partition."""
    return letter.source.partition % topic.partitions
