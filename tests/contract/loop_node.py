"""A node on an event loop in a thread of this process, on a clock that a test moves.

Everything between the sockets and the disk is the real thing; only time is not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from headrace.core.node_settings import Address, NodeSettings
from headrace.core.ports import Clock, Disk
from headrace.engine.broker import Broker
from headrace.platform.entropy import SystemEntropy
from headrace.server.kafka.door import Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service

START_SECONDS = 60
WORKERS = 4
SETTINGS = NodeSettings(kafka="127.0.0.1:0", http="127.0.0.1:0", grpc="127.0.0.1:0")


class LoopNode:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        doors: Iterable[str] = ("kafka",),
        settings: NodeSettings = SETTINGS,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._names = tuple(doors)
        self._settings = settings
        # For tests that change what its settings said.
        self.broker: Broker | None = None
        self._ready: Future[dict[str, Address]] = Future()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="loop-node")
        self._thread.start()
        self.addresses = self._ready.result(START_SECONDS)

    @property
    def address(self) -> Address:
        """Where our own clients and Kafka's connect."""
        return self.addresses["kafka"]

    def close(self) -> None:
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await _start_workers(self._loop)
        entropy = SystemEntropy()
        self.broker = broker = Broker(self._disk, entropy, self._clock.now_ms())
        broker.topics.auto_create_partitions = self._settings.auto_create_partitions
        service = Service(
            broker,
            self._disk,
            self._clock,
            entropy,
            node_id=1,
            cluster_id="contract",
            lease_grace_ms=self._settings.lease_grace_ms,
        )
        doors = {name: _door(name, service, self._settings) for name in self._names}
        for door in doors.values():
            await door.open()
        self._ready.set_result({name: door.address for name, door in doors.items()})
        await self._stop.wait()
        for door in doors.values():
            await door.close()
        await service.close()
        broker.close()


async def _start_workers(loop: asyncio.AbstractEventLoop) -> None:
    """They would start as they are needed, within a test that would be said to have
    left them. Each waits here until all are there."""
    loop.set_default_executor(ThreadPoolExecutor(WORKERS, "loop-node"))
    everybody = threading.Barrier(WORKERS)
    await asyncio.gather(*(loop.run_in_executor(None, everybody.wait) for _ in range(WORKERS)))


class _OpenDoor(Protocol):
    @property
    def address(self) -> Address: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...


def _door(name: str, service: Service, settings: NodeSettings) -> _OpenDoor:
    if name == "http":
        from headrace.server.http.door import HttpDoor

        return HttpDoor(service, settings)
    if name == "grpc":
        from headrace.server.grpc.door import GrpcDoor

        return GrpcDoor(service, settings)
    return Door(service, settings, HANDLERS)
