"""What members say of themselves is kept within one budget for all groups of a node."""

from __future__ import annotations

from typing import Any

from tests.unit.server.asking import Asking, run

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.generated.share_group_heartbeat_request import (
    ShareGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

JOIN, LEAVE, SYNC, CONSUMER, SHARE = 11, 13, 14, 68, 76
MEGABYTE = 1024 * 1024


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


def test_time_gives_back_what_a_vanished_member_held() -> None:
    async def scenario() -> None:
        asking = with_budget(3)
        await become_stable(asking, "group")
        assert asking.door.groups.budget.size_bytes > MEGABYTE - 20_000
        await asking.skip(60)
        assert asking.door.groups.budget.size_bytes == 0

    run(scenario)
