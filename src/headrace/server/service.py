"""What every door shares: the broker on the loop's thread, commits, and waking.

A long poll waits for partitions: it registers a wake call with each of them and is
called, on the loop, when their high watermark may have moved or a queue may have
something ready. It looks again and waits on or answers; nobody is told what changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.calls.timekeeping import BrokerClock
from headrace.core.errors import SyncFailed
from headrace.core.event_log import log_event
from headrace.core.overview_values import NodeFigures
from headrace.core.ports import Clock, Disk, Entropy, WouldWait
from headrace.core.request_context import NEVER
from headrace.core.system_errors import WriteFailed
from headrace.core.values import GroupMember
from headrace.engine.broker import Broker
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.server.duties import LiveDuties
from headrace.server.loop_commit import LoopCommit
from headrace.server.maintenance import Maintenance
from headrace.server.metrics.counting import Counts
from headrace.server.metrics.probe import LoopProbe
from headrace.server.requests import SLOW_MS, Requests
from headrace.server.waiting import WaitLines

if TYPE_CHECKING:
    from headrace.server.remote.session import Holdings

T = TypeVar("T")
Wake = Callable[[], None]

# How many cold reads wait for the disk at once.
READ_THREADS = 4


class Service:
    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        *,
        node_id: int,
        cluster_id: str,
        slow_request_ms: int = SLOW_MS,
        lease_grace_ms: int = 5_000,
        access_log: bool = False,
    ) -> None:
        self.broker = broker
        self.disk = disk
        self.entropy = entropy
        self.node_id = node_id
        self.cluster_id = cluster_id
        # Everything on the loop's thread asks this one.
        self.clock = BrokerClock(clock, broker, self._on_clock_set)
        self.loop = asyncio.get_running_loop()
        self.counts = Counts()
        # How long a client of ours whose connection broke keeps its leases.
        self.lease_grace_ms = lease_grace_ms
        self.requests = Requests(self.counts, slow_ms=slow_request_ms, access=access_log)
        # How many connections each door has open, by the door's name.
        self.connections: dict[str, Callable[[], int]] = {}
        # What is kept in memory for clients, by what it is for.
        self.held_bytes: dict[str, Callable[[], int]] = {}
        self.commits = LoopCommit(
            broker,
            disk,
            self.clock,
            self.loop,
            self.wake_partitions,
            self._on_failure,
            self.counts.syncs.add,
        )
        self._probe = LoopProbe(self.loop, self.counts.loop_lag, self._look_at_clock)
        self._readers = ThreadPoolExecutor(READ_THREADS, "headrace-read")
        # One: several would not be faster, and take more of the loop's time.
        self._codec = ThreadPoolExecutor(1, "headrace-codec")
        self.failed: asyncio.Future[SyncFailed] = self.loop.create_future()
        # Done when the node is about to end: those who wait are sent home.
        self.closing: asyncio.Future[None] = self.loop.create_future()
        self.logger = logging.getLogger("headrace")
        self._waiting: dict[Partition, set[Wake]] = {}
        # Those who also wait for topics and members to come and go.
        self._watching: set[Wake] = set()
        # Those who wait for messages of a group, whichever door they came by.
        self.waiting = WaitLines(self)
        # What the sessions of our own clients hold, whichever door they came through.
        self.holdings: Holdings | None = None
        # Members of a group that only a door knows of, and stream groups that have some.
        self.member_lists: list[Callable[[str], list[GroupMember]]] = []
        self.group_lists: list[Callable[[], list[str]]] = []
        # What Kafka's clients say of themselves, where the Kafka door is open.
        self.client_samples: Callable[[], Iterator[tuple[tuple[str, ...], float]]] | None = None
        # What the process around it says of itself, where there is one that serves.
        self.figures: Callable[[], NodeFigures] | None = None
        self.maintenance = Maintenance(broker, self.clock, self._on_maintained, self.on_sync_failed)
        # Whoever waits for a partition looks again, and is told that another node leads it.
        broker.leading.on_changed = self._on_lead_changed
        self.duties = LiveDuties(self)
        # What goes on though whoever asked for it was told that it takes too long.
        self._alone: set[asyncio.Task[None]] = set()

    def on_sync_failed(self, error: SyncFailed) -> None:
        """A sync failed on the way of a call. The next one might succeed, and what the first
        one lost would count as safe: so there is none."""
        if not isinstance(error, WriteFailed):
            self.commits.on_disk_failed(error)

    def _on_failure(self, error: SyncFailed) -> None:
        log_event(self.logger, logging.CRITICAL, "sync failed", error=str(error))
        if not self.failed.done():
            self.failed.set_result(error)

    def new_id(self) -> int:
        """A random number that fits a positive 32-bit integer."""
        return int.from_bytes(self.entropy.random_bytes(4), "big") & 0x7FFFFFFF

    def members_of(self, group: str) -> list[GroupMember]:
        """Everybody who reads as this group now."""
        broker = self.broker
        queue = broker.topics.catalog.groups.get(group)
        if queue is not None:
            members = broker.groups.members(queue, self.clock.now_ms())
            found = [GroupMember(each, "", "") for each in members]
        else:
            found = [
                GroupMember(each, "", "", tuple(broker.cursors.membership(group, each)[1]))
                for each in broker.cursors.members(group)
            ]
        known = self.members_at_doors(group)
        names = {each.id for each in known}
        return sorted([each for each in found if each.id not in names] + known)

    def members_at_doors(self, group: str) -> list[GroupMember]:
        """Those of them who came by another protocol than ours."""
        return [each for listed in self.member_lists for each in listed(group)]

    def groups_at_doors(self) -> set[str]:
        """Stream groups that have such members, also those that have committed nothing."""
        return {name for listed in self.group_lists for name in listed()}

    # Waking.

    def _on_lead_changed(self, partition: Partition) -> None:
        self.wake_partitions((partition,))
        # What waits for it there is told so: it may be that no disk is at work.
        self.commits.go_on_with(())

    def wait_on(self, partitions: Iterable[Partition], wake: Wake) -> None:
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(wake)

    def stop_waiting(self, partitions: Iterable[Partition], wake: Wake) -> None:
        for partition in partitions:
            wakes = self._waiting.get(partition)
            if wakes is not None:
                wakes.discard(wake)
                if not wakes:
                    del self._waiting[partition]

    def wake_partitions(self, partitions: Iterable[Partition]) -> None:
        if self._waiting:
            for partition in partitions:
                for wake in tuple(self._waiting.get(partition, ())):
                    wake()

    def watch(self, wake: Wake) -> None:
        self._watching.add(wake)

    def stop_watching(self, wake: Wake) -> None:
        self._watching.discard(wake)

    def wake_watching(self) -> None:
        for wake in tuple(self._watching):
            wake()

    def begin_closing(self) -> None:
        if not self.closing.done():
            self.closing.set_result(None)
            self.wake_watching()

    # Reading.

    def read_in_thread(self, cold: Sequence[WouldWait]) -> asyncio.Future[None]:
        """Done when all of it is in memory, or cannot be brought there; whoever
        reads it then learns why."""
        return self.loop.run_in_executor(self._readers, _warm, tuple(cold))

    def run_apart(self, work: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """What would hold the loop for long and needs nothing of it, as turning a large
        answer into bytes: the interpreter goes back and forth between the two."""
        return self.loop.run_in_executor(self._codec, work, *args)

    # Committing.

    def commit(self) -> Commit:
        return self.broker.commit()

    async def finish(self, commit: Commit, deadline: float = NEVER) -> None:
        """Until everything in the commit is safe, and what it began is done."""
        waiting = self.finish_soon(commit, deadline)
        if waiting is not None:
            await waiting

    def finish_soon(self, commit: Commit, deadline: float = NEVER) -> asyncio.Future[None] | None:
        """The same for whoever has something else to do; None when it is so already.
        DeadlineExceeded when it is not by then, as the loop counts."""
        moves = self.broker.moves
        if moves.is_much:
            # Time gave up many messages at once. Their letters are on their way, and nobody
            # waits for those but who asked for it.
            self.commits.go_on_with(move.source for move in moves.pending())
        elif moves:
            commit.wait_for_moves(moves.pending())
        return self.commits.submit(commit, deadline)

    def submit(self, commit: Commit, deadline: float = NEVER) -> asyncio.Future[None] | None:
        return self.commits.submit(commit, deadline)

    async def wait_for(self, commit: Commit) -> None:
        """Until everything in the commit is safe, though more may be added to it."""
        await self.commits.wait(commit)

    def finish_later(self, commit: Commit) -> None:
        """The same where nobody waits: it reaches the disk all the same."""
        waiting = self.finish_soon(commit)
        if waiting is not None:
            # A failure is heard of elsewhere.
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())

    def finish_alone(self, finishing: Coroutine[Any, Any, None]) -> None:
        """To the end of a call whose caller does not wait any more."""
        task = self.loop.create_task(finishing)
        self._alone.add(task)
        task.add_done_callback(self._on_finished_alone)

    def _on_finished_alone(self, task: asyncio.Task[None]) -> None:
        self._alone.discard(task)
        # A failure is heard of elsewhere.
        _ = task.cancelled() or task.exception()

    # Time.

    def _look_at_clock(self) -> None:
        """A clock that was set is noticed also while nobody asks anything."""
        self.clock.now_ms()

    def _on_clock_set(self, by_ms: int, now_ms: int) -> None:
        log_event(self.logger, logging.WARNING, "the system's clock was set", by_ms=by_ms)
        self.duties.on_clock_set(by_ms)
        # What was to be delivered at some moment may be due now.
        self.loop.call_soon(self.wake_partitions, list(self._waiting))

    # Housekeeping.

    def _on_maintained(self) -> None:
        # What retention has given up is among the moves, which are finished with it.
        self.duties.see_to_all()

    async def close(self) -> None:
        self._probe.close()
        self.duties.close()
        await self.maintenance.close()
        await self.commits.close()
        for task in tuple(self._alone):
            task.cancel()
        await asyncio.gather(*self._alone, return_exceptions=True)
        self._readers.shutdown(cancel_futures=True)
        self._codec.shutdown(cancel_futures=True)


def _warm(cold: Sequence[WouldWait]) -> None:
    for each in cold:
        with contextlib.suppress(OSError):
            each.warm()
