"""Topics that are deleted while a request about them waits for the disk, or led elsewhere
from then on: the request is answered, and its connection stays open."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.gated_disk import Gate, GatedDisk
from tests.unit.server.asking import Asking, run

from headrace.calls import Face
from headrace.core.settings import TopicSettings
from headrace.record import NewRecord, build_batch, check_batch
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.wire.kafka.generated.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.wire.kafka.generated.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LIST_OFFSETS, CREATE_PARTITIONS = 2, 37
MAX_TIMESTAMP = -3


class Bench:
    """A node with topics `orders` and `bills`, whose disk keeps requests waiting."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.asking = Asking(GatedDisk(self.gate))
        self.broker = self.asking.broker
        for name in ("orders", "bills"):
            self.broker.topics.create(name, 1, TopicSettings(), 1)

    def append(self, topic: str) -> None:
        """A record that is not on disk."""
        partition = self.broker.topics.partition(self.broker.topics.named(topic), 0)
        batch = build_batch([NewRecord(None, b"value", (), 1_000)])
        partition.append(batch, check_batch(batch), 1)

    async def ask_and_delete(self, topic: str, key: int, version: int, request: Any) -> Any:
        """The answer of a request that waits for the disk while this topic is deleted."""
        self.gate.close()
        answer = self.asking.begin(key, version, request)
        while self.asking.service.commits.is_idle:
            await asyncio.sleep(0)
        deleting = asyncio.ensure_future(Calls(self.asking.service).run(Face.delete_topic, topic))
        await asyncio.sleep(0)
        assert topic not in self.broker.topics.catalog.topics
        self.gate.open()
        await deleting
        return await answer


def test_offsets_of_the_topics_that_are_left_are_found() -> None:
    async def scenario() -> None:
        bench = Bench()
        for name in ("orders", "bills"):
            bench.append(name)
        wanted = ListOffsetsPartition(0, -1, MAX_TIMESTAMP)
        topics = [ListOffsetsTopic(name, (wanted,)) for name in ("orders", "bills")]
        request = ListOffsetsRequest(-1, 0, topics)
        answer = await bench.ask_and_delete("orders", LIST_OFFSETS, 8, request)
        found = {topic.name: topic.partitions[0] for topic in answer.topics}
        assert found["orders"].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert (found["bills"].error_code, found["bills"].timestamp) == (0, 1_000)

    run(scenario)


def test_offsets_of_the_partitions_that_are_still_led_here_are_found() -> None:
    async def scenario() -> None:
        bench = Bench()
        for name in ("orders", "bills"):
            bench.append(name)
        bench.gate.close()
        wanted = ListOffsetsPartition(0, -1, MAX_TIMESTAMP)
        topics = [ListOffsetsTopic(name, (wanted,)) for name in ("orders", "bills")]
        answer = bench.asking.begin(LIST_OFFSETS, 8, ListOffsetsRequest(-1, 0, topics))
        while bench.asking.service.commits.is_idle:
            await asyncio.sleep(0)
        orders = bench.broker.topics.named("orders")
        bench.broker.leading.resign(bench.broker.topics.partition(orders, 0))
        bench.gate.open()
        found = {topic.name: topic.partitions[0] for topic in (await answer).topics}
        assert found["orders"].error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert (found["bills"].error_code, found["bills"].timestamp) == (0, 1_000)

    run(scenario)


def test_a_topic_that_grows_while_it_is_deleted_is_answered_with_a_code() -> None:
    async def scenario() -> None:
        bench = Bench()
        await Calls(bench.asking.service).run(Face.open_queue, "workers", ["orders"], "ann", {})
        request = CreatePartitionsRequest((CreatePartitionsTopic("orders", 3, None),), 1_000)
        answer = await bench.ask_and_delete("orders", CREATE_PARTITIONS, 3, request)
        [result] = answer.results
        assert result.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert "deleted before this was on disk" in result.error_message

    run(scenario)
