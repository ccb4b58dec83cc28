"""The APIs of streams groups at the Kafka door, request by request."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import run
from tests.unit.server.configuring import BROKER, GROUP, alter, describe
from tests.unit.server.streams_door import (
    APP,
    CHANGELOG,
    REPARTITION,
    TOPIC,
    TOPOLOGY,
    Streaming,
    shown,
    task_ids,
)

from headrace.core import limits
from headrace.server.kafka.errors import Error
from headrace.server.kafka.group_members import members_of
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.generated.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)
from headrace.wire.kafka.generated.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.generated.streams_group_heartbeat_request import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    Subtopology,
    TaskOffset,
    TopicInfo,
    Topology,
)

API_VERSIONS, LIST = 18, 16
CONSUMER_HEARTBEAT = 68
MISSING_SOURCE, MISSING_INTERNAL, DELAYED = 1, 3, 5


def test_streams_groups_are_a_finalised_feature() -> None:
    async def scenario() -> None:
        answer = await Streaming().ask(API_VERSIONS, 4, ApiVersionsRequest("test", "1"))
        assert ("streams.version", 0, 1) in map(tuple, answer.supported_features)
        assert ("streams.version", 1, 1) in map(tuple, answer.finalized_features)
        assert {88, 89} <= {each.api_key for each in answer.api_keys}

    run(scenario)


# An application starts.


def test_internal_topics_are_made_as_the_application_asks() -> None:
    async def scenario() -> None:
        asking = Streaming(partitions=3)
        answer = await asking.join()
        assert answer.error_code == 0
        assert MISSING_INTERNAL in [each.status_code for each in answer.status]
        topics = asking.broker.topics.catalog.topics
        assert topics[CHANGELOG].partitions == topics[REPARTITION].partitions == 3
        assert topics[CHANGELOG].settings.cleanup == "compact"
        assert topics[REPARTITION].settings.retention_ms is None
        assert topics[CHANGELOG].configs["message.timestamp.type"] == "CreateTime"
        after = await asking.beat("m1", answer.member_epoch)
        assert MISSING_INTERNAL not in [each.status_code for each in after.status]

    run(scenario)


def test_a_member_gets_tasks_once_the_group_has_waited_for_others() -> None:
    async def scenario() -> None:
        asking = Streaming()
        joined = await asking.join()
        assert DELAYED in [each.status_code for each in joined.status]
        assert (joined.active_tasks, joined.standby_tasks, joined.warmup_tasks) == ((), (), ())
        await asking.skip(4)
        answer = await asking.beat("m1", joined.member_epoch)
        assert shown(answer.active_tasks) == {"0": (0, 1), "1": (0, 1)}
        assert (answer.standby_tasks, answer.warmup_tasks) == ((), ())
        assert answer.status == ()
        quiet = await asking.beat("m1", answer.member_epoch)
        assert (quiet.active_tasks, quiet.standby_tasks, quiet.warmup_tasks) == (None,) * 3

    run(scenario)


def test_a_topic_that_cannot_be_made_is_told_of_with_the_reason() -> None:
    async def scenario() -> None:
        asking = Streaming()
        unknown = TopicInfo(CHANGELOG, topic_configs=(KeyValue("no.such.config", "1"),))
        topology = Topology(0, (Subtopology("0", (TOPIC,), state_changelog_topics=(unknown,)),))
        for _ in range(2):
            answer = await asking.join(topology=topology)
            (status,) = (each for each in answer.status if each.status_code == MISSING_INTERNAL)
            assert f"Internal topics are missing: {CHANGELOG}" in status.status_detail
            assert "Creation failed" in status.status_detail
            assert "no.such.config" in status.status_detail
        assert CHANGELOG not in asking.broker.topics.catalog.topics

    run(scenario)


def test_while_source_topics_are_missing_members_are_not_hurried() -> None:
    """A client gives up after two intervals without them."""

    async def scenario() -> None:
        asking = Streaming(partitions=0)
        answer = await asking.join()
        assert [each.status_code for each in answer.status] == [DELAYED, MISSING_SOURCE]
        assert answer.heartbeat_interval_ms == 5_000
        asking.make(TOPIC, 1)
        assert (await asking.beat("m1", answer.member_epoch)).heartbeat_interval_ms <= 500

    run(scenario)


def test_the_part_of_one_that_leaves_goes_to_the_other() -> None:
    async def scenario() -> None:
        asking = Streaming()
        first = await asking.settled()
        second = await asking.join("m2")
        await asking.skip(2)
        told = await asking.beat("m1", first.member_epoch)
        assert len(shown(told.active_tasks)) and told.member_epoch == first.member_epoch
        released = await asking.beat(
            "m1",
            told.member_epoch,
            active_tasks=told.active_tasks,
            standby_tasks=(),
            warmup_tasks=(),
        )
        assert released.member_epoch > first.member_epoch
        came = await asking.beat("m2", second.member_epoch)
        assert came.active_tasks
        left = await asking.beat("m2", -1)
        assert (left.error_code, left.member_epoch) == (0, -1)
        await asking.skip(2)
        back = await asking.beat("m1", released.member_epoch)
        assert shown(back.active_tasks) == {"0": (0, 1), "1": (0, 1)}

    run(scenario)


def test_a_silent_member_is_dropped_by_the_clock() -> None:
    async def scenario() -> None:
        asking = Streaming()
        answer = await asking.settled()
        await asking.skip(46)
        assert (await asking.describe()).group_state == "Empty"
        late = await asking.beat("m1", answer.member_epoch)
        assert late.error_code == Error.UNKNOWN_MEMBER_ID

    run(scenario)


def test_endpoints_of_all_instances_are_told_to_each() -> None:
    async def scenario() -> None:
        asking = Streaming()
        joined = await asking.join(user_endpoint=Endpoint("host", 8080))
        await asking.skip(4)
        answer = await asking.beat("m1", joined.member_epoch)
        (entry,) = answer.partitions_by_user_endpoint
        assert tuple(entry.user_endpoint) == ("host", 8080)
        assert {each.topic: tuple(each.partitions) for each in entry.active_partitions} == {
            TOPIC: (0, 1),
            REPARTITION: (0, 1),
        }
        epoch = answer.endpoint_information_epoch
        quiet = await asking.beat("m1", answer.member_epoch, endpoint_information_epoch=epoch)
        assert quiet.partitions_by_user_endpoint is None

    run(scenario)


# What is refused.


def sources(*names: str, **more: Any) -> Topology:
    return Topology(0, (Subtopology("0", names, **more),))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"instance_id": "static"}, Error.INVALID_REQUEST),
        ({"member_epoch": -2, "instance_id": "static"}, Error.INVALID_REQUEST),
        ({"member_epoch": -2}, Error.INVALID_REQUEST),
        ({"task_offsets": (TaskOffset("0", 0, 1),)}, Error.INVALID_REQUEST),
        ({"task_end_offsets": ()}, Error.INVALID_REQUEST),
        ({"warmup_tasks": task_ids({"0": (0,)})}, Error.INVALID_REQUEST),
        ({"standby_tasks": None}, Error.INVALID_REQUEST),
        ({"topology": sources(TOPIC, source_topic_regex=("o.*",))}, Error.INVALID_REQUEST),
        (
            {"topology": sources(TOPIC, copartition_groups=(CopartitionGroup((), (0,)),))},
            Error.INVALID_REQUEST,
        ),
        ({"topology": sources("no spaces")}, Error.STREAMS_INVALID_TOPOLOGY),
        ({"topology": sources("__cursors")}, Error.STREAMS_INVALID_TOPOLOGY),
        (
            {"topology": sources(TOPIC, repartition_sink_topics=("",))},
            Error.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": sources()}, Error.STREAMS_INVALID_TOPOLOGY),
        ({"topology": None}, Error.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_makes_no_group(changes: dict[str, Any], code: int) -> None:
    async def scenario() -> None:
        asking = Streaming()
        answer = await asking.join(**changes)
        assert answer.error_code == code and answer.error_message
        assert (await asking.describe()).error_code == Error.GROUP_ID_NOT_FOUND
        assert (await asking.ask(LIST, 5, ListGroupsRequest())).groups == ()

    run(scenario)


def test_a_name_belongs_to_one_kind_of_group_while_it_has_members() -> None:
    async def scenario() -> None:
        asking = Streaming()
        await asking.join()
        request = ConsumerGroupHeartbeatRequest(
            APP, "c1", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=(TOPIC,),
            topic_partitions=(),
        )  # fmt: skip
        refused = await asking.ask(CONSUMER_HEARTBEAT, 1, request)
        assert refused.error_code == Error.GROUP_ID_NOT_FOUND
        await asking.ask(CONSUMER_HEARTBEAT, 1, request._replace(group_id="other"))
        taken = await asking.join(group_id="other")
        assert (
            taken.error_code == Error.GROUP_ID_NOT_FOUND and "another kind" in taken.error_message
        )

    run(scenario)


def test_a_topology_that_does_not_fit_is_told_to_come_again() -> None:
    async def scenario() -> None:
        asking = Streaming()
        groups = asking.door.groups
        groups.budget.bytes_max = 3 * limits.MEMBER_BYTES_MAX // 2
        large = sources(TOPIC, state_changelog_topics=(
            TopicInfo(CHANGELOG, topic_configs=(KeyValue("k", "v" * 30_000),) * 30),
        ))  # fmt: skip
        assert (await asking.join(topology=large, group_id="first")).error_code == 0
        refused = await asking.join(topology=large, group_id="second")
        assert refused.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
        # What is kept of a group without members makes room.
        await asking.beat("m1", -1, group_id="first")
        assert groups.budget.size_bytes > 900_000
        assert (await asking.join(topology=large, group_id="second")).error_code == 0
        assert (await asking.describe("first")).error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


# What others are shown.


def test_a_group_is_described_with_its_topology_and_members() -> None:
    async def scenario() -> None:
        asking = Streaming()
        answer = await asking.settled()
        group = await asking.describe()
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert group.group_epoch == group.assignment_epoch == answer.member_epoch
        first, second = group.topology.subtopologies
        assert first.source_topics == (TOPIC,) and first.repartition_sink_topics == (REPARTITION,)
        (changelog,), (repartition,) = (
            second.state_changelog_topics,
            second.repartition_source_topics,
        )
        assert (changelog.name, changelog.partitions) == (CHANGELOG, 2)
        assert dict(map(tuple, changelog.topic_configs))["cleanup.policy"] == "compact"
        assert (repartition.partitions, repartition.replication_factor) == (2, 1)
        (member,) = group.members
        assert (member.member_id, member.member_epoch) == ("m1", answer.member_epoch)
        assert (member.client_id, member.client_host) == ("app", "10.0.0.7")
        assert member.process_id == "process of m1"
        assert shown(member.assignment.active_tasks) == {"0": (0, 1), "1": (0, 1)}
        assert member.target_assignment == member.assignment
        assert member.user_endpoint is None and not member.is_classic

    run(scenario)


def test_groups_are_listed_with_their_type_and_state() -> None:
    async def scenario() -> None:
        asking = Streaming()
        await asking.settled()

        async def listed(**filters: Any) -> list[tuple[Any, ...]]:
            answer = await asking.ask(LIST, 5, ListGroupsRequest(**filters))
            return [tuple(each) for each in answer.groups]

        entry = [(APP, "streams", "Stable", "streams")]
        assert await listed() == await listed(types_filter=("Streams",)) == entry
        assert await listed(states_filter=("Stable",)) == entry
        assert await listed(types_filter=("consumer",)) == []
        await asking.beat("m1", -1)
        assert await listed(states_filter=("Empty",)) == [(APP, "streams", "Empty", "streams")]

    run(scenario)


def test_members_are_shown_with_the_partitions_that_their_tasks_read() -> None:
    async def scenario() -> None:
        asking = Streaming()
        await asking.settled()
        (member,) = members_of(asking.door.groups, asking.door.shares, APP)
        assert member.id == "m1"
        assert (TOPIC, 0) in member.assigned and (REPARTITION, 1) in member.assigned
        assert asking.door.groups.streams_with_members() == [APP]

    run(scenario)


# Configuration.


def test_a_group_is_configured_by_its_name() -> None:
    async def scenario() -> None:
        asking = Streaming()
        told: dict[str, Any] = {
            "streams_session_timeout_ms": 60_000,
            "streams_heartbeat_interval_ms": 7_000,
            "streams_num_standby_replicas": 1,
            "streams_initial_rebalance_delay_ms": 0,
            "streams_assignment_interval_ms": 0,
        }
        assert await alter(asking, GROUP, APP, **told) == (0, None)
        configs = await describe(asking, GROUP, APP)
        for name, value in told.items():
            assert configs[name.replace("_", ".")].value == str(value)
        asking.make(CHANGELOG, 2)
        asking.make(REPARTITION, 2)
        first = await asking.join()
        assert first.active_tasks and first.heartbeat_interval_ms == 7_000
        second = await asking.join("m2")
        told_first = await asking.beat("m1", first.member_epoch)
        await asking.beat(
            "m1", first.member_epoch, active_tasks=told_first.active_tasks, standby_tasks=(),
            warmup_tasks=(),
        )  # fmt: skip
        answer = await asking.beat("m2", second.member_epoch)
        assert answer.active_tasks
        group = await asking.describe()
        copies = [shown(each.target_assignment.standby_tasks) for each in group.members]
        assert sorted(number for each in copies for number in each.get("1", ())) == [0, 1]
        await asking.skip(59)
        assert (await asking.describe()).members

    run(scenario)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("streams_num_standby_replicas", 3),
        ("streams_num_standby_replicas", -1),
        ("streams_session_timeout_ms", 1_000),
        ("streams_heartbeat_interval_ms", 60_000),
        ("streams_assignment_interval_ms", 15_001),
        ("streams_initial_rebalance_delay_ms", -1),
        ("streams_assignment_interval_ms", "soon"),
    ],
)
def test_a_value_beyond_its_bounds_is_refused(name: str, value: Any) -> None:
    async def scenario() -> None:
        code, message = await alter(Streaming(), GROUP, APP, **{name: value})
        assert code == Error.INVALID_CONFIG
        assert message and name.replace("_", ".") in message

    run(scenario)


def test_the_nodes_defaults_hold_for_groups_that_were_told_nothing() -> None:
    async def scenario() -> None:
        asking = Streaming()
        assert await alter(
            asking,
            BROKER,
            "",
            group_streams_initial_rebalance_delay_ms=0,
            group_streams_num_standby_replicas=2,
            group_streams_max_size=1,
        ) == (0, None)
        shown_ = await describe(asking, GROUP, APP)
        assert shown_["streams.num.standby.replicas"].value == "2"
        await asking.join()
        answer = await asking.beat("m1", (await asking.describe()).members[0].member_epoch)
        assert DELAYED not in [each.status_code for each in answer.status]
        refused = await asking.join("m2")
        assert refused.error_code == Error.GROUP_MAX_SIZE_REACHED

    run(scenario)


def test_a_topology_is_the_same_in_whatever_order_it_comes() -> None:
    async def scenario() -> None:
        asking = Streaming()
        await asking.join()
        backwards = TOPOLOGY._replace(subtopologies=tuple(reversed(TOPOLOGY.subtopologies)))
        assert (await asking.join("m2", topology=backwards)).error_code == 0

    run(scenario)
