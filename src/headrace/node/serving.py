"""Serving: a node with its doors open, from start to graceful stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol

from headrace.core import limits
from headrace.core.errors import HeadraceError, InUse, InvalidArgument
from headrace.core.event_log import log_event
from headrace.core.node_settings import Address, NodeSettings
from headrace.core.ports import Disk, Entropy
from headrace.core.system_errors import is_address_taken
from headrace.engine.broker import Broker
from headrace.engine.creation_rate import CreationRate
from headrace.node.figures import node_figures
from headrace.node.reporting import report_troubles
from headrace.platform.clock import SystemClock
from headrace.platform.descriptors import DESCRIPTORS, limit_for
from headrace.platform.directory import (
    check_format,
    claim,
    describe_holder,
    give_up_reserve,
    keep_reserve,
    plain_refusals,
)
from headrace.platform.disk import RealDisk
from headrace.platform.entropy import SystemEntropy
from headrace.platform.heap import Heap, keep_small
from headrace.platform.telemetry import endpoint_of, start_tracing
from headrace.server.metrics.scrape import Scrapes
from headrace.server.service import Service

logger = logging.getLogger("headrace")


class Ready:
    """What a started node has to tell: where its doors are."""

    def __init__(self, doors: dict[str, str]) -> None:
        # By name, the Kafka door first.
        self.doors = doors


class Exporting(Protocol):
    """What tells a collector of the node's metrics."""

    async def close(self) -> None: ...


class OpenDoor(Protocol):
    """What a door has to be able to do for the node."""

    address: Address

    async def open(self) -> None: ...

    async def close(self) -> None: ...


class OpenSpans(Protocol):
    async def close(self) -> None: ...


# What is open beside connections and files: folders that are being synced, and what
# the process itself needs.
DESCRIPTORS_BESIDE = 64


def open_broker(disk: Disk, entropy: Entropy, now_ms: int, settings: NodeSettings) -> Broker:
    with plain_refusals():
        return Broker(
            disk,
            entropy,
            now_ms,
            free_bytes_min=settings.free_bytes_min,
            on_full=lambda: give_up_reserve(disk),
            keep_reserve=lambda: keep_reserve(disk),
            leases_stand=True,
        )


async def serve(
    settings: NodeSettings,
    on_ready: Callable[[Ready], None],
    given: Collection[str] = (),
) -> None:
    """Open the directory and the doors, call `on_ready`, and go on until a
    signal asks to stop or the disk fails. `given` names the settings that somebody
    chose, also where the choice is the default."""
    disk, entropy, clock = RealDisk(settings.data), SystemEntropy(), SystemClock()
    settings = _share_descriptors(settings)
    claimed = claim(disk, entropy)
    try:
        identity = check_format(disk)
        keep_reserve(disk)
        broker = open_broker(disk, entropy, clock.now_ms(), settings)
        broker.topics.auto_create_partitions = settings.auto_create_partitions
        broker.topics.check_records = settings.check_records
        broker.duties.keep(
            offsets_ms=settings.offsets_retention_ms,
            transactional_ids_ms=settings.transactional_id_expiration_ms,
        )
        report_troubles(broker)
        broker.topics.auto_creation = CreationRate(settings.auto_create_rate)
        service = Service(
            broker,
            disk,
            clock,
            entropy,
            node_id=identity.node_id if settings.node_id < 0 else settings.node_id,
            cluster_id=identity.directory_id[:22],
            slow_request_ms=settings.slow_request_ms,
            lease_grace_ms=settings.lease_grace_ms,
            access_log=settings.access_log,
        )
        await service.finish(broker.commit())
        spans = _spans(settings, service)

        def tell_where(ready: Ready) -> None:
            claimed.tell(describe_holder(ready.doors))
            on_ready(ready)

        try:
            await _serve_doors(settings, service, tell_where, given)
        finally:
            if spans is not None:
                await spans.close()
            await service.close()
            if service.commits.failed is None:
                broker.close(clock.now_ms())
    finally:
        claimed.release()


def _spans(settings: NodeSettings, service: Service) -> OpenSpans | None:
    """Nothing of it is imported where no endpoint is named."""
    endpoint = endpoint_of(settings.otlp_endpoint)
    if not endpoint:
        return None
    from headrace.server.spans import NodeSpans

    return NodeSpans(service, start_tracing(endpoint, "headrace"))


