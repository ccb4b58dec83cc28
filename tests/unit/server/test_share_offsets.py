"""How far a share group is: describing, changing and forgetting it."""

from __future__ import annotations

from typing import Any

from tests.unit.server.asking import run
from tests.unit.server.share_door import (
    ACCEPT,
    GROUP,
    REJECT,
    TOPIC,
    Shared,
    ranges,
)

from headrace.core import limits
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.kafka.generated.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.kafka.generated.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)

DESCRIBE, ALTER, DELETE = 90, 91, 92


async def described(shared: Shared, *topics: tuple[str, tuple[int, ...]]) -> Any:
    wanted = tuple(DescribeShareGroupOffsetsRequestTopic(*topic) for topic in topics)
    group = DescribeShareGroupOffsetsRequestGroup(GROUP, wanted or None)
    [answer] = (await shared.ask(DESCRIBE, 1, DescribeShareGroupOffsetsRequest((group,)))).groups
    return answer


async def places(shared: Shared) -> list[tuple[int, int, int]]:
    """Partition, start offset and lag of everything that the group reads."""
    answer = await described(shared)
    assert answer.error_code == 0
    return [
        (each.partition_index, each.start_offset, each.lag)
        for topic in answer.topics
        for each in topic.partitions
    ]


async def alter(shared: Shared, start: int, index: int = 0, topic: str = TOPIC) -> Any:
    partitions = (AlterShareGroupOffsetsRequestPartition(index, start),)
    topics = (AlterShareGroupOffsetsRequestTopic(topic, partitions),)
    return await shared.ask(ALTER, 0, AlterShareGroupOffsetsRequest(GROUP, topics))


async def forget(shared: Shared, topic: str = TOPIC) -> Any:
    topics = (DeleteShareGroupOffsetsRequestTopic(topic),)
    return await shared.ask(DELETE, 0, DeleteShareGroupOffsetsRequest(GROUP, topics))


def outcome(response: Any) -> int:
    assert response.error_code == 0, response
    [topic] = response.responses
    if hasattr(topic, "partitions"):
        error: int = topic.partitions[0].error_code
        return error
    code: int = topic.error_code
    return code


async def worked(shared: Shared) -> None:
    """Five messages, of which 0 and 3 are done and 4 is a dead letter; the member
    has left."""
    await shared.beat()
    await shared.publish(*[b"x"] * 5)
    await shared.fetch(0)
    acks = ((0, 0, (ACCEPT,)), (3, 4, (ACCEPT, REJECT)))
    await shared.fetch(-1, acks=acks)
    await shared.beat(epoch=-1)


def test_the_start_is_the_first_that_is_not_done_and_the_lag_what_is_not() -> None:
    async def scenario() -> None:
        shared = Shared(partitions=2)
        await worked(shared)
        assert await places(shared) == [(0, 1, 2), (1, 0, 0)]

    run(scenario)


def test_what_is_not_there_is_said_to_be_unknown() -> None:
    async def scenario() -> None:
        shared = Shared()
        answer = await described(shared, (TOPIC, (0, 7)), ("nothing", (0,)))
        (unread, beyond), (nowhere,) = (topic.partitions for topic in answer.topics)
        assert (unread.start_offset, unread.lag, unread.error_code) == (-1, -1, 0)
        assert beyond.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert nowhere.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        group = DescribeShareGroupOffsetsRequestGroup("nobody", None)
        request = DescribeShareGroupOffsetsRequest((group,))
        [unknown] = (await shared.ask(DESCRIBE, 1, request)).groups
        assert unknown.error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_an_altered_group_reads_from_there_with_no_deliveries_yet() -> None:
    async def scenario() -> None:
        shared = Shared()
        await worked(shared)
        assert outcome(await alter(shared, 2)) == 0
        assert await places(shared) == [(0, 2, 3)]
        await shared.beat("m2")
        assert ranges(await shared.fetch(0, "m2")) == [(2, 4, 1)]

    run(scenario)


def test_an_altered_start_outlives_a_restart() -> None:
    async def scenario() -> None:
        shared = Shared()
        await worked(shared)
        assert outcome(await alter(shared, 3)) == 0
        assert await places(await shared.reopen()) == [(0, 3, 2)]

    run(scenario)


