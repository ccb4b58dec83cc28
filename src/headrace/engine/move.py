"""Moves: copying messages to another partition, once, whatever crashes.

    intent       state log of the source: which messages, which partition, its end
      | synced
    copy         log of the target, each record with its origin
      | synced
    completion   state log of the source: the messages are done

Dead-lettering and redriving are both moves. A recovery that finds an intent
without its completion looks in the target, from the noted end on, for the origins
before it copies the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.errors import CorruptBatch, CorruptLog, DiskFull
from headrace.engine import dead_letter
from headrace.engine import state as events
from headrace.engine.catalog import Topic
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.records import iterate_batches
from headrace.engine.runs import offsets_of, runs_of
from headrace.engine.topics import Topics
from headrace.record import NewRecord, Record, build_batch, read_header, read_records

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
        outcome: int,
        redrive: bool = False,
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
            outcome=outcome,
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
        if any(move.is_done for move in self._active):
            self._active = [move for move in self._active if not move.is_done]
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
            move.source.write(move.view, stays, now_ms, wait=False)
            move.view.moves.pop(event.move, None)
            move.is_done = True
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
            rotten.stopped = error
            move.is_blocked = True
            return
        copies = [self._rewrite(move, record, now_ms) for record in records]
        self._append(target, copies, now_ms)
        move.is_blocked = False
        move.copied_end = target.log.end_offset

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
                    if name == dead_letter.ORIGIN and value in wanted:
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
            letter = dead_letter.read_letter(move.source.topic.name, move.source.index, record)
            return dead_letter.revive(record, letter, origin, now_ms)
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
