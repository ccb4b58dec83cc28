"""What a node asks of the members of all its groups: as it was started, and as it was told
since over Kafka's protocol."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import BROKER, alter
from tests.unit.server.share_door import Shared
from tests.unit.server.test_groups import (
    CONSUMER_HEARTBEAT,
    JOIN,
    door_with_topic,
    heart,
    join_alone,
    joining,
)

from headrace.server.kafka.errors import Error

# By the name that Kafka has for each.
NAMES = {
    "group_session_timeout_min_ms": "group.min.session.timeout.ms",
    "group_session_timeout_max_ms": "group.max.session.timeout.ms",
    "group_members_max": "group.max.size",
    "share_members_max": "group.share.max.size",
    **{
        f"{kind}_{name}_ms": f"group.{kind}.{name.replace('_', '.')}.ms"
        for kind in ("consumer", "share")
        for name in ("session_timeout", "heartbeat_interval")
    },
}
each_way = pytest.mark.parametrize("is_told", [False, True], ids=["started", "told"])


async def node_with(is_told: bool, **settings: int) -> Asking:
    started: dict[str, Any] = {} if is_told else {**settings}
    asking = door_with_topic(**started)
    if is_told:
        await tell(asking, settings)
    return asking


async def share_node_with(is_told: bool, **settings: int) -> Shared:
    shared = Shared(node={} if is_told else settings)
    if is_told:
        await tell(shared, settings)
    return shared


async def tell(asking: Asking, settings: dict[str, int]) -> None:
    told: dict[str, Any] = {NAMES[name]: value for name, value in settings.items()}
    assert await alter(asking, BROKER, "1", **told) == (0, None)


@each_way
@pytest.mark.parametrize(
    ("setting", "value"),
    [("group_session_timeout_min_ms", 10_001), ("group_session_timeout_max_ms", 9_999)],
)
def test_a_session_of_the_classic_protocol_is_within_the_nodes_bounds(
    is_told: bool, setting: str, value: int
) -> None:
    async def scenario() -> None:
        asking = await node_with(is_told, **{setting: value})
        asked = joining(session_timeout_ms=10_000)
        assert (await asking.ask(JOIN, 3, asked)).error_code == Error.INVALID_SESSION_TIMEOUT
        await join_alone(asking, session_timeout_ms=value)

    run(scenario)


@each_way
def test_a_group_has_no_more_members_than_the_node_says(is_told: bool) -> None:
    async def scenario() -> None:
        asking = await node_with(is_told, group_members_max=1)
        await join_alone(asking)
        # One that is taken would wait for the other.
        second = asking.begin(JOIN, 3, joining())
        await asking.skip(0)
        assert second.done() and second.result().error_code == Error.GROUP_MAX_SIZE_REACHED
        for member, code in (("m1", Error.NONE), ("m2", Error.GROUP_MAX_SIZE_REACHED)):
            beat = heart(member, 0, group_id="other")
            assert (await asking.ask(CONSUMER_HEARTBEAT, 1, beat)).error_code == code

    run(scenario)


@each_way
def test_a_share_group_has_no_more_members_than_the_node_says(is_told: bool) -> None:
    async def scenario() -> None:
        shared = await share_node_with(is_told, share_members_max=1)
        assert (await shared.beat("m1")).error_code == 0
        assert (await shared.beat("m2")).error_code == Error.GROUP_MAX_SIZE_REACHED

    run(scenario)


@each_way
def test_a_group_that_is_told_nothing_has_the_nodes_session_and_heartbeat(is_told: bool) -> None:
    async def scenario() -> None:
        asking = await node_with(
            is_told, consumer_session_timeout_ms=55_000, consumer_heartbeat_interval_ms=7_000
        )
        joined = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("m", 0))
        assert joined.heartbeat_interval_ms == 7_000
        await asking.skip(54)
        assert (await asking.ask(CONSUMER_HEARTBEAT, 1, heart("m", 1))).error_code == 0
        await asking.skip(56)
        gone = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("m", 1))
        assert gone.error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)


@each_way
def test_a_share_group_that_is_told_nothing_has_the_nodes_session_and_heartbeat(
    is_told: bool,
) -> None:
    async def scenario() -> None:
        shared = await share_node_with(
            is_told, share_session_timeout_ms=55_000, share_heartbeat_interval_ms=7_000
        )
        assert (await shared.beat()).heartbeat_interval_ms == 7_000
        await shared.skip(54)
        assert (await shared.beat(epoch=1)).error_code == 0
        await shared.skip(56)
        assert (await shared.beat(epoch=1)).error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)
