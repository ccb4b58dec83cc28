"""Following: before a state log is cut, what tracing keeps of it is carried over.

    state log          [snapshot, events ...][snapshot, events ...
                        carried, then cut     ^ may be cut below

    topic of traces    ... the events of chosen messages, synced before the cut

A message is chosen when it is sampled, or when it failed: then with everything that the
log still has of it, also from before it failed. Failures that lie further back are known
from the snapshot with which a piece of the log begins. Nothing is written on the way of
a lease or an ack: a state log that was cut before without a word now waits until it was
read once more.

It goes as compaction does: steps that can be made anywhere, and between them little that
belongs where the log does. The end is the same whatever crashes: what was carried and
not cut is carried again, and counts once by its position.

Rejected: following every append. Most of what is written is never asked for, and goes
with the next snapshot; read in one piece it costs a few microseconds an event.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

from headrace.core.errors import HeadraceError, SyncFailed
from headrace.engine.carrying import Carrying, Chosen
from headrace.engine.partition import Partition
from headrace.engine.retain import sync_steps
from headrace.engine.topics import Topics
from headrace.engine.trace_topic import Carried, CarriedBatch, key_of, make_trace_partition
from headrace.log.compaction import Step

Steps = Generator[Step, int | None, None]

# How long to leave it alone after it failed, on a full disk for example.
REST_MS = 30_000


class Follower:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        # Partitions whose state log waits to be cut, in the order in which they came.
        self.due: dict[Partition, None] = {}
        self.on_due: Callable[[], None] | None = None
        # With the reign in which its steps began.
        self._current: tuple[Partition, int, Steps] | None = None
        self._done: int | None = None
        self._rest_until_ms = 0

    def note(self, partition: Partition) -> None:
        """To be told of a partition whose state log may have to be carried."""
        if partition not in self.due:
            self.due[partition] = None
            if self.on_due is not None:
                self.on_due()

    def forget(self, partition: Partition) -> None:
        """It is not for us to carry: it was carried, it is gone, or another node leads it.
        If it is led here again, what was not carried is found in its state log."""
        self.due.pop(partition, None)

    def steps(self, partition: Partition, now_ms: int) -> Steps:
        """Carry and cut everything of this partition that may be cut. To be closed when
        the partition goes away."""
        state = partition.state
        while state is not None and state.cut_below is not None:
            first = state.log.segment_list[0]
            if first.next_offset > state.cut_below:
                break
            yield from self._carry_segment(partition, first.next_offset, now_ms)
            state.cut(first.next_offset)
        if state is not None:
            state.cut_below = None
        self.forget(partition)

    def _carry_segment(self, partition: Partition, end: int, now_ms: int) -> Steps:
        assert partition.state is not None
        start = partition.state.log.start_offset
        carrying = Carrying(partition, start, end)
        batch = CarriedBatch(key_of(partition.topic.id, partition.index))
        is_dirty = False
        with contextlib.closing(carrying):
            while (yield carrying.step) is not None:
                for each in carrying.drain():
                    self._add(batch, each, now_ms)
                    is_dirty = True
                    if batch.is_full:
                        batch.append_to(make_trace_partition(self._topics, now_ms), now_ms)
        if is_dirty:
            batch.append_to(make_trace_partition(self._topics, now_ms), now_ms)
            # The catalog first: without it nobody would know of the topic of traces.
            metadata = self._topics.metadata
            yield from sync_steps(metadata.log)
            metadata.on_synced()
            target = make_trace_partition(self._topics, now_ms)
            yield from sync_steps(target.log)
            target.on_synced(now_ms)

    def _add(self, batch: CarriedBatch, chosen: Chosen, now_ms: int) -> None:
        groups = self._topics.catalog.groups_by_id
        event = chosen.event
        number: int = getattr(event, "group", -1)
        name = groups[number].name if number in groups else ""
        at_ms: int = getattr(event, "at", now_ms)
        batch.add(at_ms, Carried(chosen.position, name, event), chosen.first, chosen.last)

    def on_clock_set(self, by_ms: int) -> None:
        self._rest_until_ms += by_ms

    # For who has no other place for it.

    def advance(self, now_ms: int, most_bytes: int) -> None:
        """One step, at once. SyncFailed is for the caller to judge; other failures are
        nobody's business but ours, and it is tried again later. A partition that is not led
        here any more is left to its leader."""
        if self._current is None:
            if not self.due or now_ms < self._rest_until_ms:
                return
            partition = next(iter(self.due))
            steps = self.steps(partition, now_ms)
            self._current, self._done = (partition, partition.reign, steps), None
        partition, reign, steps = self._current
        if partition.reign != reign:
            # What these steps have seen may have been cut. Led anew, it begins anew.
            self._drop()
            if not partition.is_leader:
                self.forget(partition)
            return
        try:
            self._done = steps.send(self._done)(most_bytes)
        except StopIteration:
            self._drop()
        except SyncFailed:
            self._drop()
            raise
        except (HeadraceError, OSError):
            self._drop()
            self._rest_until_ms = now_ms + REST_MS

    def _drop(self) -> None:
        if self._current is not None:
            self._current[2].close()
            self._current = None
