"""Serving: a node with its doors open, from start to graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
from collections.abc import Callable

from headrace.core.errors import HeadraceError, InUse, InvalidArgument
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


# Files of the logs, and what the process itself has open.
DESCRIPTORS_BESIDE_CONNECTIONS = 1_000


async def serve(settings: NodeSettings, on_ready: Callable[[Ready], None]) -> None:
    """Open the directory and the doors, call `on_ready`, and go on until a
    signal asks to stop or the disk fails."""
    disk, entropy, clock = RealDisk(settings.data), SystemEntropy(), SystemClock()
    _allow_descriptors(settings.connections_max + DESCRIPTORS_BESIDE_CONNECTIONS)
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


def _allow_descriptors(wanted: int) -> None:
    """The usual limit of 1,024 open files is the shell's habit, not the machine's
    limit: a process may raise it up to the hard one."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning("few open files allowed", extra={"allowed": allowed, "wanted": wanted})


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
        raise _cannot_listen(settings.kafka, error) from error
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            service.loop.add_signal_handler(number, stop.set)
    logger.info("ready", extra={"kafka": str(door.address), "data": settings.data})
    on_ready(Ready(str(door.address)))
    service.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    logger.info("stopping", extra={"connections": len(door.connections)})
    await door.close()
    if service.failed.done():
        raise service.failed.result()


def _cannot_listen(address: str, error: OSError) -> HeadraceError:
    # asyncio's own text is the reason and much around it.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    if error.errno == errno.EADDRINUSE:
        return InUse(
            f"cannot listen on {address}: {reason}; is another node running? "
            "Choose another address with --kafka"
        )
    return InvalidArgument(f"cannot listen on {address}: {reason}; see --kafka")
