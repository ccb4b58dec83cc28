"""What is going on in the queues, by what people look for: whether messages are
handled, what waits for its time, and how the lanes are served."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.calls import Face
from headrace.core import limits
from headrace.core.values import LaneStatistics, QueueStatistics
from headrace.server.http.route import Call
from headrace.server.http.shown import moment
from headrace.wire.http import group_bodies


async def _all(call: Call) -> list[QueueStatistics]:
    query: group_bodies.StatisticsQuery = call.query
    if query.group is not None:
        return [await call.run(Face.queue_statistics, query.group)]
    groups = await call.run(Face.groups)
    return [
        await call.run(Face.queue_statistics, each.name) for each in groups if each.kind == "queue"
    ]


async def reliability(call: Call) -> group_bodies.ReliabilityStatistics:
    return group_bodies.ReliabilityStatistics(
        groups=[
            group_bodies.Reliability(
                group=each.group,
                topics=list(each.topics),
                depth=each.depth,
                ready=each.ready,
                waiting=each.waiting,
                leased=each.leased,
                retrying=each.retrying,
                delivered=each.delivered,
                acked=each.acked,
                nacked=each.nacked,
                lease_expired=each.lease_expired,
                dead_lettered=each.dead_lettered,
                expired=each.expired,
                cancelled=each.cancelled,
                oldest=moment(each.oldest_ms),
                rate_in=each.rate_in,
                rate_out=each.rate_out,
                publish_to_lease=group_bodies.Latency(**each.to_lease._asdict()),
                publish_to_ack=group_bodies.Latency(**each.to_ack._asdict()),
            )
            for each in await _all(call)
        ]
    )


async def delay(call: Call) -> group_bodies.DelayStatistics:
    found = []
    groups = await _all(call)
    query: group_bodies.StatisticsQuery = call.query
    names = None if query.group is None else list(groups[0].topics)
    for each in groups:
        due_ms = await call.run(Face.next_delayed_ms, each.group)
        found.append(
            group_bodies.Delay(
                group=each.group,
                delayed=each.delayed,
                retrying=each.retrying,
                next_due=moment(due_ms),
            )
        )
    totals = []
    for some in [None] if names is None else _in_parts(names):
        totals += await call.run(Face.delayed_totals, some)
    return group_bodies.DelayStatistics(
        groups=found,
        topics=[group_bodies.DelayTotals(**each._asdict()) for each in totals],
    )


def _in_parts(names: list[str]) -> list[list[str]]:
    """A group may read more topics than one call may name."""
    most = limits.TOPICS_PER_CALL_MAX
    return [names[start : start + most] for start in range(0, len(names), most)]


async def priority(call: Call) -> group_bodies.PriorityStatistics:
    return group_bodies.PriorityStatistics(
        groups=[
            group_bodies.GroupLanes(
                group=each.group,
                lanes=_lanes(each.lanes),
                partitions=[
                    group_bodies.PartitionLanes(
                        topic=part.topic, partition=part.partition, lanes=_lanes(part.lanes)
                    )
                    for part in each.partitions
                ],
            )
            for each in await _all(call)
        ]
    )


def _lanes(lanes: Sequence[LaneStatistics]) -> list[group_bodies.Lane]:
    return [
        group_bodies.Lane(
            priority=lane.lane,
            ready=lane.ready,
            leased=lane.leased,
            retrying=lane.retrying,
            delayed=lane.delayed,
            delivered=lane.delivered,
            last_served=moment(lane.last_served_ms),
            oldest=moment(lane.oldest_ms),
            rate_in=lane.rate_in,
            rate_out=lane.rate_out,
        )
        for lane in lanes
    ]
