"""Moves: copying messages to another partition, once, whatever crashes.

    intent       state log of the source: which messages, which partition, its end
      | synced
    copy         log of the target, each record with its origin
      | synced
    completion   state log of the source: the messages are done

Dead-lettering and redriving are both moves. A recovery that finds an intent
without its completion looks in the target, from the noted end on, for the origins
before it copies the rest (`copies`).

Nothing bounds how many messages are given up at once, or their bytes. So an intent is of
some of them, many are written in one batch, and what is copied between two syncs is a
piece (`piece`), of a move that is large a part. Those that were intended together take
turns with others. The copy of a record is longer than the record, which may fill a batch
that was opened; so it is held to the limit of a batch, and not to that of a record.

A redrive in place copies nothing: between intent and completion stands the event that
revives the messages, in the state log of the target. What cannot be revived any more when
it comes to that is copied, by a move of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from headrace.core import limits
from headrace.core.errors import CorruptLog, DiskFull
from headrace.core.values import DeadLetter
from headrace.engine import dead_letter
from headrace.engine import state as events
from headrace.engine.catalog import Topic
from headrace.engine.copies import Copies, MoveKey, ascending
from headrace.engine.partition import Partition
from headrace.engine.piece import Piece
from headrace.engine.queue import QueueView
from headrace.engine.records import bytes_of
from headrace.engine.revival import Letter, choose_revivable, find_originals, revive
from headrace.engine.runs import Runs, above_ascending, count_of, offsets_of, runs_of, without
from headrace.engine.topics import Topics
from headrace.engine.window import ACKED, DEAD
from headrace.record import NewRecord, Record, build_batch, read_header

COPY_BYTES_MAX = 1024 * 1024
# From where to where moves go: the source, the target's topic and partition, and whether back.
Way = tuple[Partition, bytes, int, bool]


class Move:
    def __init__(
        self, source: Partition, view: QueueView, event: events.MoveIntended, intent_end: int
    ) -> None:
        self.source = source
        self.view = view
        self.event = event
        self.intent_end = intent_end
        # Messages that are to be copied or revived still.
        self.left: Runs = event.runs
        self.target: Partition | None = None
        self.copied_end: int | None = None
        # None of its copies lies below, in the target that was intended.
        self.copies_from = event.target_end
        # As `copied_end`, of the target's state log, for a redrive in place.
        self.revived_end = 0
        self.is_done = False
        # The disk is full, or another node leads the target; the intent lasts, and the copy
        # is tried again later.
        self.is_blocked = False
        # Another node leads the source: it finds the intent in the state log, and goes on.
        self.is_lost = False
        # After a restart the copies, or some of them, may be there already.
        self.is_resumed = False
        # Whether that is known: they are taken off `left`.
        self.is_looked_for = False

    @property
    def key(self) -> MoveKey:
        topic = self.source.topic
        return topic.id, self.source.index, self.view.group_id, self.event.move

    @property
    def lot(self) -> tuple[Partition, int]:
        """What it has in common with moves that were intended together with it."""
        return self.source, self.intent_end

    @property
    def way(self) -> Way:
        event = self.event
        return self.source, event.target_topic, event.target_partition, event.redrive

    @property
    def waits_for_search(self) -> bool:
        return self.is_resumed and not self.is_looked_for and not self.event.in_place

    def begin_again(self) -> None:
        """What was copied or revived may be there or not."""
        self.left = self.event.runs
        self.target = self.copied_end = None
        self.revived_end = 0
        self.is_resumed, self.is_looked_for = True, False


class Moves:
    def __init__(self, topics: Topics, dead_letters: Callable[[Topic, int], Topic]) -> None:
        """`dead_letters` gives a topic's dead letters, made if need be, with the
        group that keeps them."""
        self._topics = topics
        self._dead_letters = dead_letters
        self._active: list[Move] = []
        # By other moves, while those went on.
        self._begun: list[Move] = []
        # Those whose copies are to be looked for, by way; one way at a time is.
        self._sought: dict[Way, list[Move]] = {}
        self._search: tuple[Way, Copies] | None = None
        self._is_closing = False

    def __len__(self) -> int:
        return len(self._active)

    @property
    def is_much(self) -> bool:
        """Whether they take long, so that only those wait for them who asked for it."""
        left = limits.MOVE_MESSAGES_MAX
        for move in self._active:
            left -= count_of(move.left)
            if left < 0:
                return True
        return False

    def close(self) -> None:
        """The node stops: what would take long goes on at the next start, and nobody waits
        for it."""
        self._is_closing = self.is_much
        if self._is_closing:
            for move in self._active:
                move.is_blocked = True

    def pending(self) -> list[Move]:
        return list(self._active)

    def intend(
        self,
        source: Partition,
        view: QueueView,
        offsets: list[int],
        target: Partition,
        *,
        who: str,
        reason: str,
        error: str | None,
        now_ms: int,
        outcome: int = DEAD,
        redrive: bool = False,
        in_place: bool = False,
    ) -> list[events.MoveIntended]:
        """The events that begin moves, to be written in one batch; `begin` is to be
        called with each once it is."""
        ascending = sorted(offsets)
        intents = []
        for first in range(0, len(ascending), limits.MOVE_MESSAGES_MAX):
            intents.append(
                events.MoveIntended(
                    group=view.group_id,
                    move=view.next_move,
                    target_topic=target.topic.id,
                    target_partition=target.index,
                    target_end=target.log.end_offset,
                    who=who,
                    at=now_ms,
                    reason=reason,
                    error=error,
                    runs=runs_of(ascending[first : first + limits.MOVE_MESSAGES_MAX]),
                    redrive=redrive,
                    outcome=ACKED if redrive else outcome,
                    in_place=in_place,
                )
            )
            view.next_move += 1
        return intents

    def begin(
        self, source: Partition, view: QueueView, event: events.MoveIntended, end: int
    ) -> Move:
        move = Move(source, view, event, end)
        self._active.append(move)
        return move

    def resume(self, partitions: list[Partition]) -> None:
        """Take up what a crash left between intent and completion."""
        for partition in partitions:
            for view in partition.views.values():
                for event in view.moves.values():
                    move = self.begin(partition, view, event, 0)
                    move.is_resumed = True
                    if move.waits_for_search:
                        self._sought.setdefault(move.way, []).append(move)

    def advance(self, now_ms: int) -> set[Partition]:
        """Every move goes on, as far as one piece of work goes; the partitions that were
        written to and wait to be synced, or of which there is more to do."""
        dirty: set[Partition] = set()
        piece = Piece()
        self._look_for_copies(dirty, now_ms)
        last: Move | None = None
        is_full = False
        for move in self._active:
            try:
                if self._go_on(move, piece, dirty, now_ms):
                    last = move
            except DiskFull:
                is_full = True
        for move in self._active if is_full else ():
            # What was copied is known; the rest is tried again later, and nobody waits.
            move.is_blocked = True
        if self._begun or any(move.is_done for move in self._active):
            dirty |= {move.source for move in self._begun}
            self._active = [move for move in self._active if not move.is_done] + self._begun
            self._begun = []
        if last is not None and piece.is_spent:
            # Others come first in the next one: they may be few, and somebody waits.
            self._active.sort(key=lambda move: move.lot == last.lot)
        return dirty

    def _go_on(self, move: Move, piece: Piece, dirty: set[Partition], now_ms: int) -> bool:
        """Whether it took a part of the piece."""
        has_moved = False
        if move.source.state_high_watermark < move.intent_end:
            return has_moved
        if move.copied_end is None and not (
            piece.is_spent or move.waits_for_search or self._is_closing
        ):
            has_moved = self._copy(move, piece, dirty, now_ms)
        if (
            move.copied_end is not None
            and move.target is not None
            and move.target.high_watermark >= move.copied_end
            and move.target.state_high_watermark >= move.revived_end
        ):
            self._complete(move, now_ms)
        return has_moved

    def _look_for_copies(self, dirty: set[Partition], now_ms: int) -> None:
        """What a crash left is found before anything of these moves is copied."""
        left = limits.MOVE_BYTES_MAX
        while self._sought and left > 0 and not self._is_closing:
            self._search = self._search or self._begin_search(now_ms)
            if self._search is None:
                return
            way, search = self._search
            try:
                left -= search.step(left)
            except CorruptLog as error:
                search.target.stop(error)
                self._search = None
                continue
            if not search.is_over:
                dirty.add(search.target)
                continue
            self._search = None
            for move in self._sought.pop(way):
                move.left = without(move.left, ascending(search.found[move.key]))
                move.is_looked_for = True

    def _begin_search(self, now_ms: int) -> tuple[Way, Copies] | None:
        for way, moves in list(self._sought.items()):
            target = None
            with contextlib.suppress(DiskFull):
                target = self._target(moves[0], now_ms)
                if target is None:
                    # The topic is gone, and its copies with it.
                    for move in self._sought.pop(way):
                        move.is_looked_for = True
                    continue
            if target is None or not _can_take(target):
                for move in moves:
                    move.is_blocked = True
                continue
            is_same = target.topic.id == moves[0].event.target_topic
            start = min(move.copies_from for move in moves) if is_same else 0
            return way, Copies(target, start, [move.key for move in moves])
        return None

    def forget(self, topic_id: bytes) -> None:
        """A topic is gone, and so are moves from it. Moves to it go on: they
        find another target."""
        if self._search is not None and self._search[1].target.topic.id == topic_id:
            self._search = None
        for way in [way for way in self._sought if way[0].topic.id == topic_id]:
            del self._sought[way]
            if self._search is not None and self._search[0] == way:
                self._search = None
        for move in self._active:
            if move.source.topic.id == topic_id:
                move.is_done = True
        self._active = [move for move in self._active if not move.is_done]

    def on_resigned(self, partition: Partition) -> None:
        """Another node leads a partition from now on. Moves from there are that node's; of
        those to there nothing that was copied is known to last, so it is looked for."""
        # A search that is under way begins anew: what it knows may be about either.
        self._search = None
        for way in [way for way in self._sought if way[0] is partition]:
            del self._sought[way]
        place = partition.topic.id, partition.index
        for move in self._active:
            if (move.event.target_topic, move.event.target_partition) == place:
                # What is not confirmed may be cut off, and copies may take its place.
                move.copies_from = min(move.copies_from, partition.high_watermark)
            if move.source is partition:
                move.is_lost = True
            elif move.target is partition and not move.is_done:
                move.begin_again()
                if move.waits_for_search:
                    self._sought.setdefault(move.way, []).append(move)
        self._active = [move for move in self._active if not move.is_lost]

    def _copy(self, move: Move, piece: Piece, dirty: set[Partition], now_ms: int) -> bool:
        """Copy a part of it, or all; whether it went on."""
        event = move.event
        target = self._target(move, now_ms)
        move.target = target
        if target is None:
            # The topic that it should go back to is gone; it stays a dead letter.
            stays = events.Released(event.group, event.who, now_ms, event.runs)
            ended = events.MoveDone(event.group, event.move, now_ms, event.outcome, [])
            move.source.write_all([(move.view, stays), (move.view, ended)], now_ms, wait=False)
            move.is_done = True
            return True
        if not _can_take(target):
            # They wait, as do those who were to be given up since.
            move.is_blocked = True
            return False
        if event.in_place:
            return self._revive(move, target, piece, dirty, now_ms)
        rotten = move.source
        try:
            records, gone = piece.read(move.source, move.left)
            # The first append since it was opened looks at what is there.
            rotten = target
            for batch in _batches([self._rewrite(move, record, now_ms) for record in records]):
                _append_batch(target, batch, now_ms)
                dirty.add(target)
                # If the disk is full, what comes next is what was not copied.
                count = len(batch)
                move.left = above_ascending(move.left, records[count - 1].offset + 1)
                del records[:count]
        except CorruptLog as error:
            # That partition stops and says why; whoever waits did nothing wrong.
            rotten.stop(error)
            move.is_blocked = True
            return False
        dirty.add(target)
        move.is_blocked = False
        _go_over(move, gone)
        if not move.left:
            move.copied_end = target.log.end_offset
        return True

    def _revive(
        self, move: Move, target: Partition, piece: Piece, dirty: set[Partition], now_ms: int
    ) -> bool:
        event, rotten = move.event, move.source
        try:
            records, gone = piece.read(move.source, move.left)
            letters = [(each, self._letter(move, each)) for each in records]
            rotten = target
            originals = find_originals(target, letters)
        except CorruptLog as error:
            rotten.stop(error)
            move.is_blocked = True
            return False
        done: set[int] = set()
        if move.is_resumed:
            done = {place for place, each in originals.items() if each.was_revived}
        left = {place: each for place, each in originals.items() if place not in done}
        chosen = choose_revivable(target, left, now_ms)
        others = [each for each in letters if each[0].offset not in done | chosen.keys()]
        if others:
            self._divide(move, target, others, now_ms)
            return True
        if chosen:
            move.revived_end = revive(target, list(chosen.values()), event.who, now_ms)
        dirty.add(target)
        move.is_blocked = False
        _go_over(move, gone)
        if not move.left:
            move.copied_end = 0
        return True

    def _divide(self, move: Move, target: Partition, others: Sequence[Letter], now_ms: int) -> None:
        """Messages of `others` went away after the intent was written. This move ends with
        nothing, and more take up what it did and has to do, all in one batch. A letter whose
        group went away as well stays."""
        event, source, view = move.event, move.source, move.view
        groups = self._topics.catalog.groups
        copied = [record.offset for record, letter in others if letter.group in groups]
        away = {record.offset for record, _ in others}
        in_place = [offset for offset in offsets_of(event.runs) if offset not in away]
        intents = [
            intent
            for offsets in (in_place, copied)
            for intent in self.intend(
                source, view, offsets, target, who=event.who, reason=event.reason,
                error=None, now_ms=now_ms, redrive=True, in_place=offsets is in_place,
            )
        ]  # fmt: skip
        changes: list[tuple[QueueView, events.MessageEvent]] = [
            (view, events.Released(event.group, event.who, now_ms, event.runs)),
            (view, events.MoveDone(event.group, event.move, now_ms, event.outcome, [])),
            *((view, intent) for intent in intents),
        ]
        end = source.write_all(changes, now_ms, wait=True)
        finished = without(event.runs, move.left)
        for intent in intents:
            begun = Move(source, view, intent, end)
            if intent.in_place:
                # What it did is not repeated, and counts when it is on disk.
                begun.is_resumed = move.is_resumed
                begun.left = without(intent.runs, finished)
                begun.revived_end = move.revived_end
                begun.target = target
                if not begun.left:
                    begun.copied_end = 0
            self._begun.append(begun)
        move.is_done = True

    @staticmethod
    def _letter(move: Move, record: Record) -> DeadLetter:
        return dead_letter.read_letter(move.source.topic.name, move.source.index, record)

    def _target(self, move: Move, now_ms: int) -> Partition | None:
        event = move.event
        target = self._topics.find(event.target_topic, event.target_partition)
        if event.redrive or (target is not None and not move.is_resumed):
            return target
        # A crash may have left the intent and taken the topic that was made for
        # it, or the group that keeps its letters.
        topic = self._dead_letters(move.source.topic, now_ms)
        if target is not None:
            return target
        return self._topics.partition(topic, move.source.index % topic.partitions)

    def _rewrite(self, move: Move, record: Record, now_ms: int) -> NewRecord:
        event = move.event
        origin = dead_letter.origin_of(*move.key, record.offset)
        if event.redrive:
            return dead_letter.revive(record, self._letter(move, record), origin, now_ms)
        failure = move.view.failures.get(record.offset)
        error = event.error if event.error is not None or failure is None else failure.error
        story = dead_letter.Story(
            topic=move.source.topic.name,
            partition=move.source.index,
            group=move.view.name,
            reason=event.reason,
            error=error,
            attempts=move.view.window.attempts_at(record.offset),
            failed_at_ms=event.at,
            redrives=move.view.redrives.get(record.offset, 0),
        )
        return dead_letter.bury(record, story, origin)

    @staticmethod
    def _complete(move: Move, now_ms: int) -> None:
        event = move.event
        done = events.MoveDone(event.group, event.move, now_ms, event.outcome, event.runs)
        # Not waited for: if it is lost, a recovery finds the copies.
        move.source.write(move.view, done, now_ms, wait=False)
        move.is_done = True


def _can_take(target: Partition) -> bool:
    return target.stopped is None and not target.is_led_elsewhere


def _go_over(move: Move, gone: Runs) -> None:
    if gone:
        move.left = above_ascending(move.left, gone[-1])


def _batches(records: Sequence[NewRecord]) -> Iterator[list[NewRecord]]:
    """In order, as many in one as fit into about COPY_BYTES_MAX."""
    batch: list[NewRecord] = []
    size = 0
    for record in records:
        record_bytes = bytes_of(record)
        if batch and size + record_bytes > COPY_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record_bytes
    if batch:
        yield batch


def _append_batch(target: Partition, records: list[NewRecord], now_ms: int) -> None:
    built = build_batch(records, is_bounded=False)
    target.append(built, read_header(built), now_ms)
