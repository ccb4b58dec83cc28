"""Waiting for messages of a queue group: one line for all who wait, by every protocol.

    arrive -- nobody waits for these partitions: look at once
         '--- others wait: behind them

    in line -- news, a due time, a changed catalog --> `WaitQueue` says whose turn it is
                                                       its own task looks

A look is told how many wait for the same messages, and takes at most its part: see
`server/wait_queue.py` for the order. A consumer that would not wait stands in the line
all the same, until those before it have looked, so that asking often is no way to pass
those who wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.core.name_lists import distinct_topics
from headrace.engine.partition import Partition
from headrace.server.wait_queue import Waiter, WaitQueue

if TYPE_CHECKING:
    from headrace.server.service import Service

Found = TypeVar("Found")
# Told how many wait for the same messages, the looking one included. None: whatever
# there is, this consumer cannot take it now.
Look = Callable[[int], Awaitable[list[Found] | None]]
# What is overdue wakes no sooner one that could not take it.
UNABLE_SECONDS = 0.1
# What messages come by: a partition, or a change that only one waiter has to see.
Source = Partition | object


class Sought:
    """The partitions that a consumer wants messages of. Those of a topic may change."""

    def __init__(self, service: Service, topics: Sequence[str] | None) -> None:
        self._service = service
        self._topics = None if topics is None else distinct_topics(topics)
        self._seen: list[tuple[bytes, int] | None] = []
        self.partitions: Sequence[Partition] = ()
        self.refresh()

    @property
    def is_missing(self) -> bool:
        """Whether there is a topic that does not exist."""
        return None in self._seen

    def refresh(self) -> bool:
        """Whether there are others now. Of most changes it is enough to see that they
        were about something else."""
        if self._topics is None:
            return False
        topics = self._service.broker.topics
        found = [topics.catalog.topics.get(name) for name in self._topics]
        seen = [None if topic is None else (topic.id, topic.partitions) for topic in found]
        if seen == self._seen:
            return False
        self._seen = seen
        self.partitions = [
            partition
            for topic in found
            if topic is not None
            for partition in topics.partitions(topic)
        ]
        return True


def count_partitions(service: Service, topics: Sequence[str]) -> int:
    """How many partitions these topics have together; no list of them is made."""
    known = service.broker.topics.catalog.topics
    return sum(known[name].partitions for name in topics if name in known)


class SoughtPartitions(Sought):
    """Partitions that are given, and stay."""

    def __init__(self, service: Service, partitions: Sequence[Partition]) -> None:
        super().__init__(service, None)
        self.partitions = partitions


class Stop:
    """Ends a wait early. Whoever waits with it looks once more, out of turn, and goes."""

    def __init__(self) -> None:
        self.is_set = False
        self._on_set: Callable[[], None] | None = None

    def set(self) -> None:
        self.is_set = True
        if self._on_set is not None:
            self._on_set()

    def on_set(self, heed: Callable[[], None] | None) -> None:
        self._on_set = heed


class _Place:
    """Where somebody stands, and the future by which it is told that it is its turn."""

    __slots__ = ("is_patient", "sought", "token", "turn", "waiter")

    def __init__(self, sought: Sought, turn: asyncio.Future[int], is_patient: bool) -> None:
        self.sought = sought
        self.is_patient = is_patient
        # What only this one waits for: its topics have changed.
        self.token = object()
        # How many contend for what there is; 0 tells it to stop waiting.
        self.turn = turn
        self.waiter: Waiter[Source]

    def sources(self) -> list[Source]:
        return [*self.sought.partitions, self.token]

    def tell(self, among: int) -> None:
        if not self.turn.done():
            self.turn.set_result(among)


class _Line:
    """Those who wait for messages of one group."""

    def __init__(self, service: Service, group: str) -> None:
        self.queue: WaitQueue[Source] = WaitQueue()
        self._service = service
        self._group = group
        self._places: dict[Waiter[Source], _Place] = {}
        self._wakes: dict[Partition, Callable[[], None]] = {}
        self._due_timer: asyncio.TimerHandle | None = None
        # Those who go as soon as there is nothing for them.
        self._impatient: set[_Place] = set()
        service.watch(self._on_changed)

    def join(self, place: _Place) -> None:
        # A topic that is not there is heard of at once, by looking.
        quiet = () if place.sought.is_missing else (place.token,)
        place.waiter = self.queue.join(place.sources(), quiet)
        self._places[place.waiter] = place
        if not place.is_patient:
            self._impatient.add(place)
        self._listen(place)

    def leave(self, place: _Place) -> None:
        self.queue.leave(place.waiter)
        del self._places[place.waiter]
        self._impatient.discard(place)
        for partition in place.sought.partitions:
            self._deafen(partition)
        self.advance()

    def end_turn(self, place: _Place, found: Sequence[object] | None) -> None:
        self.queue.end_turn("found" if found else "unable" if found is None else "nothing")
        if not found:
            # One that cannot take anything may not even have let time pass.
            self._arm(place.sought.partitions, UNABLE_SECONDS if found is None else 0.001)
        self.advance()

    def advance(self) -> None:
        """Tell whoever is next. It looks in its own task, and ends its turn there."""
        turn = self.queue.begin_turn()
        if turn is not None:
            self._places[turn.waiter].tell(turn.among)
        for place in self._impatient:
            if self.queue.is_settled(place.waiter):
                place.tell(0)

    def close(self) -> None:
        self._service.stop_watching(self._on_changed)
        if self._due_timer is not None:
            self._due_timer.cancel()

    # News.

    def _listen(self, place: _Place) -> None:
        for partition in place.sought.partitions:
            if partition not in self._wakes:
                wake = self._wakes[partition] = partial(self._on_news, partition)
                self._service.wait_on([partition], wake)

    def _deafen(self, partition: Partition) -> None:
        if partition in self._wakes and not self.queue.is_waited_for([partition]):
            self._service.stop_waiting([partition], self._wakes.pop(partition))

    def _on_news(self, partition: Partition) -> None:
        self.queue.on_news([partition])
        self.advance()

    def _on_changed(self) -> None:
        for place in tuple(self._places.values()):
            before = place.sought.partitions
            if place.sought.refresh():
                self.queue.change(place.waiter, place.sources())
                self._listen(place)
                for partition in before:
                    self._deafen(partition)
        # The group itself may be gone.
        self._on_due()

    def _arm(self, partitions: Sequence[Partition], overdue_seconds: float) -> None:
        """Look again when time alone may have made something ready; for what is overdue, after
        so many seconds."""
        service = self._service
        group = service.broker.topics.catalog.groups.get(self._group)
        if group is None:
            return
        sound = [each for each in partitions if each.stopped is None]
        due_ms = service.broker.groups.next_due_of(group, sound)
        if due_ms is None:
            return
        left = (due_ms - service.clock.now_ms()) / 1000
        at = service.loop.time() + (left if left > 0 else overdue_seconds)
        if self._due_timer is not None:
            if self._due_timer.when() <= at and not self._due_timer.cancelled():
                return
            self._due_timer.cancel()
        self._due_timer = service.loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._due_timer = None
        self._on_due()

    def _on_due(self) -> None:
        self.queue.on_news(tuple(self._wakes))
        self.advance()


class WaitLines:
    """The lines of all groups of a node."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lines: dict[str, _Line] = {}

    def is_waited_for(self, group: str, partitions: Iterable[Partition]) -> bool:
        """Whether somebody stands before one who comes now."""
        line = self._lines.get(group)
        return line is not None and line.queue.is_waited_for(partitions)

    def length(self, group: str) -> int:
        """How many stand in the line of a group."""
        line = self._lines.get(group)
        return 0 if line is None else len(line.queue)

    async def find(
        self,
        group: str,
        sought: Sought,
        look: Look[Found],
        seconds: float,
        stop: Stop | None = None,
    ) -> list[Found]:
        """The first messages that a look finds; none when the time is over before. When
        `stop` is set, what is ready then."""
        if not self.is_waited_for(group, sought.partitions):
            found = await look(1)
            if found or seconds <= 0:
                return found or []
        return await self.wait(group, sought, look, seconds, stop)

    async def wait(
        self,
        group: str,
        sought: Sought,
        look: Look[Found],
        seconds: float,
        stop: Stop | None = None,
    ) -> list[Found]:
        """As `find`, always behind those who wait: without a look if its turn does not
        come in time."""
        if stop is not None and stop.is_set:
            return await look(1) or []
        loop = self._service.loop
        deadline = loop.time() + seconds
        line = self._lines.get(group)
        if line is None:
            line = self._lines[group] = _Line(self._service, group)
        # Nobody was told of what changed while it looked.
        sought.refresh()
        place = _Place(sought, loop.create_future(), is_patient=seconds > 0)
        line.join(place)
        if stop is not None:
            stop.on_set(lambda: place.tell(0))
        try:
            return await self._take_turns(line, place, look, deadline, stop)
        finally:
            if stop is not None:
                stop.on_set(None)
            line.leave(place)
            if not len(line.queue):
                line.close()
                if self._lines.get(group) is line:
                    del self._lines[group]

    async def _take_turns(
        self, line: _Line, place: _Place, look: Look[Found], deadline: float, stop: Stop | None
    ) -> list[Found]:
        loop = self._service.loop
        while stop is None or not stop.is_set:
            line.advance()
            left = max(0.0, deadline - loop.time()) if place.is_patient else None
            among = await _turn(place.turn, left)
            if not among:
                # Told to go, which may be because `stop` is set.
                if stop is not None and stop.is_set:
                    break
                return []
            found = await look(among)
            # Its next turn may come at once.
            place.turn = loop.create_future()
            line.end_turn(place, found)
            if found:
                return found
        return await look(1) or []


async def _turn(turn: asyncio.Future[int], seconds: float | None) -> int:
    """How many contend; 0 when the time is over before it is our turn."""
    try:
        async with asyncio.timeout(seconds):
            return await turn
    except TimeoutError:
        return 0
