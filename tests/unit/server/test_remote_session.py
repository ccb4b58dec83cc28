"""A connection of a client of ours: what it may hold, and what its end gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.connected import Line, feed
from tests.unit.server.rich_shares import make_rich

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, LimitExceeded
from headrace.core.node_settings import NodeSettings
from headrace.core.values import Outgoing
from headrace.engine.broker import Broker
from headrace.engine.topics import Topics
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.door import Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
from headrace.wire.remote import codec

TOPIC, GROUP = "orders", "billing"


class Client:
    """Speaks over a transport that is a list of bytes."""

    def __init__(self, door: Door) -> None:
        self.transport = Line()
        self.connection = Connection(door)
        self.connection.connection_made(self.transport)
        self._names: dict[int, str] = {}

    def send(self, name: str, *arguments: Any) -> int:
        number = len(self._names) + 1
        self._names[number] = name
        request = codec.encode_request(name, arguments)
        feed(self.connection, codec.encode_request_frame(number, b"test", request))
        return number

    def answers(self) -> dict[int, Any]:
        """What has come so far, by the number of its request; errors as they are."""
        found: dict[int, Any] = {}
        for frame in self.transport.frames():
            number = codec.decode_answer_id(frame)
            try:
                found[number] = codec.decode_answer(self._names[number], frame)
            except HeadraceError as error:
                found[number] = error
        return found

    async def ask(self, name: str, *arguments: Any) -> Any:
        number = self.send(name, *arguments)
        while number not in self.answers():
            await asyncio.sleep(0)
        answer = self.answers()[number]
        if isinstance(answer, HeadraceError):
            raise answer
        return answer


class Node:
    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk = disk or MemoryDisk()
        clock, entropy = SystemClock(), SystemEntropy()
        self.broker = Broker(disk, entropy, clock.now_ms(), leases_stand=True)
        make_rich()
        self.service = Service(self.broker, disk, clock, entropy, node_id=7, cluster_id="cluster")
        self.door = Door(self.service, NodeSettings(), HANDLERS)

    async def client(self) -> Client:
        client = Client(self.door)
        await client.ask("create_topic", TOPIC, 2, None, True)
        await client.ask("open_queue", GROUP, [TOPIC], "worker", None)
        return client


def on_a_node(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        node = Node()
        try:
            async with asyncio.timeout(60):
                await scenario(node)
        finally:
            for connection in tuple(node.door.connections):
                connection.connection_lost(None)
            if node.door.tasks:
                await asyncio.wait(tuple(node.door.tasks))
            await node.service.close()
            node.broker.close()

    asyncio.run(play())


async def let_others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_node_says_who_it_is_and_what_time_it_has() -> None:
    async def scenario(node: Node) -> None:
        hello = await Client(node.door).ask("hello", False)
        assert (hello.cluster_id, hello.node_id) == ("cluster", 7)
        assert 0 <= node.service.clock.now_ms() - hello.now_ms < 60_000

    on_a_node(scenario)


def test_answers_do_not_wait_for_a_watch_that_came_before() -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        watch = client.send("watch", [TOPIC])
        await client.ask("topics", False)
        assert watch not in client.answers()
        await client.ask("publish", TOPIC, [Outgoing(b"one")])
        await let_others_run()
        assert client.answers()[watch].is_news

    on_a_node(scenario)


def test_an_idle_connection_is_one_that_only_watches() -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        client.send("watch", [TOPIC])
        await let_others_run()
        assert client.connection.is_idle

    on_a_node(scenario)


def test_more_calls_than_may_be_open_are_answered_after_a_pause() -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        client.send("hello", False)
        numbers = [client.send("topics", False) for _ in range(limits.REMOTE_OPEN_CALLS_MAX * 3)]
        assert not client.transport.is_reading_now
        while not set(numbers) <= client.answers().keys():
            await asyncio.sleep(0)
        await let_others_run()
        assert client.transport.is_reading_now
        assert client.connection.is_idle

    on_a_node(scenario)


def test_watches_are_limited_in_number_in_size_and_in_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REMOTE_WATCHES_MAX", 2)

    async def scenario(node: Node) -> None:
        client, other = await node.client(), await node.client()
        watches = [client.send("watch", [TOPIC]) for _ in range(2)]
        with pytest.raises(LimitExceeded, match="watches at most 2"):
            await client.ask("watch", [TOPIC])
        with pytest.raises(LimitExceeded, match="too many topics"):
            await other.ask("watch", ["x" * 200] * 1_000)
        monkeypatch.setattr(limits, "REMOTE_WATCHED_PARTITIONS_MAX", 5)
        with pytest.raises(LimitExceeded, match="too many partitions"):
            await other.ask("watch", [TOPIC])
        assert not set(watches) & client.answers().keys()
        # What one gives up another may have.
        client.connection.connection_lost(None)
        await let_others_run()
        granted = other.send("watch", [TOPIC])
        await let_others_run()
        assert granted not in other.answers()

    on_a_node(scenario)


def test_a_topic_that_is_named_twice_is_watched_and_leased_from_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two of the watch, and two of the lease.
    monkeypatch.setattr(limits, "REMOTE_WATCHED_PARTITIONS_MAX", 4)

    async def scenario(node: Node) -> None:
        client = await node.client()
        watch = client.send("watch", [TOPIC, TOPIC])
        first = client.send("lease", GROUP, [TOPIC, TOPIC], "worker", 10, None, 20_000, None)
        await let_others_run()
        assert not client.answers().keys() & {watch, first}
        await client.ask("publish", TOPIC, [Outgoing(b"%d" % number) for number in range(3)])
        again = await client.ask("lease", GROUP, [TOPIC] * 3, "worker", 10, None, 0, None)
        leased = [*client.answers()[first], *again]
        assert sorted(each.value for each in leased) == [b"0", b"1", b"2"]
        assert {each.attempt for each in leased} == {1}

    on_a_node(scenario)


def test_every_call_that_names_topics_may_name_so_many() -> None:
    names = [f"t{number}" for number in range(limits.TOPICS_PER_CALL_MAX + 1)]

    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.ask("join_stream", "readers", [TOPIC], "member", "earliest")
        for call in (
            ("watch", names),
            ("open_queue", "new", names, "worker", None),
            ("lease", GROUP, names, "worker", 1, None, 20_000, None),
            ("next_due_ms", GROUP, names),
            ("join_stream", "readers", names, "other", "earliest"),
            ("change_stream", "readers", "member", names),
            ("queue_statistics", GROUP, names),
            ("delayed_totals", names),
        ):
            with pytest.raises(LimitExceeded, match="1,001 topics in one call; at most 1,000"):
                await client.ask(*call)

    on_a_node(scenario)


def test_partitions_of_a_wait_are_counted_before_they_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        monkeypatch.setattr(limits, "REMOTE_WATCHED_PARTITIONS_MAX", 1)
        monkeypatch.setattr(Topics, "partitions", lambda *_: pytest.fail("they are listed"))
        for call in (
            ("watch", [TOPIC]),
            ("lease", GROUP, [TOPIC], "worker", 1, None, 20_000, None),
        ):
            with pytest.raises(LimitExceeded, match="too many partitions"):
                await client.ask(*call)
        monkeypatch.undo()

    on_a_node(scenario)


def test_a_connection_stands_for_so_many_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMOTE_OWNED_MAX", 2)

    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.ask("join_stream", "readers", [TOPIC], "member", "earliest")
        for call in (
            ("open_queue", GROUP, [TOPIC], "third", None),
            ("lease", GROUP, [TOPIC], "third", 1, None, 0, None),
            ("join_stream", "readers", [TOPIC], "third", "earliest"),
        ):
            with pytest.raises(LimitExceeded, match="at most 2 consumers"):
                await client.ask(*call)
        # Those that it has go on, and leaving makes room.
        assert await client.ask("lease", GROUP, [TOPIC], "worker", 1, None, 0, None) == []
        await client.ask("leave", GROUP, "worker")
        await client.ask("open_queue", GROUP, [TOPIC], "third", None)

    on_a_node(scenario)


def test_a_consumer_that_came_back_keeps_its_leases_when_its_old_connection_ends() -> None:
    async def scenario(node: Node) -> None:
        old = await node.client()
        await old.ask("publish", TOPIC, [Outgoing(b"one")])
        new = await node.client()
        [leased] = await new.ask("lease", GROUP, [TOPIC], "worker", 1, None, 0, None)
        old.connection.connection_lost(None)
        await let_others_run()
        assert await new.ask("ack", GROUP, [leased.receipt]) == [None]

    on_a_node(scenario)


def test_a_lease_that_waits_is_answered_in_its_turn_and_keeps_nobody_else_waiting() -> None:
    async def scenario(node: Node) -> None:
        client, other = await node.client(), await node.client()
        first = client.send("lease", GROUP, [TOPIC], "worker", 10, None, 20_000, 1)
        second = other.send("lease", GROUP, [TOPIC], "other", 10, None, 20_000, 2)
        await client.ask("topics", False)
        assert client.connection.is_idle and not other.answers().keys() & {second}
        await client.ask("publish", TOPIC, [Outgoing(b"one")])
        await let_others_run()
        [leased] = client.answers()[first]
        assert (leased.value, leased.nonce) == (b"one", 1)
        assert second not in other.answers()
        # It is behind the other now.
        third = client.send("lease", GROUP, [TOPIC], "worker", 10, None, 20_000, 3)
        await client.ask("publish", TOPIC, [Outgoing(b"two")])
        await let_others_run()
        assert [each.value for each in other.answers()[second]] == [b"two"]
        assert third not in client.answers()

    on_a_node(scenario)


@pytest.mark.parametrize("how", ["leave", "give_back", "close"])
def test_a_wait_that_nobody_wants_any_more_leases_nothing(how: str) -> None:
    async def scenario(node: Node) -> None:
        client, other = await node.client(), await node.client()
        waiting = client.send("lease", GROUP, [TOPIC], "worker", 10, None, 20_000, 1)
        await let_others_run()
        if how == "leave":
            await client.ask("leave", GROUP, "worker")
        elif how == "give_back":
            await client.ask("give_back", GROUP, "worker", [1])
        else:
            client.connection.connection_lost(None)
        await let_others_run()
        if how != "close":
            assert client.answers()[waiting] == []
        await other.ask("publish", TOPIC, [Outgoing(b"one")])
        [leased] = await other.ask("lease", GROUP, [TOPIC], "other", 10, None, 0, None)
        assert leased.attempt == 1

    on_a_node(scenario)


def test_what_a_client_leased_and_never_heard_of_goes_back_by_its_nonce() -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.ask("publish", TOPIC, [Outgoing(b"%d" % number) for number in range(5)])
        heard = await client.ask("lease", GROUP, [TOPIC], "worker", 2, None, 0, 1)
        await client.ask("lease", GROUP, [TOPIC], "worker", 2, None, 0, 2)
        await client.ask("give_back", GROUP, "worker", [2])
        again = await client.ask("lease", GROUP, [TOPIC], "worker", 10, None, 0, 3)
        assert sorted(each.value for each in again) == [b"2", b"3", b"4"]
        assert {each.attempt for each in again} == {1}
        assert await client.ask("ack", GROUP, [each.receipt for each in heard]) == [None, None]

    on_a_node(scenario)


@pytest.mark.parametrize("wait_ms", [-1, limits.REMOTE_WATCH_MS_MAX + 1])
def test_a_lease_waits_for_so_long_at_most(wait_ms: int) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        with pytest.raises(InvalidArgument, match="wait 0 to 30000 ms"):
            await client.ask("lease", GROUP, [TOPIC], "worker", 1, None, wait_ms, None)

    on_a_node(scenario)


def test_another_version_of_the_protocol_is_told_apart() -> None:
    async def scenario(node: Node) -> None:
        client = Client(node.door)
        frame = bytearray(codec.encode_request_frame(1, b"", codec.encode_request("groups", ())))
        frame[6:8] = b"\x00\x09"
        client._names[1] = "groups"
        feed(client.connection, bytes(frame))
        error = client.answers()[1]
        assert isinstance(error, InvalidArgument)
        assert "version 0" in str(error) and "not 9" in str(error)

    on_a_node(scenario)


def test_a_lease_behind_the_leave_of_its_consumer_gets_nothing_at_once() -> None:
    async def scenario(node: Node) -> None:
        client = await node.client()
        await client.ask("leave", GROUP, "worker")
        lease = (GROUP, [TOPIC], "worker", 10, None, limits.REMOTE_WATCH_MS_MAX, 7)
        assert await client.ask("lease", *lease) == []
        await client.ask("publish", TOPIC, [Outgoing(b"one")])
        # Also of what is ready: nobody would hear of it.
        assert await client.ask("lease", *lease) == []
        await client.ask("open_queue", GROUP, [TOPIC], "worker", None)
        assert [each.value for each in await client.ask("lease", *lease)] == [b"one"]

    on_a_node(scenario)
