"""Another node takes the lead of a partition while clients of this one wait: each is told to
try again, by its own protocol, and nobody is told that something was done that was not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc import StatusCode
from tests.unit.server.asking import Asking, run
from tests.unit.server.connected import Producing, play
from tests.unit.server.share_door import Shared, ack_error, ranges
from tests.unit.server.test_fetch_waiting import FETCH, VERSION, fetch, waiting_session
from tests.unit.server.test_loop_calls import (
    GROUP,
    TOPIC,
    Served,
    let_others_run,
    on_a_loop,
)
from tests.unit.server.test_loop_commit import Bench
from tests.unit.server.test_loop_commit import play as play_commits

from headrace.calls import Face
from headrace.core.errors import FencedLeader
from headrace.core.settings import TopicSettings
from headrace.core.values import Outgoing
from headrace.engine.partition import Partition
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server.grpc import statuses
from headrace.server.http import problems
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated import produce_request

PRODUCE = 0


def partition_of(served: Any, topic: str = TOPIC) -> Partition:
    topics = served.broker.topics
    found: Partition = topics.partition(topics.named(topic), 0)
    return found


@pytest.mark.parametrize("is_given_back", [False, True])
def test_a_commit_that_waits_for_a_lost_lead_fails_and_those_that_come_later_do_not(
    is_given_back: bool,
) -> None:
    async def scenario() -> None:
        bench = Bench()
        waiting = bench.append()
        assert waiting is not None
        bench.broker.leading.resign(bench.partition)
        if is_given_back:
            dirty = bench.broker.leading.lead(bench.partition, bench.partition.epoch + 1, 1)
            bench.service.commits.go_on_with(dirty)
        with pytest.raises(FencedLeader) as told:
            await waiting
        assert told.value.retriable
        if is_given_back:
            later = bench.append()
            assert later is not None
            await later
            assert bench.partition.high_watermark == 2
        assert bench.service.commits.failed is None
        await bench.service.close()

    play_commits(scenario)


def test_a_commit_for_another_partition_is_done_all_the_same() -> None:
    async def scenario() -> None:
        bench = Bench()
        other = bench.broker.topics.create("other", 1, TopicSettings(), 1)
        waiting = bench.append()
        assert waiting is not None
        bench.broker.leading.resign(bench.broker.topics.partition(other, 0))
        await waiting
        await bench.service.close()

    play_commits(scenario)


def test_everybody_who_waits_for_messages_hears_of_it() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        waiting = [asyncio.ensure_future(served.wait_for_lease()) for _ in range(3)]
        await let_others_run()
        served.broker.leading.resign(partition_of(served))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in outcomes} == {FencedLeader}
        assert served.service.waiting.length(GROUP) == 0

    on_a_loop(scenario)


def test_a_consumer_goes_on_with_what_this_node_leads() -> None:
    async def scenario(served: Served) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=2)
        await served.run(Face.open_queue, GROUP, [TOPIC], "ann", {})
        messages = [Outgoing(b"%d" % index, partition=index) for index in (0, 1)]
        await served.run(Face.publish, TOPIC, messages)
        served.broker.leading.resign(partition_of(served))
        assert [each.value for each in await served.lease()] == [b"1"]

    on_a_loop(scenario)


def test_an_ack_whose_lead_is_lost_before_it_is_safe_is_not_answered_as_done() -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(b"one")
        [leased] = await served.lease()
        acking = asyncio.ensure_future(served.run(Face.ack, GROUP, [leased.receipt]))
        await asyncio.sleep(0)
        served.broker.leading.resign(partition_of(served))
        with pytest.raises(FencedLeader):
            await acking
        [outcome] = await served.run(Face.ack, GROUP, [leased.receipt])
        assert isinstance(outcome, FencedLeader)

    on_a_loop(scenario)


def test_a_fetch_that_waits_is_told_that_another_node_leads() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        session_id = await waiting_session(asking)
        patient = fetch(session_id, 1, is_of_orders=True)._replace(min_bytes=1000)
        asked = asking.begin(FETCH, VERSION, patient)
        await asking.skip(1)
        asking.broker.leading.resign(partition_of(asking))
        await asking.skip(0)
        assert asked.done()
        [topic] = (await asked).responses
        assert topic.partitions[0].error_code == Error.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a_produce_that_waits_is_told_that_another_node_leads() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        asking.broker.topics.create(TOPIC, 1, TopicSettings(), 0)

        def begin() -> asyncio.Future[Any]:
            part = produce_request.PartitionProduceData(
                0, bytes(build_batch([NewRecord(None, b"x")]))
            )
            data = produce_request.TopicProduceData(TOPIC, partition_data=(part,))
            wanted = produce_request.ProduceRequest(None, -1, 30_000, (data,))
            return asking.begin(PRODUCE, 9, wanted)

        first = begin()
        asking.broker.leading.resign(partition_of(asking))
        for asked in (first, begin()):
            [answer] = (await asked).responses[0].partition_responses
            assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_so_is_each_of_a_run_of_them() -> None:
    async def scenario(bench: Producing) -> None:
        records = [NewRecord(None, b"x", (), 1_700_000_000_000)]
        bench.send(bench.request(build_batch(records)))
        await bench.answers(1)
        bench.line.sent = b""
        bench.send(b"".join(bench.request(build_batch(records)) for _ in range(3)))
        bench.broker.leading.resign(partition_of(bench))
        codes = {code for _, code, _ in await bench.answers(3)}
        assert codes == {Error.NOT_LEADER_OR_FOLLOWER}

    play(Producing, scenario)


def test_a_member_of_a_share_group_is_told_for_each_partition() -> None:
    async def scenario() -> None:
        shared = Shared()
        await shared.beat()
        await shared.fetch(0)
        await shared.publish(b"one")
        [held] = ranges(await shared.fetch(1))
        waiting = shared.fetching(2, wait_ms=10_000)
        await shared.skip(1)
        shared.broker.leading.resign(shared.broker.topics.partition(shared.topic, 0))
        await shared.skip(0)
        assert waiting.done()
        [topic] = (await waiting).responses
        assert topic.partitions[0].error_code == Error.NOT_LEADER_OR_FOLLOWER
        acked = await shared.acknowledge(3, (held[0], held[1], (1,)))
        assert ack_error(acked) == Error.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_every_protocol_tells_its_clients_to_try_again() -> None:
    error = FencedLeader("another node leads")
    assert error.retriable
    assert problems.status_of(error) == 503
    assert statuses.status_of(error) is StatusCode.UNAVAILABLE
    assert Error.NOT_LEADER_OR_FOLLOWER.retriable
