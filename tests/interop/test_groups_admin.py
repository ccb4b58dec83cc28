"""Groups as an administrator sees and changes them, with real clients."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import (
    TOPIC,
    Member,
    make_topic,
    publish,
    quiet,
    share,
    wait_until,
)


def only(futures: dict[Any, Any]) -> Any:
    """The result of a call about one thing."""
    (future,) = futures.values()
    return future.result(10)


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = only(admin.list_consumer_group_offsets(asked))
    return {each.partition: each.offset for each in found.topic_partitions}


def refusal_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as refused:
        only(futures)
    error: KafkaError = refused.value.args[0]
    return error.code()


def test_groups_of_both_protocols_are_listed_and_described(node: NodeProcess) -> None:
    make_topic(node.bootstrap)
    admin = AdminClient(quiet(node.bootstrap))
    running = [
        Member(node.bootstrap, "old-style", "range", client_id="one"),
        Member(node.bootstrap, "new-style", "consumer"),
    ]
    try:
        wait_until(lambda: all(share([member], 4) for member in running), "both read")
        found = admin.list_consumer_groups().result(10)
        assert not found.errors
        assert {(each.group_id, each.type) for each in found.valid} == {
            ("old-style", ConsumerGroupType.CLASSIC),
            ("new-style", ConsumerGroupType.CONSUMER),
        }
        classic = {ConsumerGroupType.CLASSIC}
        found = admin.list_consumer_groups(types=classic).result(10)
        assert [each.group_id for each in found.valid] == ["old-style"]
        group = only(admin.describe_consumer_groups(["old-style"]))
        assert group.state == ConsumerGroupState.STABLE
        assert group.partition_assignor == "range"
        (member,) = group.members
        assert member.client_id == "one"
        assert {each.partition for each in member.assignment.topic_partitions} == {0, 1, 2, 3}
        group = only(admin.describe_consumer_groups(["new-style"]))
        assert group.state == ConsumerGroupState.STABLE
        (member,) = group.members
        assert {each.partition for each in member.assignment.topic_partitions} == {0, 1, 2, 3}
    finally:
        for each in running:
            each.close()
    found = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(10)
    assert {each.group_id for each in found.valid} == {"old-style", "new-style"}


def test_offsets_are_set_back_while_nobody_reads(node: NodeProcess) -> None:
    make_topic(node.bootstrap, partitions=1)
    admin = AdminClient(quiet(node.bootstrap))
    publish(node.bootstrap, [str(number) for number in range(10)])
    back = [ConsumerGroupTopicPartitions("billing", [TopicPartition(TOPIC, 0, 7)])]
    reader = Member(node.bootstrap, "billing", "range")
    try:
        wait_until(lambda: len(reader.values) == 10, "everything is read")
        refused = only(admin.alter_consumer_group_offsets(back)).topic_partitions[0].error
        assert refused.code() == KafkaError.UNKNOWN_MEMBER_ID
    finally:
        reader.close()
    assert offsets_of(admin, "billing") == {0: 10}
    only(admin.alter_consumer_group_offsets(back))
    node.restart(kill=True)
    assert offsets_of(AdminClient(quiet(node.bootstrap)), "billing") == {0: 7}
    again = Member(node.bootstrap, "billing", "consumer")
    try:
        wait_until(lambda: again.values == ["7", "8", "9"], "the last three are read again")
    finally:
        again.close()


def test_a_group_is_deleted_when_nobody_reads_any_more(node: NodeProcess) -> None:
    make_topic(node.bootstrap, partitions=1)
    admin = AdminClient(quiet(node.bootstrap))
    publish(node.bootstrap, ["one"])
    reader = Member(node.bootstrap, "billing", "consumer")
    try:
        wait_until(lambda: reader.values, "the message is read")
        assert refusal_of(admin.delete_consumer_groups(["billing"])) == (KafkaError.NON_EMPTY_GROUP)
    finally:
        reader.close()
    assert offsets_of(admin, "billing") == {0: 1}
    only(admin.delete_consumer_groups(["billing"]))
    assert offsets_of(admin, "billing") == {}
    assert refusal_of(admin.delete_consumer_groups(["billing"])) == KafkaError.GROUP_ID_NOT_FOUND
    assert admin.list_consumer_groups().result(10).valid == []


def test_a_pattern_follows_topics_that_are_made_later(node: NodeProcess) -> None:
    make_topic(node.bootstrap, "orders-east", partitions=1)
    make_topic(node.bootstrap, "returns", partitions=1)
    publish(node.bootstrap, ["east"], "orders-east")
    publish(node.bootstrap, ["not ordered"], "returns")
    reader = Member(node.bootstrap, "billing", "consumer", topics=("^orders-.*",))
    try:
        wait_until(lambda: reader.values == ["east"], "the topic that was there")
        make_topic(node.bootstrap, "orders-west", partitions=1)
        publish(node.bootstrap, ["west"], "orders-west")
        wait_until(lambda: reader.values == ["east", "west"], "the topic that came later")
    finally:
        reader.close()


def test_members_of_two_protocols_are_not_mixed_where_the_policy_forbids_it(
    node: NodeProcess,
) -> None:
    make_topic(node.bootstrap)
    admin = AdminClient(quiet(node.bootstrap))
    (broker,) = admin.list_topics(timeout=10).brokers
    policy = ConfigEntry(
        "group.consumer.migration.policy",
        "disabled",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[policy])
    only(admin.incremental_alter_configs([resource]))
    first = Member(node.bootstrap, "billing", "range")
    try:
        wait_until(lambda: share([first], 4), "the first member has everything")
        second = Member(node.bootstrap, "billing", "consumer")
        try:
            wait_until(lambda: second.fatal, "the second is refused")
        finally:
            second.close()
        publish(node.bootstrap, ["still here"])
        wait_until(lambda: first.values, "the first goes on")
    finally:
        first.close()
    third = Member(node.bootstrap, "billing", "consumer")
    try:
        wait_until(lambda: share([third], 4), "once the first is gone, the other kind may come")
    finally:
        third.close()
