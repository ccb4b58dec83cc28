"""Configurations of groups: kept by name, and obeyed by whatever group has it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import GROUP, alter, describe
from tests.unit.server.share_door import GROUP as NAME
from tests.unit.server.share_door import TOPIC, Shared

from headrace.core.node_settings import NodeSettings
from headrace.core.settings import TopicSettings
from headrace.engine.catalog import DEAD_LETTER_GROUP
from headrace.platform.memory_disk import MemoryDisk
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)

INVALID_CONFIG, INVALID_REQUEST = 40, 42
OF_GROUP, OF_NODE, DEFAULT = 8, 4, 5
CONSUMER_HEARTBEAT = 68


async def consumer_beat(asking: Asking, group: str, member: str = "m1", epoch: int = 0) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group,
        member,
        epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=(TOPIC,) if epoch == 0 else None,
        topic_partitions=() if epoch == 0 else None,
    )
    return await asking.ask(CONSUMER_HEARTBEAT, 1, request)


def test_members_of_a_group_are_told_what_it_was_configured_with() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        told: dict[str, Any] = {
            "consumer_session_timeout_ms": 50_000,
            "consumer_heartbeat_interval_ms": 7_000,
        }
        assert await alter(asking, GROUP, "readers", **told) == (0, None)
        assert (await consumer_beat(asking, "readers")).heartbeat_interval_ms == 7_000
        # Others are not.
        assert (await consumer_beat(asking, "others")).heartbeat_interval_ms < 7_000
        # 45 s are the default.
        await asking.skip(49)
        assert (await consumer_beat(asking, "readers", epoch=1)).error_code == 0
        assert (await consumer_beat(asking, "others", epoch=1)).error_code == 25
        await asking.skip(51)
        assert (await consumer_beat(asking, "readers", epoch=1)).error_code == 25

    run(scenario)


def test_a_heartbeat_makes_no_settings_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them would be checked, on the way that members of groups take most."""

    async def scenario() -> None:
        asking, shared = Asking(MemoryDisk()), Shared()
        await consumer_beat(asking, "readers")
        await shared.beat()
        made: list[NodeSettings] = []
        monkeypatch.setattr(NodeSettings, "__post_init__", lambda self: made.append(self))
        assert (await consumer_beat(asking, "readers", epoch=1)).error_code == 0
        assert (await shared.beat(epoch=1)).error_code == 0
        assert made == []

    run(scenario)


def test_a_share_groups_session_and_heartbeat_are_its_own() -> None:
    async def scenario() -> None:
        shared = Shared()
        told: dict[str, Any] = {
            "share_session_timeout_ms": 60_000,
            "share_heartbeat_interval_ms": 9_000,
        }
        assert await alter(shared, GROUP, NAME, **told) == (0, None)
        assert (await shared.beat()).heartbeat_interval_ms == 9_000
        await shared.skip(59)
        assert (await shared.beat(epoch=1)).error_code == 0

    run(scenario)


def test_what_is_configured_before_there_is_a_group_is_what_it_begins_with() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        told: dict[str, Any] = {
            "share_delivery_count_limit": 7,
            "share_auto_offset_reset": "earliest",
        }
        assert await alter(asking, GROUP, "later", **told) == (0, None)
        assert "later" not in asking.broker.topics.catalog.groups
        now_ms = asking.service.clock.now_ms()
        topic = asking.broker.topics.create(TOPIC, 1, TopicSettings(), now_ms)
        # By the SDK, whose other defaults it gets.
        group = asking.broker.groups.open("later", [topic], {}, now_ms, asking.service.commit())
        assert (group.settings.max_attempts, group.settings.backoff_ms) == (7, 1_000)

    run(scenario)


