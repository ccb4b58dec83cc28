"""Members of stream groups: subscribe, heartbeat, poll, commit, change, leave."""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.errors import InvalidArgument, StaleGeneration
from headrace.core.name_lists import distinct_topics
from headrace.core.values import StreamRecord
from headrace.server.http.members import HEARTBEAT_SECONDS, SESSION_SECONDS, Member
from headrace.server.http.route import Call
from headrace.server.http.shown import shown_record
from headrace.wire.http import group_bodies


async def subscribe(call: Call) -> group_bodies.Subscribed:
    wanted: group_bodies.Subscribe = call.body
    if not wanted.topics:
        raise InvalidArgument("name at least one topic to subscribe to")
    topics = distinct_topics(wanted.topics)
    member = Member(wanted.group, call.members.new_id(wanted.client_id), topics)
    call.members.add(member)
    try:
        await call.run(Face.join_stream, member.group, topics, member.id, wanted.reset)
    except BaseException:
        call.members.remove(member)
        raise
    return await _assign(call, member)


async def heartbeat(call: Call) -> group_bodies.Subscribed:
    member = _member(call)
    wanted: group_bodies.MemberBody = call.body
    await _check(call, member, wanted.generation)
    return _subscribed(member)


async def assignment(call: Call) -> group_bodies.Subscribed:
    """What it has now, in whatever generation: how a member comes along after it
    was told that its own is over."""
    return await _assign(call, _member(call))


async def change(call: Call) -> group_bodies.Subscribed:
    member = _member(call)
    wanted: group_bodies.ChangedSubscription = call.body
    if not wanted.topics:
        raise InvalidArgument("keep at least one topic, or leave")
    topics = distinct_topics(wanted.topics)
    await call.run(Face.change_stream, member.group, member.id, topics)
    member.topics = topics
    return await _assign(call, member)


async def poll(call: Call) -> group_bodies.Polled:
    member = _member(call)
    wanted: group_bodies.Poll = call.body
    await _check(call, member, wanted.generation)

    async def attempt() -> list[StreamRecord]:
        call.members.touch(member)
        await _check(call, member, wanted.generation)
        return await _read(call, member, wanted.count)

    records = await attempt()
    if not records and wanted.wait:
        wait_ms = round(wanted.wait * 1000)
        with call.members.polling(member):
            records = await call.unless_gone(
                call.calls.wait_for_some(attempt, member.topics, wait_ms)
            )
    return group_bodies.Polled(
        generation=member.generation, messages=list(map(shown_record, records))
    )


async def commit(call: Call) -> None:
    member = _member(call)
    wanted: group_bodies.CommitPositions = call.body
    await _check(call, member, wanted.generation)
    positions = member.positions
    if wanted.positions is not None:
        positions = {(each.topic, each.partition): each.offset for each in wanted.positions}
        strangers = positions.keys() - member.positions.keys()
        if strangers:
            raise StaleGeneration(
                f"{', '.join(f'{name}:{index}' for name, index in sorted(strangers))} is not "
                "assigned to this member; ask for its assignment"
            )
    await call.run(
        Face.commit, member.group, positions, member=member.id, generation=wanted.generation
    )


async def leave(call: Call) -> None:
    member = _member(call)
    call.members.remove(member)
    await call.run(Face.leave_stream, member.group, member.id)


def _member(call: Call) -> Member:
    member = call.members.find(call.path["group"], call.path["member"])
    call.members.touch(member)
    return member


async def _check(call: Call, member: Member, generation: int) -> None:
    current, _ = await call.run(Face.assignment, member.group, member.id)
    if current != generation or current != member.generation:
        raise StaleGeneration(
            f"the group is in generation {current}, not {generation}; ask for the assignment and "
            "go on from there"
        )


async def _assign(call: Call, member: Member) -> group_bodies.Subscribed:
    member.generation, member.positions = await call.run(Face.assignment, member.group, member.id)
    member.turn = 0
    return _subscribed(member)


def _subscribed(member: Member) -> group_bodies.Subscribed:
    assignments: dict[str, list[int]] = {topic: [] for topic in sorted(member.topics)}
    for topic, partition in sorted(member.positions):
        assignments[topic].append(partition)
    return group_bodies.Subscribed(
        member_id=member.id,
        generation=member.generation,
        assigned_partitions=next(iter(assignments.values())) if len(assignments) == 1 else [],
        assignments=assignments,
        session_seconds=SESSION_SECONDS,
        heartbeat_seconds=HEARTBEAT_SECONDS,
    )


async def _read(call: Call, member: Member, count: int) -> list[StreamRecord]:
    """From one partition after the other, beginning with another each time."""
    places = sorted(member.positions)
    found: list[StreamRecord] = []
    for step in range(len(places)):
        topic, partition = places[(member.turn + step) % len(places)]
        records, next_offset = await call.run(
            Face.read, topic, partition, member.positions[topic, partition],
            count_max=count - len(found),
        )  # fmt: skip
        member.positions[topic, partition] = next_offset
        found += records
        if len(found) >= count:
            break
    member.turn += 1
    return found
