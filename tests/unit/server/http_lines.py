"""Connections of the HTTP door without sockets, in a loop whose time is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from tests.unit.server.test_stalls import open_door

from headrace.server.http.door import HttpDoor
from headrace.server.service import Service

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n"
)
DEFLATE = b"sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n"


class Loop(asyncio.SelectorEventLoop):
    """One whose time can be moved on."""

    passed_seconds = 0.0

    def time(self) -> float:
        return super().time() + self.passed_seconds


class Line(asyncio.Transport):
    """A transport that keeps what is written, and says what became of it."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host
        self.protocol: Any = None
        self.sent = b""
        self.is_reading_now = True
        self.ended: str | None = None
        # Whether its protocol was told that it ended.
        self.is_lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._host, 40_000) if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def write_eof(self) -> None:
        # Its client hangs up, too.
        self.close()

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        if self.ended is None:
            self.ended = how
            asyncio.get_running_loop().call_soon(self._lose)

    def _lose(self) -> None:
        self.is_lost = True
        self.protocol.connection_lost(None)

    def receive(self, data: bytes) -> None:
        """Unlike a socket's, also while it does not read."""
        if self.ended is None:
            self.protocol.data_received(data)


class Bench:
    def __init__(self, door: HttpDoor, service: Service) -> None:
        self._door = door
        self._service = service

    def connect(self, host: str = "127.0.0.1") -> Line:
        line = Line(host)
        protocol: Any = self._door._server.make_protocol()
        line.set_protocol(protocol)
        protocol.connection_made(line)
        return line

    async def open_socket(self, wishes: bytes = b"") -> Line:
        """A WebSocket that the node has welcomed. `wishes`: more headers of its client."""
        line = self.connect()
        line.receive(UPGRADE + wishes + b"\r\n")
        await wait_until(lambda: b"welcome" in line.sent)
        # Nobody answers pings here.
        line.protocol.stop_keepalive()
        return line

    def pass_seconds(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        loop.passed_seconds += seconds
        self._door._guard.sweeper.run()

    @property
    def arriving_bytes(self) -> int:
        return self._service.held_bytes["bodies"]()

    @property
    def cuts(self) -> Counter[tuple[str, str]]:
        return +self._service.counts.cuts


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def play(scenario: Callable[[Bench], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with open_door(**settings) as (door, service):
            await scenario(Bench(door, service))

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(run())
