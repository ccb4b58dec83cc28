"""The calls on an event loop: carried out at once, answered when the disk is done.

    answer = await calls.run(Face.lease, "billing", ["orders"], "worker-1", 10)

    loop's thread   call ---- collected: commits, wakes, files to remove
                                  |
                              awaited: the commits' syncs
                                  |
                              done: wakes are called, files removed, the answer

A call runs in one piece on the loop's thread, so it needs no lock. It knows who asks, and
the disk has until its deadline: what was begun then goes on alone. Where it wants to
look again at what the disk must bring about first, it is carried out anew when that
is done: until then it has only looked.

`wait_for_some` waits for records, as the SDK's own waiting does: `Watch` listens
before anybody looks, so nothing that comes between the two is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from headrace.calls.face import Face
from headrace.core.errors import DeadlineExceeded, SyncFailed, UnknownTopic
from headrace.core.name_lists import distinct_topics
from headrace.core.request_context import BY_NODE, NEVER, REQUEST_SECONDS_MAX, RequestContext
from headrace.core.steps import Steps
from headrace.core.system_errors import disk_error
from headrace.core.values import Delivery, GroupMember, StreamRecord
from headrace.engine.broker import Deleted
from headrace.engine.commit import Commit
from headrace.engine.partition import Partition
from headrace.server.deletion import remove_files
from headrace.server.service import Service
from headrace.server.slices import Slices

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Found = TypeVar("Found")

_topic_of = attrgetter("topic")
_key_of = attrgetter("key")
_value_of = attrgetter("value")

# How often a call is carried out anew because more has come due meanwhile.
LOOKS_MAX = 3


class Message(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


def content_bytes(messages: Sequence[Message]) -> int:
    """Of keys and values together. It is done for every message that goes out, so there
    is no line of Python in it that runs for each."""
    contents = chain(map(_value_of, messages), map(_key_of, messages))
    return sum(map(len, filter(None, contents)))


class Calls:
    """What one client of a door may ask for, typed as the face is."""

    def __init__(
        self,
        service: Service,
        *,
        door: str = "sdk",
        auto_create: bool = True,
        context: RequestContext = BY_NODE,
    ) -> None:
        """`door` is where the calls come in, as metrics name it. Without `auto_create` the
        client declines topics that the node would make for it."""
        self.service = service
        self.context = context
        self._door = door
        self._face = _LoopFace(service, auto_create)

    def asked_by(self, context: RequestContext) -> Calls:
        """The calls for one connection, or for one request of it."""
        calls: Calls = object.__new__(Calls)
        calls.service, calls.context = self.service, context
        calls._door, calls._face = self._door, self._face
        return calls

    async def run(
        self,
        call: Callable[Concatenate[Face, Parameters], Answer],
        /,
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        """What the call returns or raises, once everything it did is safe; DeadlineExceeded
        when that takes too long."""
        context = self._timed()
        for looks_left in reversed(range(LOOKS_MAX + 1)):
            turn = self._face.begin(looks_left, context)
            try:
                answer = call(self._face, *args, **named)
            except _LookAgain:
                # A topic that was deleted meanwhile is not there when it looks again.
                with contextlib.suppress(UnknownTopic):
                    await self._finish(turn, context.deadline)
                continue
            except SyncFailed as error:
                self.service.on_sync_failed(error)
                raise
            except OSError as error:
                raise disk_error(error) from error
            await self._finish(turn, context.deadline)
            self._count(call, turn, answer)
            return answer
        raise AssertionError("a call without looks left does not ask for one")

    def run_nowait(
        self,
        call: Callable[Concatenate[Face, Parameters], Answer],
        /,
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        """Like `run`, for a call that has nothing to wait for: it only looks."""
        turn = self._face.begin(0, self._timed())
        answer = call(self._face, *args, **named)
        assert not turn.commits and not turn.deleted
        for wake in turn.wakes:
            wake()
        return answer

    async def run_in_slices(
        self,
        call: Callable[Concatenate[Face, Parameters], Steps[Answer]],
        /,
        *args: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Answer:
        """Like `run`, for a call in steps, of which there may be thousands: others have their
        turn between them. When our task is cancelled meanwhile, nothing is half done. Work
        that gets on has no deadline; each wait for the disk may last as long as any."""
        turn = self._face.begin(0, self._timed())
        slices = Slices()
        with closing(call(self._face, *args, **named)) as steps:
            while True:
                self._face.go_on(turn)
                try:
                    begun = next(steps)
                except StopIteration as done:
                    answer: Answer = done.value
                    break
                except SyncFailed as error:
                    self.service.on_sync_failed(error)
                    raise
                except OSError as error:
                    raise disk_error(error) from error
                if isinstance(begun, Commit):
                    safe = self.service.submit(begun, self._latest())
                    if safe is not None:
                        await safe
                await slices.rest()
        await self._finish(turn, self._latest())
        return answer

    def _timed(self) -> RequestContext:
        """The context of one call, which has a deadline in any case."""
        principal, deadline, request_id = context = self.context
        if deadline < NEVER:
            return context
        deadline = self.service.loop.time() + REQUEST_SECONDS_MAX
        return RequestContext(principal, deadline, request_id)

    def _latest(self) -> float:
        return self.service.loop.time() + REQUEST_SECONDS_MAX

    def _count(self, call: Callable[..., object], turn: _Turn, answer: object) -> None:
        """What went in and out with a call that is done."""
        counts, door = self.service.counts, self._door
        for commit in turn.commits:
            for partition, messages, size in commit.published:
                counts.traffic(partition.topic.name, door).add_in(messages, size)
        handed_out = _HANDED_OUT.get(call)
        if handed_out is not None:
            for topic, group in groupby(handed_out(answer), _topic_of):
                of_topic = list(group)
                counts.traffic(topic, door).add_out(len(of_topic), content_bytes(of_topic))

    async def _finish(self, turn: _Turn, deadline: float) -> None:
        """What is not safe by the deadline is finished without whoever asked for it."""
        service = self.service
        for commit in turn.commits:
            try:
                waiting = service.finish_soon(commit, deadline)
                if waiting is not None:
                    await waiting
            except DeadlineExceeded:
                service.finish_alone(self._finish(turn, NEVER))
                raise
        for wake in turn.wakes:
            wake()
        if turn.deleted:
            topics = service.broker.topics
            await service.loop.run_in_executor(None, remove_files, topics, turn.deleted)

    async def wait_for_some(
        self, attempt: Callable[[], Awaitable[list[Found]]], topics: Sequence[str], wait_ms: int
    ) -> list[Found]:
        """The first answer of `attempt` that is not empty; empty when the time is
        over before there is one. For streams: messages of a queue group are waited for
        in line, by `service.waiting`."""
        found = await attempt()
        if found or wait_ms <= 0:
            return found
        with Watch(self.service, topics) as watch:
            return await self.wait_watching(watch, attempt, wait_ms)

    async def wait_watching(
        self,
        watch: Watch,
        attempt: Callable[[], Awaitable[list[Found]]],
        wait_ms: int,
        is_over: Callable[[], bool] = lambda: False,
    ) -> list[Found]:
        """Like `wait_for_some`, with the caller's own Watch. It looks at least once, and
        returns what it finds once `is_over()`; set `watch.news` then."""
        loop = self.service.loop
        deadline = loop.time() + wait_ms / 1000
        while True:
            watch.news.clear()
            found = await attempt()
            left = deadline - loop.time()
            if found or left <= 0 or is_over():
                return found
            await watch.wait(left)


# What calls hand out: deliveries, and records with the offset behind them.
_HANDED_OUT: dict[Callable[..., object], Callable[[Any], Sequence[Delivery | StreamRecord]]] = {
    Face.lease: lambda deliveries: deliveries,
    Face.read: lambda found: found[0],
}


class Watch:
    """Listens for whatever may bring something to these topics, from the moment it
    is made until it is closed. Partitions that a topic gets meanwhile are listened to."""

    def __init__(self, service: Service, topics: Sequence[str]) -> None:
        self.news = asyncio.Event()
        self._service = service
        self._names = distinct_topics(topics)
        self._seen: list[tuple[bytes, int] | None] = []
        self._partitions: list[Partition] = []
        self._listen()
        service.watch(self._on_changed)

    def _on_changed(self) -> None:
        self._listen()
        self.news.set()

    def _listen(self) -> None:
        """To the partitions that there are now. Of most changes it is enough to see that
        they were about something else."""
        topics = self._service.broker.topics
        # A topic that is gone comes back as a change.
        found = [topics.catalog.topics.get(name) for name in self._names]
        seen = [None if topic is None else (topic.id, topic.partitions) for topic in found]
        if seen != self._seen:
            self._service.stop_waiting(self._partitions, self.news.set)
            self._seen = seen
            self._partitions = [
                partition
                for topic in found
                if topic is not None
                for partition in topics.partitions(topic)
            ]
            self._service.wait_on(self._partitions, self.news.set)

    async def wait(self, seconds: float) -> bool:
        """Whether there was news before the time was over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.news.wait()
        return self.news.is_set()

    def close(self) -> None:
        self._service.stop_waiting(self._partitions, self.news.set)
        self._service.stop_watching(self._on_changed)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _LookAgain(Exception):
    """The disk has to bring something about before this call can be answered."""


