"""The node itself: whether it lives, and whether it takes requests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from headrace.calls import Face
from headrace.core.errors import SyncFailed
from headrace.server.http.route import Call
from headrace.server.version import VERSION
from headrace.wire.http import group_bodies

# As many as anybody reads.
PROBLEMS_MAX = 10


async def live(call: Call) -> group_bodies.Health:
    return _health(call, "alive")


async def ready(call: Call) -> group_bodies.Health:
    failed = call.service.commits.failed
    if failed is not None:
        raise SyncFailed(str(failed))
    return _health(call, "ready")


def _health(call: Call, status: str) -> group_bodies.Health:
    return group_bodies.Health(
        status=status,
        node_id=call.service.node_id,
        cluster_id=call.service.cluster_id,
        version=VERSION,
        problems=list(islice(_problems(call), PROBLEMS_MAX)),
    )


def _problems(call: Call) -> Iterator[str]:
    """What somebody has to see to, although the node takes requests. A node that is full or
    damaged in one place stays ready: without requests nobody could ack, and so make room."""
    free, floor = call.service.disk.free_bytes(), call.facts.settings.free_bytes_min
    if free < floor:
        yield full_text(free, floor)
    for each in call.calls.run_nowait(Face.troubles):
        if each.stopped:
            yield each.stopped
        if count := each.unreadable:
            yield (
                f"{each.topic}:{each.partition} has batches that cannot be read: "
                f"{count} so far; headrace doctor names them. Kafka consumers get them, all others "
                "skip them"
            )


def full_text(free: int, floor: int) -> str:
    return (
        f"the disk is full: {free} bytes are free, and publishing is refused below {floor}; delete "
        "or move something. Reading and acking go on"
    )
