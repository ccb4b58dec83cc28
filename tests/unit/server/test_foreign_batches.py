"""Batches of Kafka clients on a topic that a queue reads: what their headers ask for is held
to the same rules as at every other door."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.asking import Asking, run

from headrace.calls import Face
from headrace.core import limits
from headrace.core.settings import CheckedRecords
from headrace.core.trace_values import MessageTrace
from headrace.core.values import Delivery, Headers, MessageId, Outgoing
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, attribute_headers, build_batch
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
        self.disk = disk
        self.clock = clock
        self._open()

    def _open(self) -> None:
        self.asking = Asking(self.disk, clock=self.clock)
        self.run = Calls(self.asking.service).run

    async def make(self, *, dedup: bool = False, queue: bool = True, **settings: Any) -> None:
        settings["dedup"] = dedup
        await self.run(Face.create_topic, TOPIC, partitions=1, settings=settings)
        if queue:
            await self.run(Face.open_queue, GROUP, [TOPIC], "worker")

    async def reopen(self, *, notes: bool = True) -> None:
        """A restart; without `notes` what was known of the attributes is worked out anew
        from the log."""
        topics = self.asking.broker.topics
        path = topics.partition(topics.named(TOPIC), 0).log.path
        await self.asking.close()
        if not notes:
            self.disk.remove_tree(f"{path}/attributes")
        self._open()

    def batch(self, headers: Headers, behind_ms: int, **options: Any) -> bytearray:
        timestamp_ms = self.clock.now_ms() - behind_ms
        return build_batch([NewRecord(None, b"v", headers, timestamp_ms)], **options)

    async def produce(self, *headers: tuple[str, bytes], behind_ms: int = 0, **options: Any) -> Any:
        return await self.produce_batch(self.batch(headers, behind_ms, **options))

    async def produce_batch(self, batch: bytearray) -> Any:
        part = produce_request.PartitionProduceData(0, bytes(batch))
        data = produce_request.TopicProduceData(TOPIC, partition_data=(part,))
        asked = produce_request.ProduceRequest(None, -1, 30_000, (data,))
        answer = await self.asking.ask(PRODUCE, 9, asked)
        return answer.responses[0].partition_responses[0]

    async def lease(self) -> list[Delivery]:
        return await self.run(Face.lease, GROUP, [TOPIC], "worker", 10)

    async def lease_and_release(self) -> dict[int, int]:
        """When each message that could be had was made."""
        found = await self.lease()
        await self.run(Face.release, GROUP, [each.receipt for each in found])
        return {each.offset: each.created_at_ms for each in found}

    async def dues(self, offset: int) -> set[int | None]:
        """When the message comes, as every answer has it that says so."""
        id = MessageId(TOPIC, 0, offset)
        told: list[int | None] = [
            each.deliver_at_ms
            for each in await self.run(Face.delayed, TOPIC)
            if each.offset == offset
        ]
        told.append((await self.run(Face.status, id, GROUP)).due_ms)
        steps = await self.run(Face.trace_steps, str(id))
        done = None
        while True:
            try:
                done = steps.send(done)(64 * 1024)
            except StopIteration as end:
                trace: MessageTrace = end.value
                break
        [standing] = trace.groups
        assert standing.state == "delayed"
        told += [standing.due_ms, trace.events[1].until_ms]
        assert len(told) == 4
        return set(told)


# By how much the publisher's clock is behind.
CLOCKS_MS = [HOUR_MS, 5, 0, -HOUR_MS]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("restart", ["", "with its notes", "without"])
@pytest.mark.parametrize("behind_ms", CLOCKS_MS)
@pytest.mark.parametrize("door", ["kafka", "batch", "message"])
def test_delays_and_lives_count_from_when_the_node_took_a_message(
    door: str, behind_ms: int, restart: str, codec: Codec
) -> None:
    async def scenario() -> None:
        disk, clock = MemoryDisk(), ManualClock()
        shop = Shop(disk, clock)
        await shop.make()
        began_ms = clock.now_ms()
        ttl = ("headrace-ttl-ms", b"120000")
        for headers in ((("headrace-delay-ms", b"60000"), ttl), (ttl,)):
            if door == "kafka":
                made = await shop.produce(*headers, behind_ms=behind_ms, codec=codec)
                assert (made.error_code, made.log_append_time_ms) == (Error.NONE, began_ms)
            elif door == "batch":
                batch = shop.batch(headers, behind_ms, codec=codec)
                await shop.run(Face.publish_batch, TOPIC, 0, batch)
            else:
                message = Outgoing(b"v", None, headers, began_ms - behind_ms)
                await shop.run(Face.publish, TOPIC, [message])
        clock.skip(1)
        if restart:
            await shop.reopen(notes=restart == "with its notes")
        assert await shop.dues(0) == {began_ms + 60_000}
        clock.skip(58.9)
        assert await shop.lease_and_release() == {1: began_ms}
        clock.skip(0.1)
        assert await shop.lease_and_release() == {0: began_ms, 1: began_ms}
        clock.skip(59.9)
        assert await shop.lease_and_release() == {0: began_ms, 1: began_ms}
        clock.skip(0.1)
        assert await shop.lease_and_release() == {}
        assert (await shop.run(Face.queue_statistics, GROUP)).expired == 2

    run(scenario)


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
@pytest.mark.parametrize("checked", ["beginning", "all", "none"])
@pytest.mark.parametrize("door", ["kafka", "batch"])
def test_delays_count_from_there_whatever_is_checked_of_the_records(
    door: str, checked: CheckedRecords, cleanup: str
) -> None:
    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        shop.asking.broker.topics.check_records = checked
        await shop.make(cleanup=cleanup)
        taken_ms = shop.clock.now_ms()
        headers = attribute_headers(delay_ms=60_000)
        batch = build_batch([NewRecord(b"k", b"v", headers, taken_ms - HOUR_MS)])
        if door == "kafka":
            assert (await shop.produce_batch(batch)).log_append_time_ms == taken_ms
        else:
            await shop.run(Face.publish_batch, TOPIC, 0, batch)
        assert await shop.dues(0) == {taken_ms + 60_000}

    run(scenario)


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("behind_ms", CLOCKS_MS)
def test_every_answer_has_the_same_time_for_a_batch_that_came_before_any_queue(
    behind_ms: int, restarts: int
) -> None:
    """Nobody has looked into it, so it has its client's times. A restart bounds what is
    left of them, as it does where the node's clock was ahead."""

    async def scenario() -> None:
        clock = ManualClock()
        shop = Shop(MemoryDisk(), clock)
        await shop.run(Face.create_topic, TOPIC, partitions=1)
        stamp_ms = clock.now_ms() - behind_ms
        headers = ("headrace-delay-ms", b"7200000"), ("headrace-ttl-ms", b"9000000")
        await shop.produce(*headers, behind_ms=behind_ms)
        await shop.run(Face.open_queue, GROUP, [TOPIC], "worker")
        due_ms, ends_ms = stamp_ms + 7_200_000, stamp_ms + 9_000_000
        for _ in range(restarts):
            clock.skip(60)
            await shop.reopen()
            due_ms = min(stamp_ms, clock.now_ms()) + 7_200_000
            ends_ms = min(stamp_ms, clock.now_ms()) + 9_000_000
        assert await shop.dues(0) == {due_ms}
        clock.skip((due_ms - clock.now_ms() - 1) / 1000)
        assert await shop.lease_and_release() == {}
        clock.skip(0.001)
        assert await shop.lease_and_release() == {0: stamp_ms}
        clock.skip((ends_ms - clock.now_ms() - 1) / 1000)
        assert await shop.lease_and_release() == {0: stamp_ms}
        clock.skip(0.001)
        assert await shop.lease_and_release() == {}

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


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_batch_that_is_sent_again_is_answered_with_the_time_that_is_stored(
    kind: str, restart: bool
) -> None:
    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        await shop.make(queue=False, timestamp_type=kind)
        numbered = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        batch = shop.batch((), HOUR_MS, **numbered)
        began_ms = shop.clock.now_ms()
        made = await shop.produce_batch(batch)
        assert made.log_append_time_ms == (began_ms if kind == "LogAppendTime" else -1)
        shop.clock.skip(1)
        if restart:
            await shop.reopen()
        assert await shop.produce_batch(batch) == made

    run(scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_refusal_names_the_records_without_a_key(codec: Codec) -> None:
    """A client tells the callers of these why, and the others that their batch had such."""

    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        await shop.make(queue=False, cleanup="compact")
        keys = (b"a", None, b"", None)
        batch = build_batch([NewRecord(key, b"v", ()) for key in keys], codec=codec)
        refused = await shop.produce_batch(batch)
        assert refused.error_code == Error.INVALID_RECORD
        assert [each.batch_index for each in refused.record_errors] == [1, 3]
        [why] = {each.batch_index_error_message for each in refused.record_errors}
        assert "key" in why

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


def huge(value_bytes: int) -> bytearray:
    """A few kilobytes that hold one record beyond what `build_batch` makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RECORD_BYTES_MAX", 2 * value_bytes)
        return build_batch([NewRecord(None, bytes(value_bytes))], codec=Codec.ZSTD)


@pytest.mark.parametrize("queue", [False, True])
def test_a_record_beyond_the_limit_is_refused_where_a_queue_reads_however_few_bytes_it_takes(
    queue: bool,
) -> None:
    async def scenario() -> None:
        shop = Shop(MemoryDisk(), ManualClock())
        await shop.make(queue=queue)
        answer = await shop.produce_batch(huge(limits.RECORD_BYTES_MAX + 1))
        if not queue:
            assert answer.error_code == 0
            return
        assert answer.error_code == Error.MESSAGE_TOO_LARGE
        assert f"at most {limits.RECORD_BYTES_MAX} bytes" in answer.error_message
        # With a few bytes for the record itself, this is all that may be.
        answer = await shop.produce_batch(huge(limits.RECORD_BYTES_MAX - 100))
        assert answer.error_code == 0

    run(scenario)
