"""Maintenance: retention and compaction of every partition, while the node serves.

    loop      look . look . look .      . swap . look ...
    thread                        steps                     of one partition at a time

Most partitions have nothing to do, and to see that takes microseconds: the loop looks
at as many as fit into a slice, then lets others run. What takes long is done by a
thread, a step at a time, and after each step it rests as long as it worked: compaction
is never urgent, and the interpreter is shared.

    compacted topics     every 15 s, as often as Kafka's cleaner looks for work
    all of them          every second time

Rejected: a process of its own. It would not compete for the interpreter, but hold a
second copy of everything, and start anew for each of many small passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.core.errors import CorruptLog, SyncFailed
from headrace.core.event_log import log_event
from headrace.core.ports import Clock
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.engine.retain import Steps, on_rot

COMPACT_SECONDS = 15.0
# How long the loop looks at partitions before others get their turn.
SLICE_SECONDS = 0.001
STEP_BYTES = 256 * 1024


class Maintenance:
    def __init__(
        self,
        broker: Broker,
        clock: Clock,
        on_done: Callable[[], None],
        on_failure: Callable[[SyncFailed], None],
    ) -> None:
        """`on_done` is called after each round for all: what was written has to be synced."""
        self._broker = broker
        self._clock = clock
        self._on_done = on_done
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, "headrace-maintenance")
        self._logger = logging.getLogger("headrace")
        self._slice_end = 0.0
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(COMPACT_SECONDS, self._begin)
        self._is_for_all = False
        # State logs that wait to be cut are seen to at once, or they would grow.
        self._following: asyncio.Task[None] | None = None
        self._is_closed = False
        broker.follower.on_due = self._begin_following

    def _begin_following(self) -> None:
        if not self._is_closed and (self._following is None or self._following.done()):
            self._following = self._loop.create_task(self._follow())

    async def _follow(self) -> None:
        """Carry over what tracing keeps of state logs, until none waits."""
        follower = self._broker.follower
        failed: set[Partition] = set()
        while waiting := [each for each in follower.due if each not in failed]:
            partition = waiting[0]
            if not partition.is_leader:
                follower.forget(partition)
                continue
            if not await self._see_to(partition, follower.steps, "following failed"):
                failed.add(partition)
            # Those that failed are tried again when more of them waits to be cut.
        for partition in failed:
            follower.forget(partition)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        await self.round(compacted_only=not self._is_for_all)
        if self._is_for_all:
            self._on_done()
        self._is_for_all = not self._is_for_all
        self._timer = self._loop.call_later(COMPACT_SECONDS, self._begin)

    async def round(self, *, compacted_only: bool = False) -> None:
        """Everything that is due now."""
        self._slice_end = self._loop.time() + SLICE_SECONDS
        self._broker.space.keep()
        share_bytes = self._broker.replay_share()

        def make(partition: Partition, now_ms: int) -> Steps:
            return self._broker.maintenance(partition, share_bytes, now_ms)

        for partition in list(self._broker.topics):
            if self._loop.time() > self._slice_end:
                await self._let_others()
            if not partition.is_leader:
                continue
            if compacted_only and not partition.topic.settings.is_compacted:
                continue
            await self._see_to(partition, make, "maintenance failed", on_rot)
            self._tell_unreadable(partition)

    def _tell_unreadable(self, partition: Partition) -> None:
        for offset, _, why in partition.records.unreadable.take_untold():
            self._logger.warning(
                "the batch at offset %d of %s/%d cannot be read: %s; queues skip it, Kafka "
                "consumers get it as it is",
                offset, partition.topic.name, partition.index, why,
            )  # fmt: skip

    async def _see_to(
        self,
        partition: Partition,
        make: Callable[[Partition, int], Steps],
        failure: str,
        on_rot: Callable[[Partition, CorruptLog], None] = lambda *_: None,
    ) -> bool:
        """Whether it was done."""
        try:
            with contextlib.closing(make(partition, self._clock.now_ms())) as steps:
                await self._carry_out(partition, steps)
        except SyncFailed as error:
            self._on_failure(error)
            return False
        except CorruptLog as error:
            on_rot(partition, error)
            log_event(
                self._logger, logging.ERROR, failure, error=str(error), partition=partition.path
            )
            return False
        except Exception:
            # Nothing depends on it being done now; the next time it may work, and
            # the other partitions have their own.
            log_event(self._logger, logging.ERROR, failure, exc_info=True, partition=partition.path)
            return False
        return True

    async def _carry_out(self, partition: Partition, steps: Steps) -> None:
        done: int | None = None
        # Until its topic is deleted or another node leads. Led anew it begins anew: what these
        # steps have seen may have been cut.
        reign = partition.reign
        while partition.reign == reign:
            try:
                step = steps.send(done)
            except StopIteration:
                return
            began = self._loop.time()
            doing = self._loop.run_in_executor(self._pool, step, STEP_BYTES)
            try:
                done = await asyncio.shield(doing)
            except asyncio.CancelledError:
                # The step's files must not be closed under it.
                await asyncio.wait([doing])
                raise
            await asyncio.sleep(self._loop.time() - began)
            self._slice_end = self._loop.time() + SLICE_SECONDS

    async def _let_others(self) -> None:
        await asyncio.sleep(SLICE_SECONDS)
        self._slice_end = self._loop.time() + SLICE_SECONDS

    async def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()
        for task in (self._task, self._following):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._pool.shutdown()
