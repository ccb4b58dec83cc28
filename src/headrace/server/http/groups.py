"""Groups of both kinds: listed, described, their lag, moved, deleted."""

from __future__ import annotations

from heapq import nlargest

from headrace.calls import Face
from headrace.core.errors import GroupInUse, GroupKindMismatch, InvalidArgument, UnknownGroup
from headrace.core.values import GroupInfo
from headrace.core.wording import counted
from headrace.server.http.route import Call
from headrace.server.http.shown import milliseconds_at, shown_group
from headrace.server.times import offset_at
from headrace.wire.http import bodies, group_bodies
from headrace.wire.http import overview_bodies as o


async def list_all(call: Call) -> group_bodies.Groups:
    query: bodies.PageQuery = call.query
    found = await call.run(Face.groups)
    later = [each for each in found if query.after is None or each.name > query.after]
    page = later[: query.limit]
    return group_bodies.Groups(
        groups=list(map(shown_group, page)),
        next=page[-1].name if len(later) > len(page) else None,
    )


async def describe(call: Call) -> group_bodies.ShownGroup:
    return shown_group(await call.run(Face.group, call.path["group"]))


async def change(call: Call) -> group_bodies.ShownGroup:
    wanted: group_bodies.ChangedGroup = call.body
    name = call.path["group"]
    if not wanted.settings:
        raise InvalidArgument("there is nothing to change; give settings")
    if (await call.run(Face.group, name)).kind != "queue":
        raise GroupKindMismatch(f"{name!r} reads as a stream, which has no settings")
    return shown_group(await call.run(Face.alter_group, name, wanted.settings))


async def members(call: Call) -> o.Members:
    """Who reads as this group now, by whichever door they came."""
    name = call.path["group"]
    await call.run(Face.group, name)
    return o.Members(
        members=[
            o.ShownMember(
                id=each.id,
                client_id=each.client_id,
                host=each.host,
                assigned=[f"{topic}:{partition}" for topic, partition in each.assigned],
            )
            for each in call.service.members_of(name)
        ]
    )


async def delete(call: Call) -> None:
    await call.run(Face.delete_group, call.path["group"])


async def lag(call: Call) -> group_bodies.GroupLag:
    info: GroupInfo = await call.run(Face.group, call.path["group"])
    if info.kind == "queue":
        partitions = await _queue_lag(call, info)
    else:
        partitions = await _stream_lag(call, info)
    query: group_bodies.LagQuery | None = call.query
    limit = None if query is None else query.limit
    shown = partitions
    if limit is not None and limit < len(partitions):
        shown = nlargest(limit, partitions, key=lambda each: each.lag)
    return group_bodies.GroupLag(
        group=info.name,
        kind=info.kind,
        lag=sum(each.lag for each in partitions),
        partition_count=len(partitions),
        position=sum(each.offset or 0 for each in partitions),
        partitions=shown,
    )


async def _queue_lag(call: Call, info: GroupInfo) -> list[group_bodies.PartitionLag]:
    statistics = await call.run(Face.queue_statistics, info.name)
    return [
        group_bodies.PartitionLag(
            topic=each.topic,
            partition=each.partition,
            offset=each.start_offset,
            end_offset=each.end_offset,
            lag=each.ready + each.waiting + each.leased + each.retrying + each.delayed
            + each.moving,
        )
        for each in statistics.partitions
    ]  # fmt: skip


async def _stream_lag(call: Call, info: GroupInfo) -> list[group_bodies.PartitionLag]:
    found = await call.calls.run_in_slices(Face.stream_lag, info.name, info.topics)
    return [group_bodies.PartitionLag(**each._asdict()) for each in found]


async def reset(call: Call) -> group_bodies.GroupLag:
    """Move a stream group that nobody reads as just now."""
    wanted: group_bodies.ResetGroup = call.body
    name = call.path["group"]
    given = [wanted.to is not None, wanted.offset is not None, wanted.time is not None]
    if sum(given) != 1:
        raise InvalidArgument("say where to go on: `to`, an `offset` or a `time`")
    if wanted.offset is not None and wanted.partition is None:
        raise InvalidArgument("an offset is one of a partition; give the partition too")
    known = {each.name: each for each in await call.run(Face.groups)}
    if name in known and known[name].kind == "queue":
        raise GroupKindMismatch(f"{name!r} is a queue: its messages are settled one by one")
    if name in known and known[name].consumers:
        raise GroupInUse(f"{name!r} has members; let them leave before it is moved")
    topic = await call.run(Face.topic, wanted.topic)
    positions = {}
    for each in topic.partitions:
        if wanted.partition is not None and each.partition != wanted.partition:
            continue
        if wanted.to is not None:
            at = each.start_offset if wanted.to == "earliest" else each.high_watermark
        elif wanted.offset is not None:
            at = wanted.offset
        else:
            assert wanted.time is not None
            at_ms = milliseconds_at("time", wanted.time)
            at = await offset_at(call.calls, topic.name, each.partition, at_ms)
        positions[topic.name, each.partition] = at
    if not positions:
        raise InvalidArgument(
            f"{topic.name} has {counted(len(topic.partitions), 'partition')}, from 0 on"
        )
    await call.run(Face.commit, name, positions)
    try:
        return await lag(call)
    except UnknownGroup as error:
        raise AssertionError("a group with a position is known") from error
