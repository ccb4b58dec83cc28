"""What is kept for clients between their requests is within one budget for all of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.connected import Line, feed
from tests.unit.server.streams_door import STREAMS_HEARTBEAT as STREAMS
from tests.unit.server.streams_door import TOPOLOGY

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.errors import Error
from headrace.server.metrics import families
from headrace.server.metrics.gathering import Gathering
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.generated.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.generated.share_fetch_request import FetchPartition as SharePartition
from headrace.wire.kafka.generated.share_fetch_request import FetchTopic as ShareTopic
from headrace.wire.kafka.generated.share_fetch_request import ShareFetchRequest
from headrace.wire.kafka.generated.share_group_heartbeat_request import (
    ShareGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

FETCH, JOIN, LEAVE, SYNC, CONSUMER, SHARE, SHARE_FETCH = 1, 11, 13, 14, 68, 76, 78
MEGABYTE = 1024 * 1024
PROTOCOL = JoinGroupRequestProtocol("range", b"")


def with_budget(megabytes: int) -> Asking:
    asking = Asking(MemoryDisk(), rebalance_delay_ms=0)
    asking.door.groups.budget.bytes_max = megabytes * MEGABYTE
    return asking


async def join(asking: Asking, group: str, size: int = MEGABYTE - 10_000) -> Any:
    """The last version in which a member need not come twice."""
    protocols = (JoinGroupRequestProtocol("range", bytes(size)),)
    request = JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", protocols)
    return await asking.ask(JOIN, 3, request)


async def become_stable(asking: Asking, group: str, size: int = MEGABYTE - 10_000) -> str:
    joined = await join(asking, group, size)
    assert joined.error_code == Error.NONE
    own = (SyncGroupRequestAssignment(joined.member_id, b"mine"),)
    request = SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=own)
    assert (await asking.ask(SYNC, 3, request)).error_code == Error.NONE
    return str(joined.member_id)


def test_a_member_that_does_not_fit_is_told_to_come_again_and_fits_when_another_left() -> None:
    async def scenario() -> None:
        asking = with_budget(3)
        members = [await become_stable(asking, f"group-{number}") for number in range(3)]
        refused = await join(asking, "another")
        assert refused.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
        assert asking.door.groups.budget.size_bytes <= 3 * MEGABYTE
        assert (await join(asking, "small", 10)).error_code == Error.NONE
        leaving = LeaveGroupRequest("group-0", members[0], (MemberIdentity(members[0]),))
        assert (await asking.ask(LEAVE, 3, leaving)).error_code == Error.NONE
        assert (await join(asking, "another")).error_code == Error.NONE

    run(scenario)


def test_groups_that_never_got_stable_go_first() -> None:
    async def scenario() -> None:
        asking = with_budget(3)
        kept = await become_stable(asking, "stable")
        for number in range(200):
            assert (await join(asking, f"hostile-{number}")).error_code == Error.NONE
        assert asking.door.groups.budget.size_bytes <= 3 * MEGABYTE
        registry = asking.door.groups.registry
        assert {group.name for group in registry} == {"stable", "hostile-198", "hostile-199"}
        stable = registry.find("stable")
        assert stable is not None
        assert kept in stable.member_ids()  # type: ignore[union-attr]

    run(scenario)


def test_an_assignment_counts_as_well() -> None:
    async def scenario() -> None:
        asking = with_budget(2)
        joined = await join(asking, "group", 100)
        large = (SyncGroupRequestAssignment(joined.member_id, bytes(3 * MEGABYTE)),)
        request = SyncGroupRequest(
            "group", joined.generation_id, joined.member_id, assignments=large
        )
        answer = await asking.ask(SYNC, 3, request)
        assert answer.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS

    run(scenario)


def test_subscriptions_of_every_kind_of_group_count() -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        names = tuple(f"{number:0249d}" for number in range(4_500))
        consumer = ConsumerGroupHeartbeatRequest(
            "consumers", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=names,
            topic_partitions=(),
        )  # fmt: skip
        share = ShareGroupHeartbeatRequest("shares", "m", 0, subscribed_topic_names=names)
        for key, version, request in ((CONSUMER, 0, consumer), (SHARE, 1, share)):
            answer = await asking.ask(key, version, request)
            assert answer.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
            few = request._replace(subscribed_topic_names=names[:100])
            assert (await asking.ask(key, version, few)).error_code == Error.NONE
        assert asking.door.groups.budget.size_bytes > 2 * 100 * 249

    run(scenario)


def consumer(group: str, member: str, epoch: int = 0, **changes: Any) -> Any:
    said: dict[str, Any] = {"subscribed_topic_names": ("orders",)} if not epoch else {}
    if not epoch:
        said |= {"rebalance_timeout_ms": 1_000, "topic_partitions": ()}
    return ConsumerGroupHeartbeatRequest(group, member, epoch, **said | changes)


def share(group: str, member: str, epoch: int = 0, **changes: Any) -> Any:
    said: dict[str, Any] = {"subscribed_topic_names": ("orders",)} if not epoch else {}
    return ShareGroupHeartbeatRequest(group, member, epoch, **said | changes)


LONG = "m" * 30_000
# What a member of each kind may say beside what it reads.
LONG_NAMES: dict[str, tuple[int, int, Callable[[int], Any]]] = {
    "consumer: rack": (CONSUMER, 0, lambda n: consumer("g", f"m{n}", rack_id=f"{n} {LONG}")),
    "consumer: instance": (
        CONSUMER, 0, lambda n: consumer("g", f"m{n}", instance_id=f"{n} {LONG}")),
    "consumer: member": (CONSUMER, 0, lambda n: consumer("g", f"{n} {LONG}")),
    "share: rack": (SHARE, 1, lambda n: share("g", f"m{n}", rack_id=f"{n} {LONG}")),
    "streams: process": (STREAMS, 0, lambda n: StreamsGroupHeartbeatRequest(
        "g", f"m{n}", 0, rebalance_timeout_ms=60_000, topology=TOPOLOGY, active_tasks=(),
        standby_tasks=(), warmup_tasks=(), process_id=f"{n} {LONG}")),
}  # fmt: skip


@pytest.mark.parametrize("what", LONG_NAMES)
def test_all_names_that_a_member_has_count_by_their_length(what: str) -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        key, version, request = LONG_NAMES[what]
        errors = [(await asking.ask(key, version, request(n))).error_code for n in range(50)]
        taken = errors.count(Error.NONE)
        assert 20 < taken < MEGABYTE // len(LONG)
        assert set(errors[taken:]) == {Error.COORDINATOR_LOAD_IN_PROGRESS}
        assert taken * len(LONG) < asking.door.groups.budget.size_bytes <= MEGABYTE

    run(scenario)


def test_the_name_of_a_static_member_counts_by_its_length() -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        for number in range(50):
            request = JoinGroupRequest(
                f"g{number}", 10_000, 10_000, "", f"{number} {LONG}", "consumer", (PROTOCOL,)
            )
            assert (await asking.ask(JOIN, 5, request)).error_code == Error.NONE
        kept = len(list(asking.door.groups.registry))
        assert kept * len(LONG) < asking.door.groups.budget.size_bytes <= MEGABYTE

    run(scenario)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_client_id_that_becomes_longer_counts_where_nothing_else_is_said(kind: str) -> None:
    key, version, make = {"consumer": (CONSUMER, 0, consumer), "share": (SHARE, 1, share)}[kind]

    async def scenario() -> None:
        asking = with_budget(1)
        errors = []
        joined = [await asking.ask(key, version, make(f"g{n}", "m")) for n in range(50)]
        assert all(each.error_code == Error.NONE for each in joined)
        for number, answer in enumerate(joined):
            again = make(f"g{number}", "m", answer.member_epoch)
            errors.append((await asking.ask(key, version, again, LONG)).error_code)
            if errors[-1]:
                # Who says what it said before goes on.
                assert (await asking.ask(key, version, again)).error_code == Error.NONE
        assert set(errors) == {Error.NONE, Error.COORDINATOR_LOAD_IN_PROGRESS}
        assert asking.door.groups.budget.size_bytes <= MEGABYTE

    run(scenario)


def with_partitions(count: int) -> Asking:
    asking = with_budget(1)
    asking.broker.topics.create("orders", count, TopicSettings(), asking.clock.now_ms())
    return asking


@pytest.mark.parametrize("kind", ["consumer", "pattern", "share"])
def test_what_the_node_assigns_counts(kind: str) -> None:
    key, version = (SHARE, 1) if kind == "share" else (CONSUMER, 1)

    async def scenario() -> None:
        asking = with_partitions(2_000)
        pattern: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "or.*"}
        make = share if kind == "share" else consumer
        said: dict[str, Any] = pattern if kind == "pattern" else {}
        errors = []
        for number in range(4):
            request = make(f"g{number}", "m", **said)
            errors.append((await asking.ask(key, version, request)).error_code)
        assert errors == [0, 0] + [Error.COORDINATOR_LOAD_IN_PROGRESS] * 2
        assert MEGABYTE // 2 < asking.door.groups.budget.size_bytes <= MEGABYTE
        # Another member of a group that is there shares what it has.
        request = make("g0", "another", **said)
        assert (await asking.ask(key, version, request)).error_code == Error.NONE

    run(scenario)


def test_what_a_topic_grows_by_counts_when_its_readers_are_heard_of() -> None:
    async def scenario() -> None:
        asking = with_partitions(1)
        joined = {}
        for number in range(4):
            answer = await asking.ask(CONSUMER, 0, consumer(f"g{number}", "m"))
            joined[f"g{number}"] = answer.member_epoch
        topics, now_ms = asking.broker.topics, asking.clock.now_ms()
        topic = topics.named("orders")
        for _ in topics.growth(
            topic, 2_000, now_ms, break_key_order=True, prepare=lambda partition: None
        ):
            pass
        errors = [
            (await asking.ask(CONSUMER, 0, consumer(group, "m", epoch))).error_code
            for group, epoch in joined.items()
        ]
        assert errors == [0, 0] + [Error.COORDINATOR_LOAD_IN_PROGRESS] * 2
        assert asking.door.groups.budget.size_bytes <= MEGABYTE
        # Leaving is always possible.
        for group in reversed(joined):
            answer = await asking.ask(CONSUMER, 0, consumer(group, "m", -1))
            assert answer.error_code == Error.NONE
        assert asking.door.groups.budget.size_bytes < 1_000

    run(scenario)


def test_time_gives_back_what_a_vanished_member_held() -> None:
    async def scenario() -> None:
        asking = with_budget(3)
        await become_stable(asking, "group")
        assert asking.door.groups.budget.size_bytes > MEGABYTE - 20_000
        await asking.skip(60)
        assert asking.door.groups.budget.size_bytes == 0

    run(scenario)


def fetch(partitions: int, *, topic: str = "none", epoch: int = 0, wait_ms: int = 0) -> Any:
    wanted = tuple(FetchPartition(index, partition_max_bytes=1) for index in range(partitions))
    topics = (FetchTopic(topic, partitions=wanted),)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_epoch=epoch, topics=topics)


def test_fetch_sessions_are_in_the_budget_and_make_room_for_groups() -> None:
    async def scenario() -> None:
        asking = with_budget(3)
        held = asking.door.held
        for _ in range(50):
            opened = await asking.ask(FETCH, 11, fetch(1_000))
            assert opened.session_id
            assert held.size_bytes <= 3 * MEGABYTE
        assert 0 < len(held.fetch_sessions) < 5
        for number in range(2):
            await become_stable(asking, f"group-{number}")
        assert held.size_bytes <= 3 * MEGABYTE
        await become_stable(asking, "group-2")
        assert len(held.fetch_sessions) == 0
        # Its client is told to say everything each time.
        assert (await asking.ask(FETCH, 11, fetch(1_000))).session_id == 0
        assert (await asking.ask(FETCH, 11, fetch(1))).session_id

    run(scenario)


def test_a_fetch_session_that_grows_beyond_the_budget_is_forgotten() -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        opened = await asking.ask(FETCH, 11, fetch(10))
        growing = fetch(2_000, epoch=1)._replace(session_id=opened.session_id)
        await asking.ask(FETCH, 11, growing)
        assert asking.door.held.size_bytes == 0
        again = growing._replace(session_epoch=2)
        answer = await asking.ask(FETCH, 11, again)
        assert answer.error_code == Error.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def test_fetches_that_wait_are_in_the_budget_and_those_beyond_are_answered_at_once() -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        asking.broker.topics.create("quiet", 100, TopicSettings(), asking.clock.now_ms())
        polls = [
            asking.begin(FETCH, 11, fetch(100, topic="quiet", epoch=-1, wait_ms=30_000))
            for _ in range(50)
        ]
        await asyncio.sleep(0)
        held = asking.door.held
        waiting = [poll for poll in polls if not poll.done()]
        assert 0 < len(waiting) < 20
        assert len(waiting) * 100 * 1_024 <= held.waiting_bytes <= 1.25 * MEGABYTE
        await asking.skip(60)
        assert not any([(await poll).error_code for poll in polls])
        assert held.waiting_bytes == 0

    run(scenario)


def test_nobody_else_takes_the_room_of_fetches_that_wait() -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        asking.broker.topics.create("quiet", 1, TopicSettings(), asking.clock.now_ms())
        await become_stable(asking, "group")
        poll = asking.begin(FETCH, 11, fetch(1, topic="quiet", epoch=-1, wait_ms=1_000))
        await asyncio.sleep(0)
        assert not poll.done()
        await asking.skip(2)
        await poll

    run(scenario)


def test_share_sessions_are_in_the_budget() -> None:
    async def scenario() -> None:
        asking = with_budget(1)
        asking.broker.topics.create("quiet", 1, TopicSettings(), asking.clock.now_ms())
        joining = ShareGroupHeartbeatRequest("shares", "m", 0, subscribed_topic_names=("quiet",))
        assert (await asking.ask(SHARE, 1, joining)).error_code == Error.NONE

        def opening(count: int) -> ShareFetchRequest:
            places = tuple(SharePartition(index) for index in range(count))
            return ShareFetchRequest("shares", "m", 0, topics=(ShareTopic(b"n" * 16, places),))

        answer = await asking.ask(SHARE_FETCH, 1, opening(5_000))
        assert answer.error_code == Error.SHARE_SESSION_LIMIT_REACHED
        assert asking.door.held.share_sessions_bytes == 0
        assert (await asking.ask(SHARE_FETCH, 1, opening(500))).error_code == Error.NONE
        assert 500 * 100 < asking.door.held.share_sessions_bytes < MEGABYTE
        asking.door.shares.end_session("shares", "m")
        assert asking.door.held.share_sessions_bytes == 0

    run(scenario)


def test_each_kind_of_what_is_held_is_in_the_metrics_until_it_is_gone() -> None:
    async def scenario() -> None:
        asking = with_budget(3)
        asking.broker.topics.create("quiet", 1, TopicSettings(), asking.clock.now_ms())
        gathering = Gathering(asking.service, free_bytes_min=0, by_partition=False)

        async def look() -> dict[str, Any]:
            found = (await gathering.gather())[families.HELD_BYTES]
            return {what: size for (what,), size in found}

        kinds = ("groups", "fetch_sessions", "share_sessions", "waiting", "receiving")
        nothing = dict.fromkeys(kinds, 0)
        assert await look() == nothing
        member = await become_stable(asking, "group")
        assert 1 * MEGABYTE > (await look())["groups"] > MEGABYTE - 10_000
        opened = await asking.ask(FETCH, 11, fetch(1_000))
        joining = ShareGroupHeartbeatRequest("shares", "m", 0, subscribed_topic_names=("quiet",))
        assert (await asking.ask(SHARE, 1, joining)).error_code == Error.NONE
        topics = (ShareTopic(b"n" * 16, (SharePartition(0),)),)
        await asking.ask(SHARE_FETCH, 1, ShareFetchRequest("shares", "m", 0, topics=topics))
        poll = asking.begin(FETCH, 11, fetch(1, topic="quiet", epoch=-1, wait_ms=1_000))
        sending = Connection(asking.door)
        sending.connection_made(Line())
        feed(sending, MEGABYTE.to_bytes(4, "big") + bytes(MEGABYTE // 2))
        full = await look()
        assert all(full[kind] > 0 for kind in kinds), full
        assert full["receiving"] >= MEGABYTE // 2
        # All of it goes again.
        sending.connection_lost(None)
        await asking.skip(2)
        await poll
        asking.door.shares.end_session("shares", "m")
        leaving = LeaveGroupRequest("group", member, (MemberIdentity(member),))
        assert (await asking.ask(LEAVE, 3, leaving)).error_code == Error.NONE
        closing = fetch(0, epoch=-1)._replace(session_id=opened.session_id)
        await asking.ask(FETCH, 11, closing)
        left = ShareGroupHeartbeatRequest("shares", "m", -1)
        assert (await asking.ask(SHARE, 1, left)).error_code == Error.NONE
        assert await look() == nothing

    run(scenario)
