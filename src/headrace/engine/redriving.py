"""Redriving: dead letters sent back to the group in which they failed.

    letter --- came back too often ------> stays (looping), unless forced
           --- its group is gone --------> stays (orphaned)
           --- its message is there -----> made ready again in its place (`revival`)
           --- else ---------------------> a copy is published for that group

Either way back is a move: an intent in the state log of the dead letters, what is done in
the topic, and the completion (`move`).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core import limits
from headrace.core.values import DeadLetter, RedriveResult
from headrace.engine import dead_letter
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.move import Moves
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.revival import Letter, choose_revivable, find_originals
from headrace.engine.runs import runs_of
from headrace.engine.topics import Topics

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
) -> RedriveResult:
    """Send dead letters of a topic back. A dry run says what would be done, in the same
    words."""
    total = RedriveResult(0, 0, 0, None)
    for partition, view, offsets in kept:
        going: list[Letter] = []
        looping = orphaned = 0
        for record in partition.read(runs_of(sorted(offsets))):
            letter = dead_letter.read_letter(partition.topic.name, partition.index, record)
            if letter.redrives >= limits.REDRIVES_MAX and not force:
                looping += 1
            elif letter.group and letter.group not in topics.catalog.groups:
                # Nobody would ever see it.
                orphaned += 1
            else:
                going.append((record, letter))
        in_place = _choose_in_place(topics, topic, going, now_ms)
        total = total.plus(
            RedriveResult(
                matched=len(going) + looping + orphaned,
                redriven=len(going),
                looping=looping,
                stopped=None,
                orphaned=orphaned,
                in_place=len(in_place),
                copied=len(going) - len(in_place),
            )
        )
        if not dry_run:
            for (index, is_in_place), chosen in _by_target(topic, going, in_place).items():
                target = topics.partition(topic, index)
                event = moves.intend(
                    partition, view, chosen, target, who="redrive", reason="redrive",
                    error=None, now_ms=now_ms, redrive=True, in_place=is_in_place,
                )  # fmt: skip
                end = partition.write(view, event, now_ms, wait=True)
                commit.state.append((partition, end))
                commit.moves.append(moves.begin(partition, view, event, end))
    return total


def _choose_in_place(
    topics: Topics, topic: Topic, letters: Sequence[Letter], now_ms: int
) -> set[int]:
    """The offsets of letters whose messages can be made ready where they are."""
    by_source: dict[int, list[Letter]] = {}
    for record, letter in letters:
        if letter.source.partition < topic.partitions:
            by_source.setdefault(letter.source.partition, []).append((record, letter))
    chosen: set[int] = set()
    for index, same in by_source.items():
        source = topics.partition(topic, index)
        chosen.update(choose_revivable(source, find_originals(source, same), now_ms))
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
