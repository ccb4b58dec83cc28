"""Groups that go from one protocol to the other, at the door."""

from __future__ import annotations

from typing import Any

from tests.unit.engine.coordinator.conftest import subscription
from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import BROKER, alter
from tests.unit.server.test_group_configs import consumer_beat

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.heartbeat_request import HeartbeatRequest
from headrace.wire.kafka.generated.join_group_request import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from headrace.wire.kafka.generated.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.generated.sync_group_request import SyncGroupRequest

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
GROUP, TOPIC = "readers", "jobs"
OWNS_NOTHING = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def with_topic() -> Asking:
    asking = Asking(MemoryDisk())
    asking.broker.topics.create(TOPIC, 2, TopicSettings(), asking.service.clock.now_ms())
    return asking


def joining(member: str) -> JoinGroupRequest:
    metadata = subscription(TOPIC, owned=OWNS_NOTHING)
    protocols = (JoinGroupRequestProtocol("range", metadata),)
    return JoinGroupRequest(GROUP, 10_000, 10_000, member, None, "consumer", protocols)


async def join(asking: Asking, member: str = "") -> Any:
    # Version 3 does not send a member without an id back.
    return await asking.ask(JOIN, 3, joining(member))


async def sync(asking: Asking, joined: Any) -> Any:
    request = SyncGroupRequest(GROUP, joined.generation_id, joined.member_id)
    return await asking.ask(SYNC, 3, request)


async def heartbeat(asking: Asking, joined: Any) -> int:
    request = HeartbeatRequest(GROUP, joined.generation_id, joined.member_id)
    return int((await asking.ask(HEARTBEAT, 3, request)).error_code)


def test_a_member_of_the_consumer_protocol_takes_a_classic_group_over_and_leaves_it() -> None:
    async def scenario() -> None:
        asking = with_topic()
        joined = await join(asking)
        assert (await sync(asking, joined)).error_code == 0
        assert (await consumer_beat(asking, GROUP, "new")).error_code == 0
        assert await heartbeat(asking, joined) == Error.REBALANCE_IN_PROGRESS
        joined = await join(asking, joined.member_id)
        assert (joined.error_code, joined.leader) == (0, "")
        assert (await sync(asking, joined)).error_code == 0
        assert await heartbeat(asking, joined) == 0
        # The last one of the other protocol goes: members assign again.
        assert (await consumer_beat(asking, GROUP, "new", -1)).error_code == 0
        assert await heartbeat(asking, joined) == Error.REBALANCE_IN_PROGRESS
        joined = await join(asking, joined.member_id)
        assert joined.leader == joined.member_id

    run(scenario)


def test_a_silent_classic_member_is_dropped_from_the_other_protocol_too() -> None:
    async def scenario() -> None:
        asking = with_topic()
        joined = await join(asking)
        assert (await sync(asking, joined)).error_code == 0
        assert (await consumer_beat(asking, GROUP, "new")).error_code == 0
        await asking.skip(11)
        assert await heartbeat(asking, joined) == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_a_classic_member_leaves_by_its_own_request() -> None:
    async def scenario() -> None:
        asking = with_topic()
        assert (await consumer_beat(asking, GROUP, "new")).error_code == 0
        joined = await join(asking)
        request = LeaveGroupRequest(GROUP, members=(MemberIdentity(joined.member_id),))
        [left] = (await asking.ask(LEAVE, 5, request)).members
        assert left.error_code == 0
        assert await heartbeat(asking, joined) == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_requests_that_wait_in_a_group_that_goes_over_are_answered() -> None:
    async def scenario() -> None:
        asking = with_topic()
        joined = await join(asking)
        assert (await sync(asking, joined)).error_code == 0
        # A second one makes it wait for the first to join again.
        waiting = asking.begin(JOIN, 3, joining(""))
        await asking.skip(0)
        assert not waiting.done()
        assert (await consumer_beat(asking, GROUP, "new")).error_code == 0
        assert (await waiting).error_code == Error.REBALANCE_IN_PROGRESS

    run(scenario)


def test_the_policy_can_close_the_way() -> None:
    async def scenario() -> None:
        asking = with_topic()
        await alter(asking, BROKER, "1", group_consumer_migration_policy="downgrade")
        joined = await join(asking)
        assert (await sync(asking, joined)).error_code == 0
        refused = await consumer_beat(asking, GROUP, "new")
        assert refused.error_code == Error.GROUP_ID_NOT_FOUND
        assert "downgrade" in refused.error_message
        assert await heartbeat(asking, joined) == 0
        await alter(asking, BROKER, "1", group_consumer_migration_policy="upgrade")
        assert (await consumer_beat(asking, GROUP, "new")).error_code == 0
        joined = await join(asking, joined.member_id)
        # It stays as it is when the other one goes.
        assert (await consumer_beat(asking, GROUP, "new", -1)).error_code == 0
        joined = await join(asking, joined.member_id)
        assert (joined.error_code, joined.leader) == (0, "")

    run(scenario)
