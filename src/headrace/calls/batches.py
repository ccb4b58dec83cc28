"""Record batches that a client made: appended as they are, after checks.

What is checked, `engine/sealed.py` says, for all who send batches. Those of transactions are
refused here: who decides them has to be told of them first, which Kafka's protocol does.

A producer that numbers its batches sends one again when it has no answer: what is
there already is known by its number and not stored twice. Several batches are one
call with one wait for the disk, and each has an answer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headrace.calls.served import Served
from headrace.core.errors import HeadraceError, SyncFailed
from headrace.core.system_errors import disk_error
from headrace.core.values import PlacedBatch, Published
from headrace.engine.commit import Commit
from headrace.engine.contents import Heavy
from headrace.engine.sealed import (
    OURS,
    Judge,
    Judged,
    Outcome,
    append,
    batch_of,
    learn,
    look_at,
)

_NOTHING: Final[Mapping[int, Outcome]] = MappingProxyType({})


class Unlooked(Exception):
    """Some of the batches hold much, and none was appended. What is in those (`look_at`)
    goes with the next call."""

    def __init__(self, heavy: Mapping[int, Heavy]) -> None:
        super().__init__()
        # By their places among the batches of the call.
        self.heavy = heavy


class BatchCalls(Served):
    def new_producer_id(self) -> int:
        """A number that no producer ever had."""
        with self._writing() as (now_ms, _):
            return self._broker.new_producer_id(now_ms)

    def publish_batch(self, topic: str, partition: int, batch: bytearray) -> Published:
        """The place of the batch's first record. The bytes are ours from now on:
        they are given their offsets in place."""
        [outcome] = self.publish_batches([PlacedBatch(topic, partition, batch)])
        if isinstance(outcome, HeadraceError):
            raise outcome
        return outcome

    def publish_batches(self, batches: Sequence[PlacedBatch]) -> list[Published | HeadraceError]:
        """As `publish_batch`, for several: for each its place, or why it was refused."""
        known: dict[int, Outcome] = {}
        while True:
            try:
                return self.append_batches(batches, known)
            except Unlooked as unlooked:
                heavy = unlooked.heavy
                # Its frames hold the batches.
                unlooked.__traceback__ = None
            learn(known, heavy, [look_at(each) for each in heavy.values()])

    def append_batches(
        self, batches: Sequence[PlacedBatch], known: Mapping[int, Outcome] = _NOTHING
    ) -> list[Published | HeadraceError]:
        """`publish_batches` for callers that keep nobody waiting: Unlooked instead of a look
        into what holds much. `known` is what is in such batches, by their places."""

        def append_all(now_ms: int, commit: Commit) -> list[Published | HeadraceError]:
            judge = Judge(self._broker.topics, OURS, now_ms)
            judged = [
                self._judge(judge, placed, known.get(place), now_ms)
                for place, placed in enumerate(batches)
            ]
            heavy = {place: each for place, each in enumerate(judged) if isinstance(each, Heavy)}
            if heavy:
                raise Unlooked(heavy)
            outcomes = [self._append(each, now_ms, commit) for each in judged]
            self._maintain(now_ms)
            return outcomes

        is_synced = any(self._is_synced(each.topic) for each in batches)
        outcomes = self._write(append_all, waits=is_synced)
        self._notify_published()
        return outcomes

    def _judge(
        self, judge: Judge, placed: PlacedBatch, looked: Outcome | None, now_ms: int
    ) -> Judged | Heavy | HeadraceError:
        topic, index, sent = placed
        try:
            found = self._topic_to_write(topic, now_ms)
            partition = self._broker.topics.partition(found, index)
            batch = sent if looked is None else batch_of(sent, looked)
            header = judge.header_of(partition, batch)
            assert batch is not None
            return judge.judge(partition, batch, header, looked)
        except HeadraceError as error:
            return self._refused(error)
        except OSError as error:
            # Of a topic that was to be made.
            return self._refused(disk_error(error))

    def _append(
        self, judged: Judged | Heavy | HeadraceError, now_ms: int, commit: Commit
    ) -> Published | HeadraceError:
        if isinstance(judged, HeadraceError):
            return judged
        assert isinstance(judged, Judged)
        partition = judged.partition
        try:
            taken = append(self._broker, judged, now_ms)
        except HeadraceError as error:
            return self._refused(error)
        appended = taken.appended
        commit.data.append((partition, appended.next_offset))
        if taken.records:
            commit.published.append((partition, taken.records, taken.size_bytes))
        return Published(partition.index, appended.first_offset, appended.duplicate)

    def _refused(self, error: HeadraceError) -> HeadraceError:
        if isinstance(error, SyncFailed):
            self._on_sync_failed(error)
        return error.without_frames()
