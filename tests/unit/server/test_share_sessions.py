"""Share sessions: how they begin, go on and end, and what acknowledgements come to."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.asking import run
from tests.unit.server.share_door import (
    ACCEPT,
    DESCRIBE,
    FETCH,
    GROUP,
    HEARTBEAT,
    REJECT,
    RELEASE,
    RENEW,
    TOPIC,
    Ack,
    Shared,
    ack_error,
    ranges,
)

from headrace.core import limits
from headrace.core.settings import TopicSettings
from headrace.record import check_batch, read_records
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.errors import Error
from headrace.server.kafka.share_groups import LEAVE_SECONDS
from headrace.wire.kafka.generated.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from headrace.wire.kafka.generated.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.kafka.generated.share_group_heartbeat_request import ShareGroupHeartbeatRequest


def test_a_session_fetches_acknowledges_and_goes_on() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"a", b"b", b"c")
        first = await shared.fetch(0)
        assert ranges(first) == [(0, 2, 1)]
        assert first.acquisition_lock_timeout_ms == 30_000
        records = first.responses[0].partitions[0].records
        check_batch(records)
        assert [record.value for record in read_records(records)] == [b"a", b"b", b"c"]
        second = await shared.fetch(1, acks=((0, 2, (ACCEPT, RELEASE, ACCEPT)),))
        assert ack_error(second) == 0
        assert ranges(second) == [(1, 1, 2)]
        assert ack_error(await shared.acknowledge(2, (1, 1, (ACCEPT,)))) == 0
        assert ranges(await shared.fetch(3)) == []

    run(scenario)


def test_many_come_in_whole_batches_unless_the_member_counts_records() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        for _ in range(4):
            await shared.publish(*[b"x"] * 120)
        assert ranges(await shared.fetch(0, count=100)) == [(0, 119, 1)]
        assert ranges(await shared.fetch(1, count=100, exact=True)) == [(120, 219, 1)]
        assert ranges(await shared.fetch(2, count=100, version=1)) == [(220, 359, 1)]
        # Also where few are asked for, as with Kafka.
        assert ranges(await shared.fetch(3, count=50)) == [(360, 479, 1)]

    run(scenario)


def test_a_peer_that_does_not_take_its_answers_is_given_no_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.fetch(0)
        await shared.publish(b"a", b"b")
        with monkeypatch.context() as congested:
            congested.setattr(Connection, "is_congested", True)
            assert ranges(await shared.fetch(1)) == []
        assert ranges(await shared.fetch(2)) == [(0, 1, 1)]

    run(scenario)


def test_a_session_has_to_be_known_and_its_epoch_the_next() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        assert (await shared.fetch(1)).error_code == Error.SHARE_SESSION_NOT_FOUND
        assert (await shared.acknowledge(1)).error_code == Error.SHARE_SESSION_NOT_FOUND
        assert (await shared.fetch(-1)).error_code == Error.SHARE_SESSION_NOT_FOUND
        await shared.fetch(0)
        assert (await shared.fetch(2)).error_code == Error.INVALID_SHARE_SESSION_EPOCH
        assert (await shared.acknowledge(5)).error_code == Error.INVALID_SHARE_SESSION_EPOCH
        assert (await shared.acknowledge(0)).error_code == Error.INVALID_SHARE_SESSION_EPOCH
        assert (await shared.fetch(1)).error_code == 0
        # Each request counts, whichever of the two it is.
        assert (await shared.acknowledge(2)).error_code == 0
        assert (await shared.fetch(3, "another")).error_code == Error.SHARE_SESSION_NOT_FOUND

    run(scenario)


def test_a_session_opens_without_acknowledgements() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        refused = await shared.fetch(0, acks=((0, 0, (ACCEPT,)),))
        assert refused.error_code == Error.INVALID_REQUEST

    run(scenario)


def test_an_unknown_group_is_refused() -> None:
    async def scenario() -> None:
        shared = Shared()
        assert (await shared.fetch(0, group="nobody")).error_code == Error.GROUP_ID_NOT_FOUND
        refused = await shared.acknowledge(1, group="nobody")
        assert refused.error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


def test_our_own_groups_are_nobodys() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"x")
        await shared.fetch(0)
        await shared.fetch(1, acks=((0, 0, (REJECT,)),))
        letters = next(group for group in shared.broker.topics.catalog.groups if group != GROUP)
        assert (await shared.fetch(0, group=letters)).error_code == Error.GROUP_ID_NOT_FOUND
        request = ShareGroupHeartbeatRequest(letters, "m1", 0, None, (f"{TOPIC}.dlq",))
        answer = await shared.ask(HEARTBEAT, 1, request)
        assert answer.error_code == Error.GROUP_ID_NOT_FOUND

    run(scenario)


@pytest.mark.parametrize("name", ["__mine", "a/b", "wörk force"])
def test_a_group_may_have_any_name_as_in_kafka(name: str) -> None:
    async def scenario() -> None:
        shared = Shared()
        request = ShareGroupHeartbeatRequest(name, "m1", 0, None, (TOPIC,))
        assert (await shared.ask(HEARTBEAT, 1, request)).error_code == 0
        # A new group begins at the end.
        await shared.publish(b"x")
        (found,) = (await shared.fetch(0, group=name)).responses[0].partitions
        assert [each.first_offset for each in found.acquired_records] == [0]

    run(scenario)


def test_a_name_that_no_group_can_have_is_refused_with_a_reason() -> None:
    async def scenario() -> None:
        shared = Shared()
        request = ShareGroupHeartbeatRequest("x" * 250, "m1", 0, None, (TOPIC,))
        answer = await shared.ask(HEARTBEAT, 1, request)
        assert answer.error_code == Error.INVALID_GROUP_ID
        assert answer.error_message

    run(scenario)


def test_there_are_only_so_many_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARE_SESSIONS_MAX", 2)

    async def scenario() -> None:
        shared = Shared()
        for member in ("m1", "m2", "m3"):
            await shared.beat(member)
        assert (await shared.fetch(0, "m1")).error_code == 0
        assert (await shared.fetch(0, "m2")).error_code == 0
        assert (await shared.fetch(0, "m3")).error_code == Error.SHARE_SESSION_LIMIT_REACHED
        # One that begins anew takes no more room.
        assert (await shared.fetch(0, "m2")).error_code == 0
        await shared.fetch(-1, "m1")
        assert (await shared.fetch(0, "m3")).error_code == 0

    run(scenario)


def test_a_member_asks_only_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARE_SESSION_PARTITIONS_MAX", 1)

    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        assert (await shared.fetch(0)).error_code == 0
        refused = await shared.fetch(1, topic_id=b"x" * 16)
        assert refused.error_code == Error.INVALID_REQUEST
        assert (await shared.fetch(2)).error_code == Error.SHARE_SESSION_NOT_FOUND

    run(scenario)


def test_a_member_that_lost_count_begins_anew_and_keeps_what_it_holds() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"x")
        assert ranges(await shared.fetch(0)) == [(0, 0, 1)]
        assert ranges(await shared.fetch(0)) == []
        assert ack_error(await shared.fetch(1, acks=((0, 0, (ACCEPT,)),))) == 0

    run(scenario)


def test_the_final_epoch_acknowledges_and_gives_back_at_no_cost() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat("m1")
        await shared.beat("m2")
        await shared.publish(b"a", b"b", b"c")
        await shared.fetch(0)
        last = await shared.fetch(-1, acks=((0, 0, (ACCEPT,)),))
        assert ack_error(last) == 0
        assert ranges(await shared.fetch(0, "m2")) == [(1, 2, 1)]
        assert (await shared.fetch(1)).error_code == Error.SHARE_SESSION_NOT_FOUND

    run(scenario)


def test_acknowledgements_behind_the_farewell_count() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"a", b"b")
        await shared.fetch(0)
        assert (await shared.beat(epoch=-1)).error_code == 0
        assert ack_error(await shared.acknowledge(-1, (0, 0, (ACCEPT,)))) == 0
        await shared.beat("m2")
        assert ranges(await shared.fetch(0, "m2")) == [(1, 1, 1)]

    run(scenario)


def test_a_member_that_only_leaves_gives_back_after_a_moment() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat("m1")
        await shared.beat("m2")
        await shared.publish(b"x")
        await shared.fetch(0)
        await shared.beat("m1", -1)
        assert ranges(await shared.fetch(0, "m2")) == []
        await shared.skip(LEAVE_SECONDS)
        assert ranges(await shared.fetch(1, "m2")) == [(0, 0, 1)]

    run(scenario)


def test_a_silent_members_leases_end_with_its_membership() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat("m1")
        await shared.publish(b"x")
        await shared.fetch(0)
        await shared.skip(30)
        await shared.beat("m2")
        assert ranges(await shared.fetch(0, "m2")) == []
        await shared.skip(15.1)
        assert ranges(await shared.fetch(1, "m2")) == [(0, 0, 2)]

    run(scenario)


def test_a_broken_connection_ends_its_sessions_leases_as_deliveries() -> None:
    async def scenario() -> None:
        shared = Shared(max_attempts=2)
        await shared.beat("m1")
        await shared.beat("m2")
        await shared.publish(b"poison")
        for member, deliveries in (("m1", 1), ("m2", 2)):
            broken = shared.connection = Connection(shared.door)
            assert ranges(await shared.fetch(0, member)) == [(0, 0, deliveries)]
            shared.connection = Connection(shared.door)
            broken.connection_lost(None)
        # That was the last delivery: it is a dead letter.
        assert ranges(await shared.fetch(0, "m3")) == []
        assert f"{TOPIC}.dlq" in shared.broker.topics.catalog.topics

    run(scenario)


def test_a_member_that_came_back_over_another_connection_keeps_its_session() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"x")
        old = shared.connection = Connection(shared.door)
        await shared.fetch(0)
        shared.connection = Connection(shared.door)
        await shared.fetch(0)
        old.connection_lost(None)
        assert ack_error(await shared.fetch(1, acks=((0, 0, (ACCEPT,)),))) == 0

    run(scenario)


def test_a_waiting_fetch_is_answered_by_a_publish() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        waiting = shared.fetching(0, wait_ms=50_000)
        await asyncio.sleep(0)
        assert not waiting.done()
        await shared.publish(b"x")
        assert ranges(await waiting) == [(0, 0, 1)]

    run(scenario)


def test_a_waiting_fetch_is_answered_by_what_another_gives_back() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat("m1")
        await shared.beat("m2")
        await shared.publish(b"a", b"b")
        await shared.fetch(0, "m1")
        waiting = shared.fetching(0, "m2", wait_ms=50_000)
        await asyncio.sleep(0)
        assert ack_error(await shared.acknowledge(1, (0, 0, (RELEASE,)))) == 0
        assert ranges(await waiting) == [(0, 0, 2)]
        waiting = shared.fetching(1, "m2", wait_ms=50_000)
        await asyncio.sleep(0)
        await shared.fetch(-1, "m1")
        assert ranges(await waiting) == [(1, 1, 1)]

    run(scenario)


def test_a_waiting_fetch_ends_with_the_door() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        waiting = shared.fetching(0, wait_ms=50_000)
        await asyncio.sleep(0)
        await shared.door.close()
        assert ranges(await waiting) == []

    run(scenario)


def test_a_fetch_that_acknowledges_does_not_wait() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"x")
        await shared.fetch(0)
        response = await shared.fetch(1, acks=((0, 0, (ACCEPT,)),), wait_ms=59_000)
        assert ack_error(response) == 0

    run(scenario)


def test_a_renewal_fetches_nothing() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.publish(b"a")
        await shared.fetch(0)
        await shared.publish(b"b")
        renewed = await shared.fetch(1, acks=((0, 0, (RENEW,)),), renew=True)
        assert ack_error(renewed) == 0 and ranges(renewed) == []
        assert ranges(await shared.fetch(2)) == [(1, 1, 1)]

    run(scenario)


@pytest.mark.parametrize(
    ("acks", "error"),
    [
        (((0, 2, (ACCEPT,)),), Error.INVALID_RECORD_STATE),
        (((0, 0, (ACCEPT,)), (9, 9, (ACCEPT,))), Error.INVALID_RECORD_STATE),
        (((0, 1, (7,)),), Error.INVALID_REQUEST),
        (((1, 1, (ACCEPT,)), (0, 0, (ACCEPT,))), Error.INVALID_REQUEST),
        (((0, 1, (ACCEPT, ACCEPT, ACCEPT)),), Error.INVALID_REQUEST),
    ],
)
def test_a_wrong_acknowledgement_changes_nothing_and_says_why(
    acks: tuple[Ack, ...], error: Error
) -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat("m1")
        await shared.beat("m2")
        await shared.publish(b"a", b"b", b"c")
        await shared.fetch(0, "m1", count=2, exact=True)
        await shared.fetch(0, "m2", count=1, exact=True)
        before = shared.states()
        assert ack_error(await shared.fetch(1, acks=acks)) == error
        assert ack_error(await shared.acknowledge(2, *acks)) == error
        assert shared.states() == before

    run(scenario)


def test_a_topic_that_is_gone_is_said_to_be() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        response = await shared.fetch(0, topic_id=b"x" * 16)
        [topic] = response.responses
        assert topic.partitions[0].error_code == Error.UNKNOWN_TOPIC_ID
        assert topic.partitions[0].acquired_records == ()

    run(scenario)


def test_a_forgotten_partition_is_asked_no_more() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.fetch(0)
        await shared.publish(b"x")
        assert ranges(await shared.fetch(1, forget=True)) == []
        assert ranges(await shared.fetch(2)) == []

    run(scenario)


def test_a_topic_that_was_made_later_is_read() -> None:
    async def scenario() -> None:
        shared = Shared()
        joined = await shared.beat(topics=(TOPIC, "later"))
        now_ms = shared.service.clock.now_ms()
        shared.topic = shared.broker.topics.create("later", 1, TopicSettings(), now_ms)
        await shared.publish(b"x")
        again = await shared.beat(epoch=joined.member_epoch, topics=None)
        assert shared.topic.id in {part.topic_id for part in again.assignment.topic_partitions}
        assert ranges(await shared.fetch(0)) == [(0, 0, 1)]

    run(scenario)


def test_a_described_group_shows_its_members() -> None:
    async def scenario() -> None:
        shared = Shared(partitions=2)
        await shared.beat("m1")
        request = ShareGroupDescribeRequest((GROUP, "nobody"))
        described, unknown = (await shared.ask(DESCRIBE, 1, request)).groups
        assert described.group_state == "Stable"
        [member] = described.members
        assert (member.member_id, member.client_id, member.client_host) == ("m1", "app", "10.0.0.7")
        [assigned] = member.assignment.topic_partitions
        assert (assigned.topic_name, tuple(assigned.partitions)) == (TOPIC, (0, 1))
        assert unknown.error_code == Error.GROUP_ID_NOT_FOUND
        await shared.beat("m1", -1)
        [described, _] = (await shared.ask(DESCRIBE, 1, request)).groups
        assert described.group_state == "Empty" and not described.members

    run(scenario)


def test_the_first_records_of_a_session_are_of_one_partition() -> None:
    """So a member that begins with others leaves them something, as with Kafka."""

    async def scenario() -> None:
        shared = Shared(partitions=3)
        await shared.beat()
        for partition in range(3):
            await shared.publish(b"a", b"b", partition=partition)
        places = tuple(FetchPartition(index, ()) for index in range(3))
        topics = (FetchTopic(shared.topic.id, places),)
        request = ShareFetchRequest(GROUP, "m1", 0, 0, 1, 2**20, 500, 500, 0, False, topics, ())
        first = await shared.ask(FETCH, 2, request)
        assert [len(topic.partitions) for topic in first.responses] == [1]
        assert ranges(first) == [(0, 1, 1)]
        behind = await shared.ask(FETCH, 2, request._replace(share_session_epoch=1, topics=()))
        assert [len(topic.partitions) for topic in behind.responses] == [2]
        # What is left for the others is not held up either.
        other = await shared.ask(FETCH, 2, request._replace(member_id="m2"))
        assert not other.responses

    run(scenario)
