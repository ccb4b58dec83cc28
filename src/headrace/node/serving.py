"""Serving: a node with its doors open, from start to graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable

from headrace.core.errors import InUse, InvalidArgument
from headrace.core.node_settings import NodeSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.directory import check_format, claim, give_up_reserve, keep_reserve
from headrace.platform.disk import RealDisk
from headrace.platform.entropy import SystemEntropy
from headrace.server.service import Service

logger = logging.getLogger("headrace")


class Ready:
    """What a started node has to tell: where its doors are."""

    def __init__(self, kafka: str) -> None:
        self.kafka = kafka


async def serve(settings: NodeSettings, on_ready: Callable[[Ready], None]) -> None:
    """Open the directory and the doors, call `on_ready`, and go on until a
    signal asks to stop or the disk fails."""
    disk, entropy, clock = RealDisk(settings.data), SystemEntropy(), SystemClock()
    claimed = claim(disk, entropy)
    try:
        identity = check_format(disk)
        keep_reserve(disk)
        broker = Broker(
            disk,
            entropy,
            clock.now_ms(),
            free_bytes_min=settings.free_bytes_min,
            on_full=lambda: give_up_reserve(disk),
        )
        service = Service(
            broker,
            disk,
            clock,
            entropy,
            node_id=identity.node_id,
            cluster_id=identity.directory_id[:22],
        )
        await service.finish(broker.commit())
        try:
            await _serve_doors(settings, service, on_ready)
        finally:
            await service.close()
            if service.commits.failed is None:
                broker.close()
    finally:
        claimed.release()


async def _serve_doors(
    settings: NodeSettings, service: Service, on_ready: Callable[[Ready], None]
) -> None:
    from headrace.server.kafka.door import Door
    from headrace.server.kafka.handlers import HANDLERS

    if not settings.kafka:
        raise InvalidArgument("every door is shut; give the Kafka door an address: --kafka")
    door = Door(service, settings, HANDLERS)
    try:
        await door.open()
    except OSError as error:
        raise InUse(
            f"cannot listen on {settings.kafka}: {error.strerror}; is another node running? "
            "Choose another address with --kafka"
        ) from error
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            service.loop.add_signal_handler(number, stop.set)
    logger.info("ready", extra={"kafka": str(door.address), "data": settings.data})
    on_ready(Ready(str(door.address)))
    service.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    logger.info("stopping")
    await door.close()
    if service.failed.done():
        raise service.failed.result()
