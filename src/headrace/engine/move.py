"""Moves: copying messages to another partition, once, whatever crashes.

    intent       state log of the source: which messages, which partition, its end
      | synced
    copy         log of the target, each record with its origin
      | synced
    completion   state log of the source: the messages are done

Dead-lettering and redriving are both moves. A recovery that finds an intent
without its completion looks in the target, from the noted end on, for the origins
before it copies the rest.

A redrive in place copies nothing: between intent and completion stands the event that
revives the messages, in the state log of the target. What cannot be revived any more when
it comes to that is copied, by a move of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.core.errors import CorruptBatch, CorruptLog, DiskFull
from headrace.core.values import DeadLetter
from headrace.engine import dead_letter
from headrace.engine import state as events
from headrace.engine.catalog import Topic
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.records import iterate_batches
from headrace.engine.revival import Letter, choose_revivable, find_originals, revive
from headrace.engine.runs import offsets_of, runs_of
from headrace.engine.topics import Topics
from headrace.engine.window import ACKED, DEAD
from headrace.record import NewRecord, Record, build_batch, read_header, read_records
from headrace.record.attribute_headers import ORIGIN

COPY_BYTES_MAX = 1024 * 1024


class Move:
    def __init__(
        self, source: Partition, view: QueueView, event: events.MoveIntended, intent_end: int
    ) -> None:
        self.source = source
        self.view = view
        self.event = event
        self.intent_end = intent_end
        self.target: Partition | None = None
        self.copied_end: int | None = None
        # As `copied_end`, of the target's state log, for a redrive in place.
        self.revived_end = 0
        self.is_done = False
        # The disk is full; the intent lasts, and the copy is tried again later.
        self.is_blocked = False
        # After a restart the copies, or some of them, may be there already.
        self.is_resumed = False


class Moves:
    def __init__(self, topics: Topics, dead_letters: Callable[[Topic, int], Topic]) -> None:
        """`dead_letters` gives a topic's dead letters, made if need be, with the
        group that keeps them."""
        self._topics = topics
        self._dead_letters = dead_letters
        self._active: list[Move] = []
        # By other moves, while those went on.
        self._begun: list[Move] = []

    def __len__(self) -> int:
        return len(self._active)

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
    ) -> events.MoveIntended:
        """The event that begins a move; `begin` is to be called once it is
        written."""
        event = events.MoveIntended(
            group=view.group_id,
            move=view.next_move,
            target_topic=target.topic.id,
            target_partition=target.index,
            target_end=target.log.end_offset,
            who=who,
            at=now_ms,
            reason=reason,
            error=error,
            runs=runs_of(sorted(offsets)),
            redrive=redrive,
            outcome=ACKED if redrive else outcome,
            in_place=in_place,
        )
        view.next_move += 1
        return event

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

    def advance(self, now_ms: int) -> set[Partition]:
        """Every move goes on as far as it can now; the partitions that were
        written to and wait to be synced."""
        dirty: set[Partition] = set()
        for move in self._active:
            try:
                self._go_on(move, dirty, now_ms)
            except DiskFull:
                # Part of the copy may be there; the next attempt looks first.
                move.is_resumed = True
                move.is_blocked = True
        if self._begun or any(move.is_done for move in self._active):
            dirty |= {move.source for move in self._begun}
            self._active = [move for move in self._active if not move.is_done] + self._begun
            self._begun = []
        return dirty

    def _go_on(self, move: Move, dirty: set[Partition], now_ms: int) -> None:
        if move.copied_end is None and move.source.state_end >= move.intent_end:
            self._copy(move, now_ms)
            if move.target is not None:
                dirty.add(move.target)
        if (
            move.copied_end is not None
            and move.target is not None
            and move.target.high_watermark >= move.copied_end
            and move.target.state_end >= move.revived_end
        ):
            self._complete(move, now_ms)

    def forget(self, topic_id: bytes) -> None:
        """A topic is gone, and so are moves from it. Moves to it go on: they
        find another target."""
        for move in self._active:
            if move.source.topic.id == topic_id:
                move.is_done = True
        self._active = [move for move in self._active if not move.is_done]

    def _copy(self, move: Move, now_ms: int) -> None:
        event = move.event
        target = self._target(move, now_ms)
        move.target = target
        if target is None:
            # The topic that it should go back to is gone; it stays a dead letter.
            stays = events.Released(event.group, event.who, now_ms, event.runs)
            ended = events.MoveDone(event.group, event.move, now_ms, event.outcome, [])
            move.source.write_all([(move.view, stays), (move.view, ended)], now_ms, wait=False)
            move.is_done = True
            return
        if event.in_place:
            self._revive(move, target, now_ms)
            return
        offsets = set(offsets_of(event.runs))
        rotten = target
        try:
            if move.is_resumed:
                offsets -= self._find_copies(move, target)
            rotten = move.source
            records = move.source.read(runs_of(sorted(offsets)))
        except CorruptLog as error:
            # That partition stops and says why; whoever waits did nothing wrong.
            rotten.stop(error)
            move.is_blocked = True
            return
        copies = [self._rewrite(move, record, now_ms) for record in records]
        if target.stopped is not None:
            # They wait, as do those who were to be given up since.
            move.is_blocked = True
            return
        self._append(target, copies, now_ms)
        move.is_blocked = False
        move.copied_end = target.log.end_offset

    def _revive(self, move: Move, target: Partition, now_ms: int) -> None:
        event, rotten = move.event, move.source
        try:
            letters = [(each, self._letter(move, each)) for each in move.source.read(event.runs)]
            rotten = target
            originals = find_originals(target, letters)
        except CorruptLog as error:
            rotten.stop(error)
            move.is_blocked = True
            return
        done: set[int] = set()
        if move.is_resumed:
            done = {place for place, each in originals.items() if each.was_revived}
        left = {place: each for place, each in originals.items() if place not in done}
        chosen = choose_revivable(target, left, now_ms)
        others = [each for each in letters if each[0].offset not in done | chosen.keys()]
        if others:
            self._divide(move, target, sorted(done), sorted(chosen), others, now_ms)
            return
        if chosen:
            move.revived_end = revive(target, list(chosen.values()), event.who, now_ms)
        move.is_blocked = False
        move.copied_end = 0

    def _divide(
        self,
        move: Move,
        target: Partition,
        done: list[int],
        in_place: list[int],
        others: Sequence[Letter],
        now_ms: int,
    ) -> None:
        """Messages of `others` went away after the intent was written. This move ends with
        what it did before a crash; two others take up the rest, all in one batch. A letter
        whose group went away as well stays."""
        event, source, view = move.event, move.source, move.view
        groups = self._topics.catalog.groups
        copied = [record.offset for record, letter in others if letter.group in groups]
        freed = sorted([*in_place, *(record.offset for record, _ in others)])
        intents = [
            self.intend(
                source, view, offsets, target, who=event.who, reason=event.reason,
                error=None, now_ms=now_ms, redrive=True, in_place=offsets is in_place,
            )
            for offsets in (in_place, copied)
            if offsets
        ]  # fmt: skip
        changes: list[tuple[QueueView, events.MessageEvent]] = [
            (view, events.Released(event.group, event.who, now_ms, runs_of(freed))),
            (view, events.MoveDone(event.group, event.move, now_ms, event.outcome, runs_of(done))),
            *((view, intent) for intent in intents),
        ]
        end = source.write_all(changes, now_ms, wait=True)
        for intent in intents:
            begun = Move(source, view, intent, end)
            begun.is_resumed = move.is_resumed and intent.in_place
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

    def _find_copies(self, move: Move, target: Partition) -> set[int]:
        event = move.event
        wanted = {self._origin(move, offset): offset for offset in offsets_of(event.runs)}
        start = event.target_end if target.topic.id == event.target_topic else 0
        start = max(start, target.log.start_offset)
        found: set[int] = set()
        for data, position in iterate_batches(target.log, start, target.log.end_offset):
            header = read_header(data, position)
            if header.is_control:
                continue
            for record in read_records(data[position : position + header.size_bytes], header):
                for name, value in record.headers:
                    if name == ORIGIN and value in wanted:
                        found.add(wanted[value])
        return found

    def _origin(self, move: Move, offset: int) -> bytes:
        source = move.source
        return dead_letter.origin_of(
            source.topic.id, source.index, move.view.group_id, move.event.move, offset
        )

    def _rewrite(self, move: Move, record: Record, now_ms: int) -> NewRecord:
        event = move.event
        origin = self._origin(move, record.offset)
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
    def _append(target: Partition, records: list[NewRecord], now_ms: int) -> None:
        batch: list[NewRecord] = []
        size = 0
        for record in records:
            record_bytes = len(record.value or b"") + len(record.key or b"")
            if batch and size + record_bytes > COPY_BYTES_MAX:
                _append_batch(target, batch, now_ms)
                batch, size = [], 0
            batch.append(record)
            size += record_bytes
        if batch:
            _append_batch(target, batch, now_ms)

    @staticmethod
    def _complete(move: Move, now_ms: int) -> None:
        event = move.event
        done = events.MoveDone(event.group, event.move, now_ms, event.outcome, event.runs)
        # Not waited for: if it is lost, a recovery finds the copies.
        move.source.write(move.view, done, now_ms, wait=False)
        move.is_done = True


def _append_batch(target: Partition, records: list[NewRecord], now_ms: int) -> None:
    built = build_batch(records)
    try:
        header = read_header(built)
    except CorruptBatch as error:  # A record that grew over the limit by its story.
        raise AssertionError(str(error)) from error
    target.append(built, header, now_ms)