def test_a_topic_can_be_begun_where_one_likes() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.publish(b"a", b"b", b"c")
        assert outcome(await alter(shared, 1)) == 0
        await shared.beat()
        assert ranges(await shared.fetch(0)) == [(1, 2, 1)]

    run(scenario)


def test_only_offsets_that_exist_can_be_the_start() -> None:
    async def scenario() -> None:
        shared = Shared()
        await worked(shared)
        assert outcome(await alter(shared, 6)) == Error.OFFSET_OUT_OF_RANGE
        assert outcome(await alter(shared, -1)) == Error.OFFSET_OUT_OF_RANGE
        assert outcome(await alter(shared, 0, 3)) == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert outcome(await alter(shared, 0, 0, "no")) == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await places(shared) == [(0, 1, 2)]

    run(scenario)


def test_an_administrator_may_name_more_topics_than_our_own_clients() -> None:
    async def scenario() -> None:
        shared = Shared()
        partitions = (AlterShareGroupOffsetsRequestPartition(0, 0),)
        topics = tuple(
            AlterShareGroupOffsetsRequestTopic(f"no-{number}", partitions)
            for number in range(limits.TOPICS_PER_CALL_MAX + 1)
        )
        answer = await shared.ask(ALTER, 0, AlterShareGroupOffsetsRequest(GROUP, topics))
        codes = {each.partitions[0].error_code for each in answer.responses}
        assert codes == {Error.UNKNOWN_TOPIC_OR_PARTITION}

    run(scenario)


def test_a_group_with_members_is_left_alone() -> None:
    async def scenario() -> None:
        shared = Shared()
        await worked(shared)
        await shared.beat("m2")
        assert (await alter(shared, 0)).error_code == Error.NON_EMPTY_GROUP
        assert (await forget(shared)).error_code == Error.NON_EMPTY_GROUP
        assert await places(shared) == [(0, 1, 2)]

    run(scenario)


def test_a_group_forgets_a_topic_and_begins_anew() -> None:
    async def scenario() -> None:
        shared = Shared()
        await worked(shared)
        assert outcome(await forget(shared)) == 0
        assert await places(shared) == []
        assert outcome(await forget(shared)) == 0
        assert outcome(await forget(shared, "no")) == Error.UNKNOWN_TOPIC_OR_PARTITION
        await shared.beat("m2")
        assert ranges(await shared.fetch(0, "m2")) == [(0, 4, 1)]

    run(scenario)


def test_what_a_group_forgot_stays_forgotten_after_a_restart() -> None:
    async def scenario() -> None:
        shared = Shared()
        await worked(shared)
        assert outcome(await forget(shared)) == 0
        assert await places(await shared.reopen()) == []

    run(scenario)


def test_a_group_that_is_given_a_start_is_made() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.publish(*[b"x"] * 5)
        topics = (
            AlterShareGroupOffsetsRequestTopic(
                TOPIC, (AlterShareGroupOffsetsRequestPartition(0, 3),)
            ),
        )
        request = AlterShareGroupOffsetsRequest("planned", topics)
        assert outcome(await shared.ask(ALTER, 0, request)) == 0
        group = DescribeShareGroupOffsetsRequestGroup("planned", None)
        described = await shared.ask(DESCRIBE, 1, DescribeShareGroupOffsetsRequest((group,)))
        [found] = described.groups[0].topics[0].partitions
        assert (found.start_offset, found.lag) == (3, 2)
        # It is as a group that its first member makes, with Kafka's defaults.
        made = shared.broker.groups.named("planned").settings
        assert (made.max_attempts, made.backoff_ms, made.start) == (5, 0, "latest")

    run(scenario)


def test_a_group_is_not_made_for_a_start_that_is_refused() -> None:
    async def scenario() -> None:
        shared = Shared()
        topics = (
            AlterShareGroupOffsetsRequestTopic(
                "nothing", (AlterShareGroupOffsetsRequestPartition(0, 0),)
            ),
        )
        refused = await shared.ask(ALTER, 0, AlterShareGroupOffsetsRequest("planned", topics))
        assert outcome(refused) == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert "planned" not in shared.broker.topics.catalog.groups

    run(scenario)


def test_a_group_that_is_not_there_forgets_nothing() -> None:
    async def scenario() -> None:
        shared = Shared()
        refused = await shared.ask(DELETE, 0, DeleteShareGroupOffsetsRequest("nobody", ()))
        assert refused.error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)
