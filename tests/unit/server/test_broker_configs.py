"""The node's own configuration: where each value comes from, and what may change."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.configuring import BROKER, alter, describe

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.connection import Connection
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)

INVALID_CONFIG, INVALID_REQUEST = 40, 42
OF_TOPIC, NODE, NODES, STARTED, DEFAULT = 1, 2, 3, 4, 5
TOPIC = 2
CREATE_TOPICS = 19


def as_told(name: str, value: int | None) -> dict[str, Any]:
    return {name: value}


def test_a_value_comes_from_the_first_place_that_has_one() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk(), rebalance_delay_ms=7)
        name, spelt = "group.initial.rebalance.delay.ms", "group_initial_rebalance_delay_ms"
        below: list[tuple[str, str | None, int]] = [(name, "7", STARTED), (name, "0", DEFAULT)]
        shown = (await describe(asking, BROKER, "1"))[name]
        assert (shown.value, shown.source, shown.is_read_only) == ("7", STARTED, False)
        assert shown.synonyms == below
        assert await alter(asking, BROKER, "", **as_told(spelt, 8)) == (0, None)
        assert await alter(asking, BROKER, "1", **as_told(spelt, 9)) == (0, None)
        shown = (await describe(asking, BROKER, "1"))[name]
        assert (shown.value, shown.source) == ("9", NODE)
        assert shown.synonyms == [(name, "9", NODE), (name, "8", NODES), *below]
        assert asking.door.settings.rebalance_delay_ms == 9
        told = (await describe(asking, BROKER, ""))[name]
        assert (told.value, told.source) == ("8", NODES)
        assert await alter(asking, BROKER, "1", **as_told(spelt, None)) == (0, None)
        assert asking.door.settings.rebalance_delay_ms == 8

    run(scenario)


def test_least_in_sync_replicas_are_set_for_all_as_by_brokers_of_kafka() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        name = "min.insync.replicas"
        request = CreateTopicsRequest((CreatableTopic("t", -1, -1, (), ()),), 1_000, False)
        [made] = (await asking.ask(CREATE_TOPICS, 7, request)).topics
        [source] = [each.config_source for each in made.configs if each.name == name]
        assert source == NODES
        for kind, resource in ((TOPIC, "t"), (BROKER, "1")):
            shown = (await describe(asking, kind, resource))[name]
            assert (shown.value, shown.source) == ("1", NODES)
            assert shown.synonyms == [(name, "1", NODES), (name, "1", DEFAULT)]
        assert (await describe(asking, BROKER, "")).keys() == {name}
        assert await alter(asking, TOPIC, "t", min_insync_replicas=1) == (0, None)
        shown = (await describe(asking, TOPIC, "t"))[name]
        assert shown.synonyms == [
            (name, "1", OF_TOPIC), (name, "1", NODES), (name, "1", DEFAULT),
        ]  # fmt: skip

    run(scenario)


def test_a_change_holds_at_once_and_after_a_restart() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        asking = Asking(disk)
        told: dict[str, Any] = {"num_partitions": 5, "auto_create_topics_enable": False}
        assert await alter(asking, BROKER, "1", **told) == (0, None)
        assert asking.broker.topics.auto_create_partitions == 0
        request = CreateTopicsRequest((CreatableTopic("t", -1, -1, (), ()),), 1_000, False)
        [made] = (await asking.ask(CREATE_TOPICS, 7, request)).topics
        assert (made.error_code, made.num_partitions) == (0, 5)
        await asking.close()
        again = Asking(disk)
        assert again.broker.topics.auto_create_partitions == 0
        assert again.door.settings.partitions == 5

    run(scenario)


def test_what_does_not_fit_any_more_is_ignored_alone() -> None:
    """The node was started again with other bounds, or is of another version."""

    async def scenario() -> None:
        disk = MemoryDisk()
        asking = Asking(disk)
        session = "group.consumer.session.timeout.ms"
        told: dict[str, Any] = {
            "group_consumer_session_timeout_ms": 58_000,
            "group_consumer_heartbeat_interval_ms": 6_000,
            "max_connections": 7,
        }
        assert await alter(asking, BROKER, "1", **told) == (0, None)
        assert await alter(asking, BROKER, "", num_partitions=5) == (0, None)
        assert await alter(asking, BROKER, "", group_share_session_timeout_ms=59_000) == (0, None)
        await asking.close()
        again = Asking(
            disk, consumer_session_timeout_max_ms=50_000, share_session_timeout_max_ms=50_000
        )
        now = again.door.settings
        assert (now.consumer_session_timeout_ms, now.share_session_timeout_ms) == (45_000, 45_000)
        assert (now.connections_max, now.partitions) == (7, 5)
        assert now.consumer_heartbeat_interval_ms == 6_000
        shown = await describe(again, BROKER, "1")
        assert (shown[session].value, shown[session].source) == ("45000", DEFAULT)
        assert (shown["max.connections"].value, shown["max.connections"].source) == ("7", NODE)
        # It is in nobody's way, and can be told anew or taken back.
        assert await alter(again, BROKER, "1", max_connections=8) == (0, None)
        assert await alter(again, BROKER, "1", **as_told(session, 59_000)) == (
            INVALID_CONFIG,
            "consumer_session_timeout_ms must be between 45000 and 50000, not 59000",
        )
        assert await alter(again, BROKER, "1", **as_told(session, 46_000)) == (0, None)
        assert again.door.settings.consumer_session_timeout_ms == 46_000
        name = "group_share_session_timeout_ms"
        assert await alter(again, BROKER, "", **as_told(name, None)) == (0, None)
        assert again.broker.topics.catalog.configs[BROKER, ""] == {"num.partitions": "5"}

    run(scenario)


def test_throttles_are_kept_and_shown_where_they_were_told_only() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        name = "leader.replication.throttled.rate"
        assert name not in await describe(asking, BROKER, "1")
        assert await alter(asking, BROKER, "1", **as_told(name, 1_000)) == (0, None)
        assert (await describe(asking, BROKER, "1"))[name].value == "1000"
        assert await alter(asking, BROKER, "1", **as_told(name, None)) == (0, None)
        assert name not in await describe(asking, BROKER, "1")

    run(scenario)


def test_the_longest_transaction_can_change() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        assert await alter(asking, BROKER, "1", transaction_max_timeout_ms=5_000) == (0, None)
        assert asking.door.transactions.timeout_ms_max == 5_000

    run(scenario)


def test_how_many_connections_an_address_may_have_can_change() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())

        def is_admitted() -> bool:
            connection = Connection(asking.door)
            connection.peer_host = "10.0.0.9"
            return asking.door.admit(connection)

        name = "max.connections.per.ip"
        assert [is_admitted(), is_admitted()] == [True, True]
        assert await alter(asking, BROKER, "1", **as_told(name, 3)) == (0, None)
        assert [is_admitted(), is_admitted()] == [True, False]
        assert await alter(asking, BROKER, "1", **as_told(name, 2**31 - 1)) == (0, None)
        assert [is_admitted(), is_admitted()] == [True, True]
        # As with Kafka, where it would let nobody in.
        code, message = await alter(asking, BROKER, "1", **as_told(name, 0))
        assert code == INVALID_CONFIG and name in (message or "")

    run(scenario)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("producer.id.expiration.ms", "86400000"),
        ("group.consumer.assignment.interval.ms", "1000"),
        ("group.share.assignment.interval.ms", "1000"),
    ],
)
def test_names_of_kafkas_without_a_meaning_here_are_kept_and_shown(name: str, default: str) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        shown = (await describe(asking, BROKER, "1"))[name]
        assert (shown.value, shown.source, shown.is_read_only) == (default, DEFAULT, False)
        assert await alter(asking, BROKER, "", **as_told(name, 2_000)) == (0, None)
        shown = (await describe(asking, BROKER, "1"))[name]
        assert (shown.value, shown.source) == ("2000", NODES)

    run(scenario)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"no_such_config": 1}, INVALID_CONFIG),
        ({"log_retention_ms": 1}, INVALID_CONFIG),
        ({"ssl_keystore_password": "x"}, INVALID_CONFIG),
        ({"num_partitions": 0}, INVALID_CONFIG),
        ({"num_io_threads": "many"}, INVALID_CONFIG),
        ({"group_consumer_session_timeout_ms": 4_000}, INVALID_CONFIG),
        ({"node_id": 7}, INVALID_REQUEST),
        ({"transactional_id_expiration_ms": 7}, INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changes_nothing(values: dict[str, Any], code: int) -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        outcome = await alter(asking, BROKER, "1", max_connections=7, **values)
        assert outcome[0] == code, outcome
        assert not asking.broker.topics.catalog.configs

    run(scenario)


def test_only_validated_is_not_changed() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        assert await alter(asking, BROKER, "1", is_tried=True, max_connections=7) == (0, None)
        assert not asking.broker.topics.catalog.configs

    run(scenario)


def test_another_node_is_not_here() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        code, message = await alter(asking, BROKER, "2", max_connections=7)
        assert code == INVALID_REQUEST and "only node 1" in (message or "")

    run(scenario)
