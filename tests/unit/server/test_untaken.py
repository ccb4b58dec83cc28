"""What clients do not take of their answers is bounded in sum, and who takes is not cut."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core import limits
from headrace.core.node_settings import NodeSettings
from headrace.server.grpc import outgoing
from headrace.server.grpc.hanging_up import hang_up
from headrace.server.grpc.outgoing import DEAF_SECONDS, LARGE_BYTES, Outgoing
from headrace.server.http.arriving import Budget
from headrace.server.http.protocol import Guard, Noting
from headrace.server.metrics.counting import Counts
from headrace.server.service import Service
from headrace.server.stalls import DEAF_SECONDS as SWEEP_DEAF_SECONDS
from headrace.server.stalls import PROGRESS_BYTES_MIN, Untaken, Watch


class Peer:
    """A connection with answers that are not taken."""

    def __init__(self, name: str, untaken_bytes: int) -> None:
        self.name = name
        self.untaken_bytes = untaken_bytes
        self.taken_bytes = 0
        self.answer_watch = Watch()

    def take(self, count: int = PROGRESS_BYTES_MIN) -> None:
        self.taken_bytes += count


class Door:
    def __init__(self) -> None:
        self.now = 0.0
        self.cut: list[str] = []
        self.untaken: Untaken[Peer] = Untaken(100_000, self._look, self._cut)

    def _look(self, peer: Peer) -> None:
        peer.answer_watch.is_stalled(self.now, float("inf"), peer.taken_bytes, waits=True)

    def _cut(self, peer: Peer) -> None:
        self.cut.append(peer.name)


def test_who_has_taken_nothing_for_longest_is_cut_until_the_sum_is_allowed() -> None:
    door = Door()
    peers = [Peer(name, 40_000) for name in "abcd"]
    for peer in peers[:2]:
        door.untaken.note(peer)
    assert not door.untaken.is_too_much
    for peer in peers[2:]:
        door.now += 1
        door.untaken.note(peer)
    assert door.untaken.is_too_much
    door.now += 1
    peers[0].take()
    door.untaken.bound()
    assert door.cut == ["b", "c"]
    assert not door.untaken.is_too_much


def test_between_sweeps_only_those_are_cut_who_were_deaf_for_a_while() -> None:
    door = Door()
    old, reading, new = (Peer(name, 60_000) for name in ("old", "reading", "new"))
    door.untaken.note(old)
    door.untaken.note(reading)
    door.now = 5
    door.untaken.note(new)
    reading.take()
    door.untaken.bound(latest=4)
    assert door.cut == ["old"]
    # Too much still, but these two have done nothing wrong yet.
    assert door.untaken.is_too_much
    door.untaken.bound(latest=4)
    assert door.cut == ["old"]
    door.untaken.bound()
    assert len(door.cut) == 2


def test_what_was_taken_or_is_gone_counts_no_more() -> None:
    door = Door()
    first, second = Peer("first", 90_000), Peer("second", 90_000)
    door.untaken.note(first)
    first.untaken_bytes = 0
    door.untaken.note(first)
    door.untaken.note(second)
    assert not door.untaken.is_too_much
    door.untaken.note(Peer("third", 20_000))
    door.untaken.forget(second)
    door.untaken.forget(second)
    assert not door.untaken.is_too_much
    # As of now, not as of when it was noted.
    gone = Peer("gone", 90_000)
    door.untaken.note(gone)
    gone.untaken_bytes = 10
    door.untaken.bound()
    assert door.cut == []


# HTTP, where it is noted when an answer does not go out at once.


class Transport:
    def __init__(self) -> None:
        self.held_bytes = self.unsent = 60_000
        self.written_bytes = 100_000
        self.is_aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_aborted = True


class Http(Noting):
    door = "http"

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.transport = Transport()
        self.answer_watch = Watch()


class Loop:
    """One whose time is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def test_a_client_of_http_that_reads_nothing_is_cut_before_the_next_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNTAKEN_BYTES_MAX", 100_000)
    loop = Loop()
    service = cast(Service, SimpleNamespace(loop=loop, counts=Counts()))
    guard = Guard(service, NodeSettings(), Budget())
    deaf, reading, new = (Http(guard) for _ in range(3))
    deaf.pause_writing()
    reading.pause_writing()
    loop.turn()
    assert not deaf.transport.is_aborted
    loop.now += 2 * SWEEP_DEAF_SECONDS
    reading.transport.unsent -= PROGRESS_BYTES_MIN
    new.pause_writing()
    # In the middle of a write none is cut.
    assert not deaf.transport.is_aborted
    loop.turn()
    assert [each.transport.is_aborted for each in (deaf, reading, new)] == [True, False, False]
    assert +service.counts.cuts == {("http", "memory"): 1}
    # What was taken counts no more.
    reading.transport.held_bytes = 0
    reading.resume_writing()
    assert not guard.untaken.is_too_much


# gRPC, which says only when an answer was taken whole.


