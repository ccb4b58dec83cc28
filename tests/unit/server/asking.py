"""A Kafka door without a socket: requests and answers go through the codec, and time
passes when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any

from tests.unit.server.rich_shares import make_rich

from headrace.core.node_settings import NodeSettings
from headrace.core.ports import Clock
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.door import Call, Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
from headrace.wire.kafka.api import (
    APIS,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock only moves when it is told to: on a busy machine no
    session ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_seconds = 0.0
        # Doors that are open, to be closed when the scenario is over.
        self.open: list[Asking] = []

    def time(self) -> float:
        return self.skipped_seconds


class Asking:
    def __init__(
        self,
        disk: MemoryDisk,
        rebalance_delay_ms: int = 0,
        *,
        clock: Clock | None = None,
        transaction_version: int = 2,
        **settings: Any,
    ) -> None:
        self.clock = clock = clock or SystemClock()
        entropy = SystemEntropy()
        self.broker = Broker(disk, entropy, clock.now_ms())
        make_rich()
        self.service = Service(self.broker, disk, clock, entropy, node_id=1, cluster_id="cluster")
        started = NodeSettings(
            rebalance_delay_ms=rebalance_delay_ms,
            transaction_version=transaction_version,
            **settings,
        )
        self.broker.topics.auto_create_partitions = started.auto_create_partitions
        self.door = Door(self.service, started, HANDLERS)
        self.connection = Connection(self.door)
        self.connection.peer_host = "10.0.0.7"
        assert isinstance(self.service.loop, ManualLoop)
        self.loop = self.service.loop
        self.loop.open.append(self)

    async def close(self) -> None:
        self.loop.open.remove(self)
        self.door.groups.close()
        await self.service.close()
        self.broker.close()

    def begin(
        self, key: int, version: int, request: Any, client_id: str = "app"
    ) -> asyncio.Future[Any]:
        """Send a request; the future has its answer, which may take a while."""
        api = APIS[key]
        data = bytearray(b"".join(encode_request(key, version, request)))
        call = Call(self.door, self.connection, api, version, 1, client_id)
        result = HANDLERS[key](call, decode_request(key, version, memoryview(data), 0))
        # A connection uses its buffer again: what is kept has to be a copy.
        data[:] = bytes(len(data))
        return asyncio.ensure_future(self._end(key, version, result))

    async def _end(self, key: int, version: int, result: Any) -> Any:
        response = await result if isawaitable(result) else result
        return decode_response(key, version, b"".join(encode_response(key, version, response)), 0)

    async def ask(self, key: int, version: int, request: Any, client_id: str = "app") -> Any:
        async with asyncio.timeout(60):
            return await self.begin(key, version, request, client_id)

    async def skip(self, seconds: float) -> None:
        self.loop.skipped_seconds += seconds
        # One turn finds the timers that are due, and the next runs what they released.
        for _ in range(5):
            await asyncio.sleep(0)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        try:
            await scenario()
        finally:
            for asking in tuple(loop.open):
                await asking.close()

    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        runner.run(play())
