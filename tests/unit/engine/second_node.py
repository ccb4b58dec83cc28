"""A second node for tests: it takes the lead of partitions, writes to them and gives it back.

    ours    append . sync ... | resign            | lead: everything is read again
    theirs                    | cut, append, sync |

What a follower of theirs would do to our logs is done to them directly. Calls of ours go on
step by step meanwhile, and end as a door would answer them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
from tests.unit.engine.transaction_bench import TransactionBench

from headrace.core.errors import FencedLeader
from headrace.engine import state as events
from headrace.engine.catalog import CURSOR_TOPIC, TRANSACTION_TOPIC
from headrace.engine.commit import Commit
from headrace.engine.coordinator.transaction import first_transaction
from headrace.engine.cursor import Cursor
from headrace.engine.partition import Partition
from headrace.engine.state import encode_event
from headrace.engine.window import READY
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, build_values_batch

# What becomes of the lead while a call of ours is under way. The other node keeps it until
# the call has ended, or gives it back at once; and it has what we wrote and did not confirm,
# or cuts it off, or wrote something else in its place.
Change = Literal["gone", "back", "cut and back", "replaced and back"]
CHANGES: tuple[Change, ...] = ("gone", "back", "cut and back", "replaced and back")
ROUNDS_MAX = 20
# One part of a call: what it writes, and what it waits for.
Part = Callable[[Commit], object]


class Stage(TransactionBench):
    """Our node, and the other."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self._away: list[Partition] = []

    # The other node.

    def take(self, partition: Partition, change: Change) -> None:
        confirmed = partition.high_watermark
        state_confirmed = partition.state_high_watermark
        self.broker.leading.resign(partition)
        if change != "back":
            partition.truncate_to(confirmed, self.now_ms)
            if partition.state is not None:
                partition.state.log.truncate_to(state_confirmed)
        if change == "replaced and back":
            self.write_as_the_other(partition)
        self._away.append(partition)
        if change != "gone":
            self.give_back()

    def write_as_the_other(self, partition: Partition) -> None:
        epoch = partition.epoch + 1
        for _ in range(4):
            partition.log.append(build_batch([self._record_for(partition)]), epoch, self.now_ms)
        partition.log.sync_now()
        state, view = partition.state, next(iter(partition.views.values()), None)
        end = partition.high_watermark
        if state is not None and view is not None and view.is_in(end - 1, READY):
            for _ in range(4):
                # Theirs is the last message.
                acked = events.Acked(view.group_id, "bob", self.now_ms, [end - 1, end])
                state.log.append(
                    build_values_batch([encode_event(acked)], self.now_ms), epoch, self.now_ms
                )
            state.log.sync_now()

    def _record_for(self, partition: Partition) -> NewRecord:
        if partition.topic.name == CURSOR_TOPIC:
            key = msgspec.msgpack.encode(("others", self.topic_id, 0))
            return NewRecord(key, msgspec.msgpack.encode(Cursor(1, self.now_ms)), (), self.now_ms)
        if partition.topic.name == TRANSACTION_TOPIC:
            value = msgspec.msgpack.encode(first_transaction(9_999, 60_000, self.now_ms))
            return NewRecord(b"others", value, (), self.now_ms)
        return NewRecord(None, b"theirs", (), self.now_ms)

    def give_back(self) -> None:
        away, self._away = self._away, []
        for partition in away:
            epoch = max(partition.epoch, partition.log.epochs.latest) + 1
            self.broker.leading.lead(partition, epoch, self.now_ms)

    # Our calls.

    def steps(self, *parts: Part) -> Iterator[None]:
        """Yields wherever the lead may change; ends when the last part is answered as done, and
        raises what is answered instead."""
        for part in parts:
            commit = self.broker.commit()
            yield
            part(commit)
            commit.seal()
            for _ in range(ROUNDS_MAX):
                yield
                if commit.is_done():
                    break
                failure = commit.failure()
                if failure is not None:
                    raise failure
                due = self.broker.begin_sync(set(self.broker.topics))
                yield
                for _, ticket in due.tickets:
                    for directory in ticket.directories:
                        self.disk.sync_directory(directory)
                    for file in ticket.files:
                        file.sync()
                yield
                try:
                    self.broker.on_synced(due, self.now_ms)
                except FencedLeader as error:
                    raise AssertionError("the node would have ended") from error
            else:
                raise AssertionError("the call is never answered")

    def play(self, parts: list[Part], at: int, change: Callable[[], None]) -> tuple[bool, bool]:
        """Whether the call was answered as done when the lead changed at this step, and whether
        it was still under way then. Afterwards the node leads everything again."""
        was_under_way = False
        is_done = True
        try:
            for number, _ in enumerate(self.steps(*parts)):
                if number == at:
                    was_under_way = True
                    change()
        except FencedLeader as error:
            assert error.retriable
            is_done = False
        if not was_under_way:
            change()
        self.give_back()
        self.settle()
        return is_done, was_under_way


def named(stage: Stage, topic: str, index: int = 0) -> Partition:
    topics = stage.broker.topics
    return topics.partition(topics.named(topic), index)


def at_every_step(try_at: Callable[[int], bool], least: int) -> None:
    """Until the call is over before the step comes, which tells that there is none left."""
    at = 0
    while try_at(at):
        at += 1
    assert at >= least
