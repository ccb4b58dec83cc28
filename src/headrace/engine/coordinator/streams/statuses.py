"""What a member of a streams group is told beside its tasks: what its application has to know."""

from __future__ import annotations

from headrace.engine.coordinator.streams.member import StreamsMember
from headrace.engine.coordinator.streams.values import NOTHING, Status, Topology


def statuses_of(
    member: StreamsMember,
    topology: Topology | None,
    problem: tuple[Status, str] | None,
    delay: str | None,
    shut_down_by: str | None,
) -> tuple[tuple[Status, str], ...]:
    """`problem`: why the group's topology cannot run now; `delay`: why there is no target yet."""
    statuses = []
    if topology is not None and member.topology_epoch < topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's "
            f"topology epoch {topology.epoch}."
        )
        statuses.append((Status.STALE_TOPOLOGY, detail))
    # A client that is told so stops processing. Members with tasks go on with them.
    if delay is not None and member.assigned == NOTHING:
        statuses.append((Status.ASSIGNMENT_DELAYED, delay))
    if problem is not None:
        statuses.append(problem)
    if shut_down_by is not None:
        detail = (
            f"Streams group member {shut_down_by} encountered a fatal error and "
            "requested a shutdown for the entire application."
        )
        statuses.append((Status.SHUTDOWN_APPLICATION, detail))
    return tuple(statuses)