class Context:
    """A call of a client of its own."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.may_take = asyncio.Event()
        self.when_done: list[Any] = []

    def peer(self) -> str:
        return self._peer

    async def write(self, answer: bytes) -> None:
        if len(answer) >= LARGE_BYTES:
            await self.may_take.wait()

    def add_done_callback(self, callback: Any) -> None:
        self.when_done.append(callback)


@pytest.fixture
def hung_up(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Those that were, with room for three answers, each of which is there twice."""
    monkeypatch.setattr(limits, "UNTAKEN_BYTES_MAX", 6 * LARGE_BYTES)
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(outgoing, "hang_up", lambda peers, _port: found.extend(peers))
    return found


def outgoing_here() -> Outgoing:
    loop = asyncio.get_running_loop()
    return Outgoing(cast(Service, SimpleNamespace(loop=loop, counts=Counts())))


def test_who_waits_with_a_large_answer_for_longest_is_hung_up_on_when_it_is_too_much(
    hung_up: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        door = outgoing_here()
        peers = [
            "ipv4:10.0.0.1:1",
            "ipv6:%5B::1%5D:2",
            "ipv6:[::ffff:10.0.0.3]:3",
            "ipv4:10.0.0.4:4",
        ]
        contexts = [Context(peer) for peer in peers]
        began = asyncio.get_running_loop().time()
        writes = []
        for context in contexts:
            writer = door.of(context)
            await writer.write(b"small")
            writes.append(asyncio.create_task(writer.write(bytes(LARGE_BYTES))))
            await asyncio.sleep(0)
        # It is looked at again when the first of them could have taken it.
        while not hung_up:
            await asyncio.sleep(0)
        assert asyncio.get_running_loop().time() - began >= DEAF_SECONDS
        assert hung_up == [("10.0.0.1", 1)]
        for context in contexts:
            context.may_take.set()
        await asyncio.gather(*writes)
        # These were taken, so as many others find room.
        for context in contexts[:3]:
            context.may_take.clear()
        others = [asyncio.create_task(door.of(each).write(bytes(LARGE_BYTES))) for each in contexts]
        await asyncio.wait(others[3:])
        assert len(hung_up) == 1
        for context in contexts:
            context.may_take.set()
        await asyncio.gather(*others)

    asyncio.run(play())


class Deaf(Context):
    async def write(self, answer: bytes) -> None:
        await self.may_take.wait()


def test_answers_that_are_not_counted_are_no_more_than_those_that_are() -> None:
    assert NodeSettings().connections_max * 2 * LARGE_BYTES <= limits.UNTAKEN_BYTES_MAX


def test_many_answers_of_some_kilobytes_are_too_much_as_well(
    hung_up: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNTAKEN_BYTES_MAX", 100_000)
    monkeypatch.setattr(outgoing, "DEAF_SECONDS", 0)

    async def play() -> None:
        door = outgoing_here()
        contexts = [Deaf(f"ipv4:10.0.0.1:{number}") for number in range(12)]
        for context in contexts[:6]:
            door.of(context).note_last(bytes(5_000))
        writes = [asyncio.create_task(door.of(each).write(bytes(5_000))) for each in contexts[6:]]
        while not hung_up:
            await asyncio.sleep(0)
        # The two that have waited for longest.
        while len(hung_up) < 2:
            await asyncio.sleep(0)
        assert set(hung_up) == {("10.0.0.1", 0), ("10.0.0.1", 1)}
        for context in contexts:
            context.may_take.set()
        await asyncio.gather(*writes)

    asyncio.run(play())


def test_the_answer_of_a_call_counts_until_the_call_is_over(
    hung_up: list[tuple[str, int]],
) -> None:
    async def play() -> None:
        door = outgoing_here()
        contexts = [Context(f"ipv4:10.0.0.1:{number}") for number in range(5)]
        for context in contexts[:2]:
            door.of(context).note_last(bytes(LARGE_BYTES))
        for callback in contexts[0].when_done:
            callback(contexts[0])
        for context in contexts[2:]:
            door.of(context).note_last(bytes(LARGE_BYTES))
        while not hung_up:
            await asyncio.sleep(0)
        assert hung_up == [("10.0.0.1", 1)]

    asyncio.run(play())


def test_a_connection_is_hung_up_on_by_the_address_of_its_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        clients, accepted = [], []
        for _ in range(3):
            client = socket.create_connection(server.getsockname(), 10)
            clients.append(stack.enter_context(client))
            accepted.append(stack.enter_context(server.accept()[0]))
        before = len(os.listdir("/dev/fd"))
        port = server.getsockname()[1]
        assert hang_up({clients[1].getsockname()}, port + 1) == 0
        assert hang_up({("127.0.0.1", 1)}, port) == 0
        assert hang_up({clients[1].getsockname()}, port) == 1
        # It leaves nothing open, of whatever it looked at.
        assert len(os.listdir("/dev/fd")) == before
        assert clients[1].recv(1) == b""
        for client, other in zip(clients[::2], accepted[::2], strict=True):
            other.sendall(b"x")
            assert client.recv(1) == b"x"