def test_a_value_that_was_set_shows_as_set_and_goes_back_when_deleted() -> None:
    async def scenario() -> None:
        shared = Shared()
        name = "share.delivery.count.limit"
        assert await alter(shared, GROUP, NAME, share_delivery_count_limit=5) == (0, None)
        shown = (await describe(shared, GROUP, NAME))[name]
        assert (shown.value, shown.source) == ("5", OF_GROUP)
        assert shown.synonyms == [(name, "5", OF_GROUP), (f"group.{name}", "5", DEFAULT)]
        assert await alter(shared, GROUP, NAME, share_delivery_count_limit=None) == (0, None)
        shown = (await describe(shared, GROUP, NAME))[name]
        assert (shown.value, shown.source) == ("5", DEFAULT)
        assert shared.broker.groups.named(NAME).settings.max_attempts == 5

    run(scenario)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_pause_between_two_assignments_is_kept_and_shown(kind: str) -> None:
    """There is none here: whoever asks for one gets the assignment sooner."""

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        name = f"{kind}.assignment.interval.ms"
        assert (await describe(asking, GROUP, "g"))[name].synonyms == [
            (f"group.{name}", "1000", DEFAULT)
        ]
        told: dict[str, Any] = {name: 5_000}
        assert await alter(asking, GROUP, "g", **told) == (0, None)
        assert (await describe(asking, GROUP, "g"))[name].synonyms == [
            (name, "5000", OF_GROUP),
            (f"group.{name}", "1000", DEFAULT),
        ]
        told[name] = -1
        assert (await alter(asking, GROUP, "g", **told))[0] == INVALID_CONFIG

    run(scenario)


def test_what_a_group_is_not_told_the_node_says() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        name = "consumer.session.timeout.ms"
        assert (await describe(asking, GROUP, "g"))[name].synonyms == [
            (f"group.{name}", "45000", DEFAULT)
        ]
        assert await alter(asking, GROUP, "g", consumer_session_timeout_ms=46_000) == (0, None)
        assert (await describe(asking, GROUP, "g"))[name].synonyms == [
            (name, "46000", OF_GROUP),
            (f"group.{name}", "45000", DEFAULT),
        ]

    run(scenario)


@pytest.mark.parametrize(
    "values",
    [
        {"consumer_session_timeout_ms": 1},
        {"consumer_session_timeout_ms": "long"},
        {"share_heartbeat_interval_ms": 60_001},
        {"share_delivery_count_limit": 0},
        {"share_partition_max_record_locks": -1},
        {"share_auto_offset_reset": "by_duration:1h"},
        {"no_such_config": 1},
    ],
)
def test_what_cannot_be_changes_nothing(values: dict[str, Any]) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        code, message = await alter(
            asking, GROUP, "g", share_record_lock_duration_ms=20_000, **values
        )
        [name] = values
        assert code == INVALID_CONFIG and name.replace("_", ".") in (message or "")
        assert not asking.broker.topics.catalog.configs

    run(scenario)


@pytest.mark.parametrize("name", ["__mine", "a/b", "wörk force"])
def test_a_group_is_configured_whatever_its_name_is(name: str) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        config = "share.delivery.count.limit"
        assert (await describe(asking, GROUP, name))[config].value == "5"
        assert await alter(asking, GROUP, name, share_delivery_count_limit=7) == (0, None)
        assert (await describe(asking, GROUP, name))[config].value == "7"

    run(scenario)


def test_the_group_of_the_dead_letters_is_the_nodes_own() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        code, message = await alter(asking, GROUP, DEAD_LETTER_GROUP, share_delivery_count_limit=7)
        assert code == INVALID_REQUEST and DEAD_LETTER_GROUP in (message or "")

    run(scenario)


def test_what_was_configured_is_there_after_a_restart_and_a_snapshot() -> None:
    async def scenario() -> None:
        shared = Shared()
        assert await alter(shared, GROUP, "g", consumer_session_timeout_ms=46_000) == (0, None)
        assert await alter(shared, GROUP, "h", share_isolation_level="read_committed") == (0, None)
        assert await alter(shared, GROUP, "h", share_isolation_level=None) == (0, None)
        catalog = shared.broker.topics.catalog
        shared = await shared.reopen()
        assert shared.broker.topics.catalog.configs == catalog.configs
        assert shared.door.live.rules("g").consumer_session_timeout_ms == 46_000

    run(scenario)