def _share_descriptors(settings: NodeSettings) -> NodeSettings:
    """Raise the limit of open files as far as the system lets us, and divide what
    there is between connections and our own files. The usual 1,024 are the shell's
    habit, not the machine's limit: a process may raise it up to the hard one."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit.
        return settings
    connections = settings.connections_max
    wanted = connections + 2 * limits.OPEN_FILES_MAX + DESCRIPTORS_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if soft == resource.RLIM_INFINITY else soft
    if allowed < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        except (ValueError, OSError):
            allowed = soft
    # Files that are opened again and again only cost time; connections that are
    # refused cost more. But a quarter is the least that files can do with.
    DESCRIPTORS.limit = limit_for(max(allowed // 2, allowed - connections - DESCRIPTORS_BESIDE))
    left = allowed - 3 * DESCRIPTORS.limit // 2 - DESCRIPTORS_BESIDE
    if left >= connections:
        return settings
    log_event(
        logger,
        logging.WARNING,
        "few open files allowed",
        allowed=allowed,
        wanted=wanted,
        connections=left,
    )
    return replace(settings, connections_max=max(1, left))


async def _serve_doors(
    settings: NodeSettings,
    service: Service,
    on_ready: Callable[[Ready], None],
    given: Collection[str],
) -> None:
    scrapes = Scrapes(service, settings)
    doors = _doors(settings, service, scrapes)
    if not doors:
        raise InvalidArgument("every door is shut; give one an address: --kafka, --http or --grpc")
    opened: dict[str, OpenDoor] = {}
    told: Exporting | None = None
    tidying = service.loop.create_task(keep_small(Heap()))
    try:
        for name, door in doors.items():
            if await open_door(name, door, settings, given):
                opened[name] = door
        addresses = {name: str(door.address) for name, door in opened.items()}
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):
                service.loop.add_signal_handler(number, stop.set)
        service.figures = lambda: node_figures(
            settings,
            service.node_id,
            service.clock.now_ms(),
            addresses,
            sum(len(getattr(door, "connections", ())) for door in opened.values()),
            None if service.commits.failed is None else str(service.commits.failed),
            service.counts,
        )
        told = _metrics(settings, service, scrapes)
        log_event(logger, logging.INFO, "ready", **addresses, data=settings.data)
        on_ready(Ready(addresses))
        service.failed.add_done_callback(lambda _: stop.set())
        if "kafka" in opened:
            service.loop.run_in_executor(None, _read_the_rest)
        await stop.wait()
        logger.info("stopping")
    finally:
        tidying.cancel()
        await asyncio.gather(*(door.close() for door in opened.values()))
        if told is not None:
            await told.close()
    if service.failed.done():
        raise service.failed.result()


def _metrics(settings: NodeSettings, service: Service, scrapes: Scrapes) -> Exporting | None:
    """Those that a collector is told; as for spans."""
    endpoint = endpoint_of(settings.otlp_endpoint)
    if not endpoint:
        return None
    from headrace.server.metrics.export import MetricsExport

    return MetricsExport(service, scrapes, endpoint, interval_ms=settings.otlp_interval_ms)


def _doors(settings: NodeSettings, service: Service, scrapes: Scrapes) -> dict[str, OpenDoor]:
    """A door that is shut is not even imported."""
    doors: dict[str, OpenDoor] = {}
    if settings.kafka:
        from headrace.server.kafka.door import Door
        from headrace.server.kafka.handlers import FIRST, HANDLERS, load_all

        load_all(FIRST)
        doors["kafka"] = Door(service, settings, HANDLERS)
    if settings.http:
        from headrace.server.http.door import HttpDoor

        doors["http"] = HttpDoor(service, settings, scrapes)
    if settings.grpc:
        from headrace.server.grpc.door import GrpcDoor

        doors["grpc"] = GrpcDoor(service, settings)
    return doors


def _read_the_rest() -> None:
    """What the first requests do not need, in a thread that lets the loop go first."""
    from headrace.server.kafka.handlers import load_all

    load_all(pause=lambda: time.sleep(0.001))


async def open_door(
    name: str, door: OpenDoor, settings: NodeSettings, given: Collection[str]
) -> bool:
    """Whether it is open. An address that somebody chose and that is taken is an error;
    a default one is ours to leave shut, with a warning, for a second node on a machine."""
    wanted = getattr(settings, name)
    try:
        await door.open()
    except OSError as error:
        by_default = (
            name != "kafka" and name not in given and wanted == getattr(NodeSettings(), name)
        )
        if by_default and is_address_taken(error):
            log_event(
                logger,
                logging.WARNING,
                "a door stays shut",
                door=name,
                in_use=wanted,
                choose=f"--{name}",
            )
            return False
        raise _cannot_listen(name, wanted, error) from error
    return True


def _cannot_listen(door: str, address: str, error: OSError) -> HeadraceError:
    # asyncio's own text is the reason and much around it.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    if is_address_taken(error):
        return InUse(
            f"cannot listen on {address}: {reason}; is another node running? "
            f"Choose another address with --{door}"
        )
    return InvalidArgument(f"cannot listen on {address}: {reason}; see --{door}")
