"""What groups have committed: who may write it, who reads it, how it goes away."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.test_groups import (
    COMMIT,
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    FETCH,
    GROUP,
    TOPIC,
    commit,
    committed,
    committing,
    door_with_topic,
    heart,
    join_alone,
)

from headrace.core import limits
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated import (
    consumer_protocol_assignment,
    consumer_protocol_subscription,
)
from headrace.wire.kafka.generated.consumer_group_describe_request import (
    ConsumerGroupDescribeRequest,
)
from headrace.wire.kafka.generated.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from headrace.wire.kafka.generated.delete_groups_request import DeleteGroupsRequest
from headrace.wire.kafka.generated.describe_groups_request import DescribeGroupsRequest
from headrace.wire.kafka.generated.join_group_request import JoinGroupRequestProtocol
from headrace.wire.kafka.generated.list_groups_request import ListGroupsRequest
from headrace.wire.kafka.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

DESCRIBE, LIST, DELETE, OFFSET_DELETE = 15, 16, 42, 47


def subscribed(*topics: str) -> tuple[JoinGroupRequestProtocol, ...]:
    """What a real consumer says of itself."""
    encoded = consumer_protocol_subscription.ENCODERS[0](ConsumerProtocolSubscription(topics))
    return (JoinGroupRequestProtocol("range", b"".join((b"\x00\x00", *encoded))),)


async def describe(asking: Asking, name: str = GROUP, version: int = 6) -> Any:
    response = await asking.ask(DESCRIBE, version, DescribeGroupsRequest((name,)))
    return response.groups[0]


async def listed(asking: Asking, version: int = 5, **filters: Any) -> list[tuple[str, ...]]:
    response = await asking.ask(LIST, version, ListGroupsRequest(**filters))
    return [tuple(group) for group in response.groups]


async def delete(asking: Asking, name: str = GROUP, version: int = 2) -> int:
    response = await asking.ask(DELETE, version, DeleteGroupsRequest((name,)))
    error: int = response.results[0].error_code
    return error


async def delete_offsets(asking: Asking, partition: int = 0) -> Any:
    topic = OffsetDeleteRequestTopic(TOPIC, (OffsetDeleteRequestPartition(partition),))
    return await asking.ask(OFFSET_DELETE, 0, OffsetDeleteRequest(GROUP, (topic,)))


def open_queue(asking: Asking, name: str) -> None:
    now_ms = asking.service.clock.now_ms()
    topic = asking.broker.topics.named(TOPIC)
    asking.broker.groups.open(name, [topic], {}, now_ms, asking.service.commit())


# Committing.


def test_only_members_of_this_generation_commit_while_there_are_members() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        joined = await join_alone(asking)
        member, generation = joined.member_id, joined.generation_id
        for offset, who, when, error in (
            (1, member, generation, Error.NONE),
            (2, member, generation - 1, Error.ILLEGAL_GENERATION),
            (3, "somebody else", generation, Error.UNKNOWN_MEMBER_ID),
            (4, "", -1, Error.UNKNOWN_MEMBER_ID),
        ):
            assert await commit(asking, 9, committing(asking, offset, who, when)) == error
        assert (await committed(asking, 9)).committed_offset == 1

    run(scenario)


def test_a_consumer_member_commits_and_reads_with_its_own_epoch_alone() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        joined = await asking.ask(CONSUMER_HEARTBEAT, 1, heart("member", 0))
        epoch = joined.member_epoch
        assert await commit(asking, 9, committing(asking, 5, "member", epoch)) == 0
        stale = Error.STALE_MEMBER_EPOCH
        assert await commit(asking, 9, committing(asking, 6, "member", epoch + 1)) == stale
        for who, when, error in (
            ("member", epoch, Error.NONE),
            ("member", epoch + 1, stale),
            ("nobody", epoch, Error.UNKNOWN_MEMBER_ID),
            (None, -1, Error.NONE),
        ):
            wanted = OffsetFetchRequestGroup(GROUP, who, when, None)
            fetched = await asking.ask(FETCH, 9, OffsetFetchRequest(groups=(wanted,)))
            assert fetched.groups[0].error_code == error
            assert bool(fetched.groups[0].topics) == (error == 0)

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"partition_index": 3}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition_index": -1}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (
            {"committed_metadata": "ü" * (limits.METADATA_BYTES_MAX // 2 + 1)},
            Error.OFFSET_METADATA_TOO_LARGE,
        ),
        ({"committed_metadata": "ü" * (limits.METADATA_BYTES_MAX // 2)}, Error.NONE),
        ({"committed_metadata": None}, Error.NONE),
    ],
)
def test_a_commit_that_cannot_be_right_is_refused(changes: dict[str, Any], error: Error) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        assert await commit(asking, 9, committing(asking, 1, **changes)) == error
        assert bool(asking.broker.cursors.of(GROUP)) == (error == 0)

    run(scenario)


@pytest.mark.parametrize("offset", [-1, -2, -5])
def test_what_is_no_position_is_kept_for_clients_that_know_it(offset: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        assert await commit(asking, 9, committing(asking, offset)) == 0
        assert (await committed(asking, 9)).committed_offset == offset
        place = next(iter(asking.broker.cursors.of(GROUP)))
        # Nothing is kept for it.
        assert asking.broker.cursors.lowest(place) is None
        assert await commit(asking, 9, committing(asking, 3)) == 0
        assert asking.broker.cursors.lowest(place) == 3

    run(scenario)


@pytest.mark.parametrize(
    ("version", "error"),
    [(9, Error.UNKNOWN_TOPIC_OR_PARTITION), (10, Error.UNKNOWN_TOPIC_ID)],
)
def test_a_topic_that_does_not_exist_does_not_spoil_the_rest_of_a_commit(
    version: int, error: Error
) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        request = committing(asking, 1)
        (good,) = request.topics
        bad = good._replace(name="nowhere", topic_id=b"x" * 16)
        response = await asking.ask(COMMIT, version, request._replace(topics=(bad, good)))
        assert [each.partitions[0].error_code for each in response.topics] == [error, 0]
        assert (await committed(asking, version)).committed_offset == 1
        wanted = OffsetFetchRequestTopics("nowhere", b"x" * 16, (0,))
        group = OffsetFetchRequestGroup(GROUP, topics=(wanted,))
        fetched = await asking.ask(FETCH, version, OffsetFetchRequest(groups=(group,)))
        (partition,) = fetched.groups[0].topics[0].partitions
        assert partition.committed_offset == -1
        assert partition.error_code == (error if version == 10 else 0)

    run(scenario)


def test_there_is_a_most_of_groups_that_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        monkeypatch.setattr(limits, "GROUPS_MAX", 2)
        errors = []
        for name in ("one", "two", "three", "one"):
            request = committing(asking, 1)._replace(group_id=name)
            errors.append(await commit(asking, 9, request))
        assert errors == [0, 0, Error.POLICY_VIOLATION, 0]

    run(scenario)


# Reading.


@pytest.mark.parametrize("version", range(1, 11))
def test_what_was_never_committed_is_minus_one_and_no_error(version: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        found = await committed(asking, version)
        assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", 0)

    run(scenario)


@pytest.mark.parametrize("version", range(2, 11))
def test_without_topics_everything_that_a_group_committed_is_shown(version: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        for index in range(3):
            request = committing(asking, 10 + index, partition_index=index)
            assert await commit(asking, 9, request) == 0
        if version < 8:
            response = await asking.ask(FETCH, version, OffsetFetchRequest(GROUP, None))
        else:
            groups = [OffsetFetchRequestGroup(name, topics=None) for name in (GROUP, "other")]
            both = (await asking.ask(FETCH, version, OffsetFetchRequest(groups=groups))).groups
            response, other = both
            assert other.topics == ()
        (topic,) = response.topics
        assert version == 10 or topic.name == TOPIC
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [
            (0, 10),
            (1, 11),
            (2, 12),
        ]

    run(scenario)


def test_a_group_of_the_sdk_and_a_kafka_group_share_their_positions() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        cursors = asking.broker.cursors
        assert await commit(asking, 9, committing(asking, 6)) == 0
        topic = asking.broker.topics.named(TOPIC)
        found = cursors.find(GROUP, (topic.id, 0))
        assert found is not None
        assert (found.offset, found.metadata, found.leader_epoch) == (6, "a note", 5)
        cursors.join(GROUP, "worker-1", [TOPIC], "earliest")
        group = await describe(asking)
        assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
        (member,) = group.members
        assert member.member_id == "worker-1"
        data = bytes(member.member_assignment)
        assigned = consumer_protocol_assignment.DECODERS[0](data, 2).assigned_partitions
        assert [(each.topic, list(each.partitions)) for each in assigned] == [(TOPIC, [0, 1, 2])]
        assert await listed(asking) == [(GROUP, "consumer", "Stable", "classic")]

    run(scenario)


# Describing and listing.


@pytest.mark.parametrize("version", range(7))
def test_a_classic_group_is_described_in_every_version(version: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        joined = await join_alone(asking)
        group = await describe(asking, version=version)
        assert (group.group_state, group.protocol_type, group.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert member.member_id == joined.member_id
        assert (member.client_id, member.client_host) == ("app", "10.0.0.7")
        assert bytes(member.member_assignment) == b"my part"
        missing = await describe(asking, "nobody", version)
        assert missing.group_state == "Dead"
        assert missing.error_code == (Error.GROUP_ID_NOT_FOUND if version == 6 else 0)

    run(scenario)


def test_offsets_without_members_are_an_empty_group() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        assert await commit(asking, 9, committing(asking, 6)) == 0
        assert (await describe(asking)).group_state == "Empty"
        assert await listed(asking) == [(GROUP, "consumer", "Empty", "classic")]

    run(scenario)


def test_each_kind_of_group_is_described_by_its_own_api() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await asking.ask(CONSUMER_HEARTBEAT, 1, heart("member", 0))
        open_queue(asking, "workers")
        for name in (GROUP, "workers"):
            assert (await describe(asking, name)).error_code == Error.GROUP_ID_NOT_FOUND
        described = await asking.ask(
            CONSUMER_DESCRIBE, 1, ConsumerGroupDescribeRequest((GROUP, "workers"))
        )
        assert [each.error_code for each in described.groups] == [0, Error.GROUP_ID_NOT_FOUND]

    run(scenario)


def test_groups_are_listed_by_state_and_by_type() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await asking.ask(CONSUMER_HEARTBEAT, 1, heart("member", 0))
        open_queue(asking, "workers")
        request = committing(asking, 1)._replace(group_id="idle")
        assert await commit(asking, 9, request) == 0
        consumer = (GROUP, "consumer", "Stable", "consumer")
        idle = ("idle", "consumer", "Empty", "classic")
        workers = ("workers", "share", "Empty", "share")
        assert await listed(asking) == [consumer, idle, workers]
        assert await listed(asking, types_filter=("Consumer",)) == [consumer]
        assert await listed(asking, types_filter=("share", "classic")) == [idle, workers]
        assert await listed(asking, states_filter=("EMPTY",)) == [idle, workers]
        assert await listed(asking, states_filter=("Stable",), types_filter=("share",)) == []
        assert await listed(asking, types_filter=("nonsense",)) == []
        for version in range(6):
            names = [group[0] for group in await listed(asking, version)]
            assert names == [GROUP, "idle", "workers"]

    run(scenario)


# Going away.


@pytest.mark.parametrize("version", range(3))
def test_a_deleted_group_takes_its_offsets_along(version: int) -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        assert await delete(asking, version=version) == Error.GROUP_ID_NOT_FOUND
        assert await commit(asking, 9, committing(asking, 6)) == 0
        assert await delete(asking, version=version) == 0
        assert (await committed(asking, 9)).committed_offset == -1
        assert await listed(asking) == []

    run(scenario)


def test_a_group_with_members_cannot_be_deleted() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await join_alone(asking)
        assert await delete(asking) == Error.NON_EMPTY_GROUP
        await asking.skip(10.1)
        assert await delete(asking) == 0
        asking.broker.cursors.join(GROUP, "worker-1", [TOPIC], "earliest")
        assert await delete(asking) == Error.NON_EMPTY_GROUP

    run(scenario)


def test_a_queue_group_can_be_deleted_and_our_own_cannot() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        open_queue(asking, "workers")
        assert await delete(asking, "workers") == 0
        assert "workers" not in asking.broker.topics.catalog.groups
        now_ms = asking.service.clock.now_ms()
        asking.broker.groups.dead_letters(asking.broker.topics.named(TOPIC), now_ms)
        assert await delete(asking, "__dead-letters") == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_offsets_of_a_topic_that_nobody_reads_can_be_deleted() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        assert (await delete_offsets(asking)).error_code == Error.GROUP_ID_NOT_FOUND
        assert await commit(asking, 9, committing(asking, 6)) == 0
        await join_alone(asking, protocols=subscribed("something else"))
        response = await delete_offsets(asking)
        assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
        assert (await committed(asking, 9)).committed_offset == -1
        unknown = (await delete_offsets(asking, 9)).topics[0].partitions[0].error_code
        assert unknown == Error.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_offsets_of_a_topic_that_is_being_read_stay() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        joined = await join_alone(asking, protocols=subscribed(TOPIC))
        request = committing(asking, 6, joined.member_id, joined.generation_id)
        assert await commit(asking, 9, request) == 0
        response = await delete_offsets(asking)
        assert response.topics[0].partitions[0].error_code == Error.GROUP_SUBSCRIBED_TO_TOPIC
        assert (await committed(asking, 9)).committed_offset == 6

    run(scenario)


def test_offsets_stay_while_nobody_can_know_what_the_members_read() -> None:
    async def scenario() -> None:
        asking = door_with_topic()
        await join_alone(asking, protocol_type="connect")
        assert (await delete_offsets(asking)).error_code == Error.NON_EMPTY_GROUP

    run(scenario)
