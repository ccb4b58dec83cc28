"""A node on an event loop in a thread of this process, on a clock that a test moves.

Everything between the socket and the disk is the real thing; only time is not.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from headrace.core.node_settings import Address, NodeSettings
from headrace.core.ports import Clock, Disk
from headrace.engine.broker import Broker
from headrace.platform.entropy import SystemEntropy
from headrace.server.kafka.door import Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service

START_SECONDS = 60


class LoopNode:
    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._ready: Future[Address] = Future()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="loop-node")
        self._thread.start()
        self.address = self._ready.result(START_SECONDS)

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
        entropy = SystemEntropy()
        broker = Broker(self._disk, entropy, self._clock.now_ms())
        service = Service(
            broker, self._disk, self._clock, entropy, node_id=1, cluster_id="contract"
        )
        door = Door(service, NodeSettings(kafka="127.0.0.1:0"), HANDLERS)
        await door.open()
        self._ready.set_result(door.address)
        await self._stop.wait()
        await door.close()
        await service.close()
        broker.close()
