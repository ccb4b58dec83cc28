"""Share consumers beside others: who gets the next message, and what a dead one leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from tests.unit.server.asking import run
from tests.unit.server.share_door import GROUP, TOPIC, Shared, ranges
from tests.unit.server.test_remote_session import Client

from headrace.server.aftermath import Aftermath
from headrace.server.grpc.consuming import Streams
from headrace.server.grpc.outgoing import Writer
from headrace.server.kafka.connection import Connection
from headrace.server.leasing import open_leasing
from headrace.server.loop_calls import Calls
from headrace.wire.grpc.generated import headrace_pb2 as pb


def partitions_of(heartbeat: Any) -> set[int] | None:
    assert heartbeat.error_code == 0, heartbeat
    if heartbeat.assignment is None:
        return None
    return {part for topic in heartbeat.assignment.topic_partitions for part in topic.partitions}


def test_others_have_the_partitions_of_a_dead_member_with_their_next_heartbeat() -> None:
    async def scenario() -> None:
        shared = Shared(partitions=2)
        dying, living = shared.connection, Connection(shared.door)
        first = await shared.beat("m1")
        shared.connection = living
        second = await shared.beat("m2")
        assert partitions_of(second) == {1}
        shared.connection = dying
        epoch = (await shared.beat("m1", first.member_epoch, None)).member_epoch
        dying.connection_lost(None)
        shared.connection = living
        heard = await shared.beat("m2", second.member_epoch, None)
        assert partitions_of(heard) == {0, 1}
        # It is a member for its session: one that comes back has its part again.
        back = partitions_of(await shared.beat("m1", epoch, None)) or set()
        rest = partitions_of(await shared.beat("m2", heard.member_epoch, None)) or set()
        assert len(back) == len(rest) == 1 and back | rest == {0, 1}

    run(scenario)


def test_others_have_the_partitions_of_a_member_that_missed_three_heartbeats() -> None:
    async def scenario() -> None:
        shared = Shared(partitions=2)
        stopped, living = shared.connection, Connection(shared.door)
        first = await shared.beat("m1")
        shared.connection = living
        heard = await shared.beat("m2")
        assert partitions_of(heard) == {1}
        for _ in range(3):
            await shared.skip(shared.door.settings.share_heartbeat_interval_ms / 1000)
            heard = await shared.beat("m2", heard.member_epoch, None)
        assert partitions_of(heard) == {0, 1}
        # It goes on where it was when it is heard of.
        shared.connection = stopped
        back = partitions_of(await shared.beat("m1", first.member_epoch, None)) or set()
        shared.connection = living
        rest = partitions_of(await shared.beat("m2", heard.member_epoch, None)) or set()
        assert len(back) == len(rest) == 1 and back | rest == {0, 1}

    run(scenario)


WAIT_MS = 30_000

# All who may stand in the line of a group: each kind as one that wants all there is and comes
# back as soon as it had some, and as one that wants a single message.


class Waiting:
    """A consumer that asks again each time it was served."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.served: asyncio.Future[int]

    async def open(self) -> None:
        """Become known to the group."""

    def ask(self) -> None:
        self.served = asyncio.ensure_future(self.take())

    async def take(self) -> int:
        """How many messages it was given, when it was given some."""
        raise NotImplementedError


class ByShareFetch(Waiting):
    def __init__(self, shared: Shared, name: str, count: int) -> None:
        super().__init__(name, count)
        self._shared = shared
        self._epoch = 1

    async def open(self) -> None:
        await self._shared.beat(self.name)
        await self._shared.fetch(0, self.name)

    def ask(self) -> None:
        fetch = self._shared.fetching(self._epoch, self.name, wait_ms=WAIT_MS, count=self.count)
        self._epoch += 1
        self.served = asyncio.ensure_future(self._count(fetch))

    async def _count(self, fetch: asyncio.Future[Any]) -> int:
        return sum(last - first + 1 for first, last, _ in ranges(await fetch))


class ByLeasing(Waiting):
    """As HTTP does, and a WebSocket, which stays."""

    def __init__(self, shared: Shared, name: str, count: int, *, stays: bool) -> None:
        super().__init__(name, count)
        self._calls = Calls(shared.service)
        self._aftermath = Aftermath()
        self._stays = stays

    async def open(self) -> None:
        self._leasing = await open_leasing(
            self._calls, self._aftermath, GROUP, [TOPIC], self.name, {}, None, stays=self._stays
        )

    async def take(self) -> int:
        return len(await self._leasing.find(self.count, WAIT_MS))


