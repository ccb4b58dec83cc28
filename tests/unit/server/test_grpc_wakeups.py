"""grpc's wake-ups do not pile up: however many events wait, one turn handles all of them and
grpc's thread is never stopped by a socket that is full."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from headrace.server.grpc.wakeups import PILE, no_pile


class RecordingLoop(asyncio.SelectorEventLoop):
    """Knows who was added as a reader."""

    def __init__(self) -> None:
        super().__init__()
        self.added: list[tuple[Any, Callable[..., object]]] = []

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        self.added.append((fd, callback))
        super().add_reader(fd, callback, *args)


@pytest.mark.parametrize("count", [1, 2, PILE, PILE + 1, 250])
def test_a_pile_of_any_size_is_gone_after_as_many_turns_as_grpc_needs_for_a_small_one(
    count: int,
) -> None:
    woken: list[int] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        reading, writing = socket.socketpair()
        with reading, writing:
            with no_pile(loop):
                # As grpc does it: one byte, whatever there is.
                loop.add_reader(reading, lambda: woken.append(len(reading.recv(1))))
            writing.send(b"1" * count)
            for _ in range(PILE + 1):
                await asyncio.sleep(0)
            loop.remove_reader(reading)
            reading.setblocking(False)
            with pytest.raises(BlockingIOError):
                reading.recv(1)

    asyncio.run(scenario())
    assert woken == [1] * (count if count <= PILE else 1)


def test_readers_of_others_are_left_as_they_are() -> None:
    loop = RecordingLoop()
    try:
        reading, writing = socket.socketpair()
        with reading, writing:
            with no_pile(loop):
                loop.add_reader(reading.fileno(), print)
            loop.add_reader(writing, print)
            assert loop.added[-2:] == [(reading.fileno(), print), (writing, print)]
            for each in (reading, writing):
                loop.remove_reader(each)
    finally:
        loop.close()


def test_grpc_reads_its_socket_through_it() -> None:
    """What grpc does inside may change with a version: then this says so."""

    async def make_server() -> Any:
        with no_pile(loop):
            return grpc.aio.server()

    loop = RecordingLoop()
    try:
        server = loop.run_until_complete(make_server())
        readers = [callback for source, callback in loop.added if isinstance(source, socket.socket)]
        names = [getattr(each, "__qualname__", "") for each in readers]
        assert "_Pile.take" in names
        loop.run_until_complete(server.stop(None))
    finally:
        loop.close()
