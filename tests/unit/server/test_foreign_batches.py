"""Batches of Kafka clients on a topic that a queue reads: what their headers ask for is held
to the same rules as at every other door."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.calls import Face
from headrace.core.values import Delivery
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.record.compression import Codec
from headrace.server.kafka.errors import Error
from headrace.server.loop_calls import Calls
from headrace.testing import ManualClock
from headrace.wire.kafka.generated import produce_request

TOPIC, GROUP = "orders", "billing"
PRODUCE = 0
HOUR_MS = 3_600_000


class Shop:
    """A node with one topic, a queue that reads it, and a Kafka client."""

    def __init__(self, disk: MemoryDisk, clock: ManualClock) -> None:
        self.clock = clock
        self.asking = Asking(disk, clock=clock)
        self.run = Calls(self.asking.service).run

    async def make(self, *, dedup: bool = False) -> None:
        await self.run(Face.create_topic, TOPIC, partitions=1, settings={"dedup": dedup})
        await self.run(Face.open_queue, GROUP, [TOPIC], "worker")

    async def produce(self, *headers: tuple[str, bytes], behind_ms: int = 0, **options: Any) -> Any:
        timestamp_ms = self.clock.now_ms() - behind_ms
        batch = build_batch([NewRecord(None, b"v", headers, timestamp_ms)], **options)
        part = produce_request.PartitionProduceData(0, bytes(batch))
        data = produce_request.TopicProduceData(TOPIC, partition_data=(part,))
        asked = produce_request.ProduceRequest(None, -1, 30_000, (data,))
        answer = await self.asking.ask(PRODUCE, 9, asked)
        return answer.responses[0].partition_responses[0]

    async def lease(self) -> list[Delivery]:
        return await self.run(Face.lease, GROUP, [TOPIC], "worker", 10)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("behind_ms", [HOUR_MS, 5, -HOUR_MS])
def test_a_delay_is_never_over_early_whatever_the_clients_clock_says(
    behind_ms: int, codec: Codec
) -> None:
    async def scenario() -> None:
        disk, clock = MemoryDisk(), ManualClock()
        shop = Shop(disk, clock)
        await shop.make()
        began_ms = clock.now_ms()
        made = await shop.produce(("headrace-delay-ms", b"60000"), behind_ms=behind_ms, codec=codec)
        assert made.error_code == Error.NONE
        # A client that is ahead has its own time, and its message comes later.
        assert made.log_append_time_ms == (began_ms if behind_ms > 0 else -1)
        clock.skip(59.9)
        assert await shop.lease() == []
        # Also when all that was known of it is worked out anew from the log.
        topics = shop.asking.broker.topics
        path = topics.partition(topics.named(TOPIC), 0).log.path
        await shop.asking.close()
        disk.remove_tree(f"{path}/attributes")
        shop = Shop(disk, clock)
        assert await shop.lease() == []
        clock.skip(0.1 + max(0, -behind_ms) / 1000)
        [message] = await shop.lease()
        assert message.created_at_ms == began_ms - min(0, behind_ms)

    run(scenario)


def test_other_records_keep_the_time_that_their_client_gave_them() -> None:
    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        await shop.make()
        began_ms = shop.clock.now_ms()
        for header in (("headrace-priority", b"1"), ("note", b"headrace-delay-ms")):
            made = await shop.produce(header, behind_ms=HOUR_MS)
            assert made.log_append_time_ms == -1
        assert {each.created_at_ms for each in await shop.lease()} == {began_ms - HOUR_MS}

    run(scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_an_id_against_duplicates_where_none_are_dropped_is_refused(codec: Codec) -> None:
    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        await shop.make()
        refused = await shop.produce(("headrace-dedup-id", b"7"), codec=codec)
        assert refused.error_code == Error.INVALID_RECORD
        assert "set dedup=true" in refused.error_message
        # A value that looks like it is only a value.
        assert (await shop.produce(("note", b"headrace-dedup-id"))).error_code == Error.NONE
        assert len(await shop.lease()) == 1

    run(scenario)


def test_an_id_against_duplicates_is_taken_where_they_are_dropped() -> None:
    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        await shop.make(dedup=True)
        assert (await shop.produce(("headrace-dedup-id", b"7"))).error_code == Error.NONE

    run(scenario)