class BySession(Waiting):
    def __init__(self, shared: Shared, name: str, count: int) -> None:
        super().__init__(name, count)
        self._client = Client(shared.door)

    async def open(self) -> None:
        await self._client.ask("open_queue", GROUP, [TOPIC], self.name, None)

    async def take(self) -> int:
        asked = (GROUP, [TOPIC], self.name, self.count, None, WAIT_MS, None)
        return len(await self._client.ask("lease", *asked))


class ByGrpcStream(Waiting):
    """It has the credit that it asked for, and is fed without asking until that is spent."""

    def __init__(self, shared: Shared, name: str, count: int) -> None:
        super().__init__(name, count)
        self._calls = Calls(shared.service)
        self._streams = Streams(self._calls, Aftermath())
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._credit = 0

    async def open(self) -> None:
        opening = pb.ConsumeOpen(group=GROUP, topics=[TOPIC], consumer=self.name, credit=0)
        first = pb.ConsumeRequest(id=1, open=opening)
        self.stream = asyncio.ensure_future(
            self._streams.consume(first, self._sent(), cast(Writer, self), self._calls)
        )
        assert (await self._answers.get()).HasField("opened")

    async def _sent(self) -> AsyncIterator[Any]:
        while True:
            yield await self._requests.get()

    async def write(self, answer: bytes) -> None:
        self._answers.put_nowait(pb.ConsumeResponse.FromString(answer))

    async def take(self) -> int:
        if not self._credit:
            self._credit = self.count
            self._requests.put_nowait(pb.ConsumeRequest(credit=self.count))
        taken = len((await self._answers.get()).deliveries.messages)
        self._credit -= taken
        return taken


async def everybody(shared: Shared) -> list[Waiting]:
    consumers: list[Waiting] = []
    for speed, count in (("greedy", 1_000), ("slow", 1)):
        consumers += [
            ByShareFetch(shared, f"{speed}-kafka", count),
            ByLeasing(shared, f"{speed}-http", count, stays=False),
            BySession(shared, f"{speed}-sdk", count),
            ByLeasing(shared, f"{speed}-socket", count, stays=True),
            ByGrpcStream(shared, f"{speed}-grpc", count),
        ]
    for each in consumers:
        await each.open()
    return consumers


async def leave(consumers: list[Waiting], shared: Shared) -> None:
    waiting: list[asyncio.Future[Any]] = [each.served for each in consumers]
    waiting += [each.stream for each in consumers if isinstance(each, ByGrpcStream)]
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for connection in tuple(shared.door.connections):
        connection.connection_lost(None)
    for _ in range(20):
        await shared.skip(0)


def test_fetches_and_leases_stand_in_one_line_and_nobody_wins_for_ever() -> None:
    async def scenario() -> None:
        shared = Shared()
        consumers = await everybody(shared)
        for each in consumers:
            each.ask()
            await shared.skip(0)
        served = []
        for number in range(4 * len(consumers)):
            await shared.publish(b"%d" % number)
            await shared.skip(0)
            [taker] = [each for each in consumers if each.served.done()]
            assert taker.served.result() == 1
            served.append(taker.name)
            taker.ask()
            await shared.skip(0)
        assert served == [each.name for each in consumers] * 4
        await leave(consumers, shared)

    run(scenario)


def test_as_many_as_are_ready_are_shared_and_not_taken_by_the_first() -> None:
    async def scenario() -> None:
        shared = Shared()
        consumers = await everybody(shared)
        for each in consumers:
            each.ask()
            await shared.skip(0)
        left = 40
        await shared.publish(*[b"x"] * left)
        for _ in range(30):
            await shared.skip(0)
        taken = [each.served.result() for each in consumers]
        # Each has at most its part of what those before it have left.
        for number, each in enumerate(consumers):
            part = -(-left // (len(consumers) - number))
            assert taken[number] == min(part, each.count), (each.name, taken)
            left -= taken[number]
        await leave(consumers, shared)

    run(scenario)
