"""An address has one port in all its families, and takes connections as they can be served."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvloop

from headrace.core.node_settings import Address
from headrace.server import listening
from headrace.server.listening import TAKEN_AT_ONCE, UNSERVED_MAX, Listening, bind
from headrace.server.shares import shares_of

LOCAL = Address("127.0.0.1", 0)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 30))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_a_name_of_both_families_gets_one_free_port() -> None:
    async def scenario() -> None:
        bound = await bind(Address("localhost", 0))
        assert len({each.getsockname()[1] for each in bound}) == 1
        known = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
        assert {each.family for each in bound} == {family for family, *_ in known}
        for each in bound:
            each.close()

    play(scenario)


def test_a_family_that_a_machine_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bind_one = listening._bind_one

    def without_six(family: int, *others: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no such family")
        return bind_one(family, *others)

    async def scenario() -> None:
        both = [
            (socket.AF_INET6, socket.SOCK_STREAM, 0, "", ("::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)),
        ]
        monkeypatch.setattr(listening, "_bind_one", without_six)
        [bound] = listening._bind(both, 0)
        assert bound.family == socket.AF_INET
        bound.close()
        with pytest.raises(OSError, match="no such family"):
            listening._bind(both[:1], 0)

    play(scenario)


def test_a_port_that_is_taken_is_an_error() -> None:
    async def scenario() -> None:
        first = Listening(asyncio.Protocol, await bind(LOCAL))
        port = first.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="[Aa]ddress already in use"):
            await bind(Address("127.0.0.1", port))
        first.close()

    play(scenario)


def test_a_connection_is_taken_with_what_the_system_is_to_do_for_it() -> None:
    asked: list[list[int]] = []
    accepted_one = asyncio.Event()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            options = (
                # Whether anybody is there, when it is quiet.
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                # Small answers do not wait for more.
                (socket.IPPROTO_TCP, socket.TCP_NODELAY),
            )
            asked.append([accepted.getsockopt(*option) for option in options])
            transport.close()
            accepted_one.set()

    async def scenario() -> None:
        taking = Listening(Accepted, await bind(LOCAL))
        _, writer = await asyncio.open_connection(*taking.sockets[0].getsockname())
        await accepted_one.wait()
        taking.close()
        writer.close()

    play(scenario)
    assert asked == [[1, 30, 1]]


class Hasty(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Taking:
    """Counts the connections that are taken, by turns of the loop."""

    def __init__(self) -> None:
        self.turn = 0
        self.taken: Counter[int] = Counter()

    def made(self) -> asyncio.Protocol:
        self.taken[self.turn] += 1
        return Hasty()

    async def count(self, until: int) -> list[int]:
        while self.taken.total() < until:
            self.turn += 1
            await asyncio.sleep(0)
        return list(self.taken.values())


def test_connections_that_come_together_do_not_wait_for_a_turn_of_the_loop_each(
    stack: ExitStack,
) -> None:
    async def scenario() -> None:
        seen = Taking()
        taking = Listening(seen.made, await bind(LOCAL))
        for _ in range(8 * TAKEN_AT_ONCE):
            stack.enter_context(socket.create_connection(taking.sockets[0].getsockname()))
        counts = await seen.count(8 * TAKEN_AT_ONCE)
        assert max(counts) == TAKEN_AT_ONCE and TAKEN_AT_ONCE > 1
        assert len(counts) <= 10
        taking.close()

    play(scenario)


def test_nobody_is_taken_while_many_wait_to_be_served_for_the_first_time(stack: ExitStack) -> None:
    async def scenario() -> None:
        seen = Taking()
        taking = Listening(seen.made, await bind(LOCAL))
        line = shares_of(asyncio.get_running_loop()).line
        served = list[int]()
        for number in range(UNSERVED_MAX):
            # Each of them takes a while.
            begin: Any = lambda number=number: served.append(number)  # noqa: E731
            line.join_new(begin, 0.01, is_served=False)
        stack.enter_context(socket.create_connection(taking.sockets[0].getsockname()))
        while not served:
            assert not seen.taken
            await asyncio.sleep(0)
        await seen.count(1)
        assert line.unserved < UNSERVED_MAX
        taking.close()

    play(scenario)


def test_a_node_that_is_short_of_files_takes_connections_again_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    monkeypatch.setattr(listening, "_SHORT_OF_FILES_SECONDS", 0.001)

    class Short:
        """A socket on a system that has no files left, twice."""

        def __init__(self, bound: socket.socket) -> None:
            self._bound, self.left = bound, 2

        def __getattr__(self, name: str) -> Any:
            return getattr(self._bound, name)

        def accept(self) -> Any:
            self.left -= 1
            if self.left >= 0:
                raise OSError(errno.EMFILE, "too many open files")
            return self._bound.accept()

    async def scenario() -> None:
        seen = Taking()
        [bound] = await bind(LOCAL)
        short: Any = Short(bound)
        taking = Listening(seen.made, [short])
        stack.enter_context(socket.create_connection(bound.getsockname()))
        await seen.count(1)
        assert short.left < 0
        taking.close()

    play(scenario)
