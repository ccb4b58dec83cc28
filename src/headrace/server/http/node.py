"""The node itself: whether it lives, and whether it takes requests."""

from __future__ import annotations

from importlib.metadata import version

from headrace.core.errors import SyncFailed
from headrace.server.http.route import Call
from headrace.wire.http import group_bodies


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
        version=version("headrace"),
    )