class _Turn:
    """What one call has begun."""

    __slots__ = ("commits", "context", "deleted", "looks_left", "wakes")

    def __init__(self, looks_left: int, context: RequestContext) -> None:
        self.looks_left = looks_left
        self.context = context
        self.commits: list[Commit] = []
        self.wakes: list[Callable[[], None]] = []
        self.deleted: list[Deleted] = []


class _LoopFace(Face):
    def __init__(self, service: Service, auto_create: bool) -> None:
        self.clock = service.clock
        self._broker = service.broker
        self._auto_create = auto_create
        self._service = service
        self._turn = _Turn(0, BY_NODE)

    def begin(self, looks_left: int, context: RequestContext) -> _Turn:
        self.context = context
        self._turn = _Turn(looks_left, context)
        return self._turn

    def go_on(self, turn: _Turn) -> None:
        self._turn, self.context = turn, turn.context

    @contextmanager
    def _reading(self) -> Iterator[int]:
        yield self.clock.now_ms()

    @contextmanager
    def _writing(self) -> Iterator[tuple[int, Commit]]:
        self._check_writable()
        commit = self._broker.commit()
        try:
            yield self.clock.now_ms(), commit
        except Exception:
            self._service.finish_later(commit)
            raise
        self._turn.commits.append(commit)

    def _write(self, work: Callable[[int, Commit], Answer], *, waits: bool = True) -> Answer:
        self._check_writable()
        commit = self._broker.commit()
        try:
            answer = work(self.clock.now_ms(), commit)
        except Exception:
            # What it has written before it failed is there, and nobody waits for it.
            self._service.finish_later(commit)
            raise
        self._turn.commits.append(commit)
        return answer

    def _check_writable(self) -> None:
        if self._service.commits.failed is not None:
            raise self._service.commits.failed.without_frames()

    @contextmanager
    def _looking(self, find: Callable[[], Sequence[Partition]]) -> Iterator[int]:
        if self._turn.looks_left and self._service.commits.failed is None:
            commit = self._broker.commit()
            self._broker.fates.tick(find(), self.clock.now_ms(), commit)
            commit.seal()
            if self._broker.moves or not commit.is_done():
                self._turn.commits.append(commit)
                raise _LookAgain
        yield self.clock.now_ms()

    def _catch_up(self) -> None:
        if self._turn.looks_left:
            raise _LookAgain

    def _remove(self, deleted: Deleted, commit: Commit) -> None:
        self._service.commits.on_deleted()
        self._turn.deleted.append(deleted)
        self._turn.wakes.append(lambda: self._service.wake_partitions(deleted.partitions))

    def _groups_at_doors(self) -> set[str]:
        return self._service.groups_at_doors()

    def _members_at_doors(self, group: str) -> list[GroupMember]:
        return self._service.members_at_doors(group)

    def _on_sync_failed(self, error: SyncFailed) -> None:
        self._service.on_sync_failed(error)

    def _notify_published(self) -> None:
        # Moving the high watermark wakes whoever waits for these partitions.
        return

    def _notify_freed(self, group: str) -> None:
        self._turn.wakes.append(lambda: self._wake_group(group))

    def _wake_group(self, name: str) -> None:
        group = self._broker.topics.catalog.groups.get(name)
        if group is not None:
            self._service.wake_partitions(
                [partition for partition, _ in self._broker.groups.views(group)]
            )

    def _notify_changed(self) -> None:
        self._turn.wakes.append(self._service.wake_watching)
