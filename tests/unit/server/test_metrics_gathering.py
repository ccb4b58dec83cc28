"""Gathering: what a look finds is what happened, to the second.

The clock is moved by hand, so ages are exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.server.test_loop_calls import GROUP, TOPIC, WORKER, Served

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import StaleReceipt
from headrace.core.values import (
    SPARK_PROGRESS,
    SPARK_SINK_PREFIX,
    Delivery,
    MessageId,
    Outgoing,
    Publication,
    note_spark_rows,
)
from headrace.engine.cursor import Commitment
from headrace.record.attribute_headers import attribute_headers
from headrace.server.metrics import families as f
from headrace.server.metrics.counting import OTHER, Histogram
from headrace.server.metrics.families import Family, Value
from headrace.server.metrics.gathering import Gathering
from headrace.server.slices import Slices

Found = dict[tuple[str, ...], Value]


class Watched(Served):
    """The same, with a look at it."""

    def __init__(self) -> None:
        super().__init__()
        self.gathering = Gathering(self.service, free_bytes_min=7, by_partition=False)

    async def look(self, family: Family) -> Found:
        return dict((await self.gathering.gather())[family])

    async def publish_with(self, value: bytes, **attributes: Any) -> None:
        headers = attribute_headers(**attributes)
        await self.run(Face.publish, TOPIC, [Outgoing(value, headers=headers)])

    async def settle(self, call: Any, leased: list[Delivery], **options: Any) -> None:
        outcomes = await self.run(call, GROUP, [each.receipt for each in leased], **options)
        assert outcomes == [None] * len(leased)


def watched(scenario: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        served = Watched()
        try:
            async with asyncio.timeout(60):
                await scenario(served)
        finally:
            await served.service.close()
            served.broker.close()

    asyncio.run(play())


def in_queue(found: Found) -> dict[tuple[str, str], Value]:
    """By lane and state, where there is something."""
    return {labels[2:]: value for labels, value in found.items() if value}  # type: ignore[misc]


def test_messages_are_counted_by_lane_and_state() -> None:
    async def scenario(served: Watched) -> None:
        await served.make(backoff_ms=1_000)
        await served.publish(*(b"normal",) * 5)
        await served.publish_with(b"urgent", priority="critical")
        await served.publish_with(b"tomorrow", delay_ms=86_400_000)
        (urgent,) = await served.lease(1)
        assert urgent.value == b"urgent"
        nacked = await served.lease(2)
        await served.settle(Face.nack, nacked)
        done = await served.lease(1)
        await served.settle(Face.ack, done)
        assert in_queue(await served.look(f.QUEUE_MESSAGES)) == {
            ("critical", "leased"): 1,
            ("normal", "retrying"): 2,
            ("normal", "ready"): 2,
            ("normal", "delayed"): 1,
        }
        pair = (GROUP, TOPIC)
        assert await served.look(f.LAG_MESSAGES) == {(*pair, "queue"): 6}
        assert await served.look(f.DELIVERIES) == {pair: 4}
        assert await served.look(f.REDELIVERIES) == {pair: 0}
        assert await served.look(f.ACKS) == {pair: 1}
        assert await served.look(f.NACKS) == {pair: 2}
        served.clock.skip(1)
        assert len(await served.lease()) == 4
        assert await served.look(f.DELIVERIES) == {pair: 8}
        assert await served.look(f.REDELIVERIES) == {pair: 2}

    watched(scenario)


def test_latencies_are_summed_up_over_partitions_and_beyond_the_bound_over_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "METRIC_GROUP_TOPICS_MAX", 1)

    async def scenario(served: Watched) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=3)
        await served.run(Face.open_queue, GROUP, [TOPIC], WORKER)
        for number in range(6):
            await served.run(Face.publish, TOPIC, [Outgoing(b"x", partition=number % 3)])
        await served.run(Face.create_topic, "more", partitions=1)
        for group in ("second", "third"):
            await served.run(Face.open_queue, group, ["more"], WORKER)
        await served.run(Face.publish, "more", [Outgoing(b"y")])
        served.clock.skip(4)
        await served.settle(Face.ack, await served.lease(6))
        for group in ("second", "third"):
            assert len(await served.run(Face.lease, group, ["more"], WORKER, 1)) == 1
        pair, rest = (GROUP, TOPIC), (OTHER, OTHER)
        assert shown(await served.look(f.TO_LEASE)) == {pair: (6, 24.0), rest: (2, 8.0)}
        assert shown(await served.look(f.TO_ACK)) == {pair: (6, 24.0), rest: (0, 0.0)}
        (found,) = [value for key, value in (await served.look(f.TO_ACK)).items() if key == pair]
        assert isinstance(found, Histogram)
        assert found.counts[found.bounds.index(5.0)] == 6

    def shown(found: Found) -> dict[tuple[str, ...], tuple[int, float]]:
        return {
            labels: (sum(value.counts), value.sum)
            for labels, value in found.items()
            if isinstance(value, Histogram)
        }

    watched(scenario)


def test_what_came_due_has_happened_when_somebody_looks() -> None:
    async def scenario(served: Watched) -> None:
        await served.make(visibility_ms=5_000, max_attempts=1)
        await served.publish(b"leased")
        await served.publish_with(b"short", ttl_ms=2_000, delay_ms=1_000)
        await served.publish_with(b"later", delay_ms=3_000)
        assert len(await served.lease()) == 1
        served.clock.skip(4)
        pair = (GROUP, TOPIC)
        assert in_queue(await served.look(f.QUEUE_MESSAGES)) == {
            ("normal", "leased"): 1,
            ("normal", "ready"): 1,
        }
        assert await served.look(f.EXPIRED) == {pair: 1}
        served.clock.skip(4)
        # The only attempt is spent, and so the message is given up.
        assert in_queue(await served.look(f.QUEUE_MESSAGES)) == {("normal", "ready"): 1}
        assert await served.look(f.DEAD_LETTERED) == {pair: 1}
        assert await served.look(f.LETTERS) == {(TOPIC,): 1}

    watched(scenario)


def test_what_waits_behind_the_first_of_its_partition_is_not_ready() -> None:
    async def scenario(served: Watched) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=1, settings={"ordering": "partition"})
        await served.run(Face.open_queue, GROUP, [TOPIC], WORKER)
        await served.publish(b"one", b"two", b"three")
        assert in_queue(await served.look(f.QUEUE_MESSAGES)) == {
            ("normal", "ready"): 1,
            ("normal", "waiting"): 2,
        }
        assert len(await served.lease()) == 1
        assert in_queue(await served.look(f.QUEUE_MESSAGES)) == {
            ("normal", "leased"): 1,
            ("normal", "waiting"): 2,
        }
        assert await served.look(f.LAG_MESSAGES) == {(GROUP, TOPIC, "queue"): 3}

    watched(scenario)


def test_a_lease_that_ended_without_an_answer_is_counted() -> None:
    async def scenario(served: Watched) -> None:
        await served.make(visibility_ms=5_000)
        await served.publish(b"one", b"two")
        assert len(await served.lease()) == 2
        served.clock.skip(6)
        assert await served.look(f.LEASES_ENDED) == {(GROUP, TOPIC): 2}

    watched(scenario)


def test_a_receipt_of_a_lease_that_is_over_is_counted() -> None:
    async def scenario(served: Watched) -> None:
        await served.make(visibility_ms=5_000)
        await served.publish(b"one", b"two", b"three")
        leased = await served.lease()
        await served.settle(Face.ack, leased[:1])
        assert await served.look(f.STALE_RECEIPTS) == {(GROUP, TOPIC): 0}
        served.clock.skip(6)
        receipts = [each.receipt for each in leased]
        lost = await served.run(Face.check_receipts, GROUP, receipts)
        assert all(isinstance(each, StaleReceipt) for each in lost)
        assert await served.look(f.STALE_RECEIPTS) == {(GROUP, TOPIC): 3}

    watched(scenario)


def test_the_oldest_message_has_waited_since_it_could_be_had() -> None:
    async def scenario(served: Watched) -> None:
        await served.make()
        await served.publish_with(b"delayed", delay_ms=10_000, priority="low")
        served.clock.skip(3)
        await served.publish(b"plain")
        served.clock.skip(4)
        ages = {labels[2]: age for labels, age in (await served.look(f.QUEUE_OLDEST)).items()}
        assert ages == {"critical": 0, "high": 0, "normal": 4, "low": 0, "background": 0}
        served.clock.skip(5)
        ages = {labels[2]: age for labels, age in (await served.look(f.QUEUE_OLDEST)).items()}
        assert (ages["normal"], ages["low"]) == (9, 2)
        assert await served.look(f.LAG_SECONDS) == {(GROUP, TOPIC, "queue"): 9}
        assert len(await served.lease()) == 2
        assert await served.look(f.LAG_SECONDS) == {(GROUP, TOPIC, "queue"): 0}

    watched(scenario)


def test_a_stream_lags_by_messages_and_by_seconds() -> None:
    async def scenario(served: Watched) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=2)
        for value in (b"a", b"b", b"c"):
            await served.run(Face.publish, TOPIC, [Outgoing(value, partition=0)])
            served.clock.skip(10)
        labels = ("report", TOPIC, "stream")
        await served.run(Face.commit, "report", {(TOPIC, 0): 1, (TOPIC, 1): 0})
        served.clock.skip(5)
        samples = await served.gathering.gather()
        assert dict(samples[f.LAG_MESSAGES]) == {labels: 2}
        assert dict(samples[f.LAG_SECONDS]) == {labels: 25}
        assert dict(samples[f.POSITION]) == {labels: 1}
        assert dict(samples[f.COMMIT_AGE]) == {labels: 5}
        await served.run(Face.commit, "report", {(TOPIC, 0): 3})
        samples = await served.gathering.gather()
        assert dict(samples[f.LAG_MESSAGES]) == {labels: 0}
        assert dict(samples[f.LAG_SECONDS]) == {labels: 0}
        assert dict(samples[f.POSITION]) == {labels: 3}

    watched(scenario)


def test_the_progress_of_a_spark_query_is_told_apart() -> None:
    async def scenario(served: Watched) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=1)
        await served.publish(b"a", b"b")
        topic = served.broker.topics.named(TOPIC)
        commit = served.service.commit()
        positions = {(topic.id, 0): Commitment(1, SPARK_PROGRESS)}
        written = served.broker.cursors.commit("query", positions, served.clock.now_ms())
        commit.data.append(written)
        await served.service.finish(commit)
        assert await served.look(f.LAG_MESSAGES) == {("query", TOPIC, "spark"): 1}
        assert await served.look(f.POSITION) == {("query", TOPIC, "spark"): 1}

    watched(scenario)


def test_what_sinks_of_spark_wrote_is_counted_by_their_markers() -> None:
    async def scenario(served: Watched) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=1)
        topic = served.broker.topics.named(TOPIC)
        commit = served.service.commit()
        notes = {"0": note_spark_rows(70), "1": note_spark_rows(50), "2": "headrace-spark-rows:x"}
        for number, (task, note) in enumerate(notes.items()):
            positions = {(topic.id, 0): Commitment(8 - number, note)}
            group = f"{SPARK_SINK_PREFIX}large.orders.{task}"
            commit.data.append(
                served.broker.cursors.commit(group, positions, served.clock.now_ms())
            )
        await served.service.finish(commit)
        assert await served.look(f.SINK_ROWS) == {("large.orders",): 120}
        assert await served.look(f.SINK_BATCHES) == {("large.orders",): 8}
        assert await served.look(f.LAG_MESSAGES) == {}

    watched(scenario)


def test_dead_letters_wait_until_they_are_redriven() -> None:
    async def scenario(served: Watched) -> None:
        await served.make()
        await served.publish(b"one", b"two", b"three")
        await served.settle(Face.reject, await served.lease())
        assert await served.look(f.LETTERS) == {(TOPIC,): 3}
        assert await served.look(f.DEAD_LETTERED) == {(GROUP, TOPIC): 3}
        letters = [MessageId(f"{TOPIC}.dlq", 0, 0), MessageId(f"{TOPIC}.dlq", 0, 1)]
        await served.run(Face.redrive, TOPIC, letters)
        assert await served.look(f.LETTERS) == {(TOPIC,): 1}
        assert await served.look(f.REDRIVEN) == {(TOPIC,): 2}
        assert in_queue(await served.look(f.QUEUE_MESSAGES)) == {("normal", "ready"): 2}

    watched(scenario)


def test_an_open_transaction_is_seen_with_what_it_holds() -> None:
    async def scenario(served: Watched) -> None:
        await served.make()
        publications = [Publication(TOPIC, [Outgoing(b"one"), Outgoing(b"two")])]
        begun = await served.run(Face.begin_transaction, publications, [], [])
        await served.run(Face.write_transaction, begun, [], [])
        served.clock.skip(12)
        samples = await served.gathering.gather()
        assert dict(samples[f.OPEN_TRANSACTIONS]) == {("ongoing",): 1, ("ending",): 0}
        assert dict(samples[f.OLDEST_TRANSACTION]) == {(): 12}
        assert dict(samples[f.UNDECIDED])[(TOPIC,)] == 2
        (held,) = samples[f.HELD]
        assert held[0][:2] == (TOPIC, "0")
        assert held[0][2].startswith("headrace-")
        assert held[1] == 12
        await served.run(Face.end_transaction, begun, commits=False)
        samples = await served.gathering.gather()
        assert dict(samples[f.OPEN_TRANSACTIONS]) == {("ongoing",): 0, ("ending",): 0}
        assert dict(samples[f.OLDEST_TRANSACTION]) == {(): 0}
        assert dict(samples[f.ENDED_TRANSACTIONS]) == {("committed",): 0, ("aborted",): 1}
        assert dict(samples[f.UNDECIDED])[(TOPIC,)] == 0
        assert not samples[f.HELD]

    watched(scenario)


def test_groups_beyond_the_limit_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "METRIC_GROUP_TOPICS_MAX", 2)

    async def scenario(served: Watched) -> None:
        await served.make()
        for group in ("a", "b"):
            await served.run(Face.open_queue, group, [TOPIC], WORKER)
        await served.publish(b"one", b"two")
        assert await served.look(f.LAG_MESSAGES) == {
            (GROUP, TOPIC, "queue"): 2,
            ("a", TOPIC, "queue"): 2,
            (OTHER, OTHER, "queue"): 2,
        }
        await served.run(Face.commit, "stream", {(TOPIC, 0): 0})
        found = await served.look(f.LAG_MESSAGES)
        assert found[(OTHER, OTHER, "stream")] == 2
        await served.run(Face.delete_group, "a")
        await served.look(f.LAG_MESSAGES)
        assert ("b", TOPIC, "queue") in await served.look(f.LAG_MESSAGES)

    watched(scenario)


def test_partitions_have_series_of_their_own_where_asked_for() -> None:
    async def scenario(served: Watched) -> None:
        await served.make()
        await served.publish(b"one", b"two")
        await served.run(Face.commit, "report", {(TOPIC, 0): 1})
        assert not await served.look(f.END_OFFSET)
        served.gathering = Gathering(served.service, free_bytes_min=0, by_partition=True)
        assert (await served.look(f.END_OFFSET))[(TOPIC, "0")] == 2
        assert (await served.look(f.START_OFFSET))[(TOPIC, "0")] == 0
        size = served.broker.topics.partition(served.broker.topics.named(TOPIC), 0).log.size_bytes
        assert (await served.look(f.PARTITION_SIZE))[(TOPIC, "0")] == size
        assert await served.look(f.PARTITION_LAG) == {
            (GROUP, TOPIC, "0", "queue"): 2,
            ("report", TOPIC, "0", "stream"): 1,
        }

    watched(scenario)


def test_calls_are_counted_by_topic_and_door() -> None:
    async def scenario(served: Watched) -> None:
        await served.make()
        await served.publish(b"one", b"three")
        await served.lease(1)
        await served.run(Face.read, TOPIC, 0, 0)
        row = (TOPIC, "sdk")
        size = served.broker.topics.partition(served.broker.topics.named(TOPIC), 0).log.size_bytes
        assert await served.look(f.MESSAGES_IN) == {row: 2}
        assert await served.look(f.BYTES_IN) == {row: size}
        assert await served.look(f.MESSAGES_OUT) == {row: 1 + 2}
        assert await served.look(f.BYTES_OUT) == {row: 3 + 8}

    watched(scenario)


def test_every_sync_of_a_file_is_timed() -> None:
    async def scenario(served: Watched) -> None:
        before = (await served.look(f.SYNCS))[()]
        await served.run(Face.create_topic, TOPIC, partitions=1)
        await served.publish(b"one")
        after = (await served.look(f.SYNCS))[()]
        assert isinstance(before, Histogram) and isinstance(after, Histogram)
        assert sum(after.counts) > sum(before.counts)
        assert after.sum > before.sum

    watched(scenario)


def test_every_family_has_as_many_labels_as_it_says() -> None:
    async def scenario(served: Watched) -> None:
        served.gathering = Gathering(served.service, free_bytes_min=7, by_partition=True)
        await served.make()
        await served.publish(b"one")
        await served.run(Face.commit, "report", {(TOPIC, 0): 0})
        served.service.counts.endpoint("http", "GET /").errors["odd"] += 1
        samples = await served.gathering.gather()
        assert list(samples) == list(f.FAMILIES)
        for family, found in samples.items():
            for labels, _ in found:
                assert len(labels) == len(family.labels), family.name
            assert len({labels for labels, _ in found}) == len(found), family.name

    watched(scenario)


def test_ages_that_were_not_looked_up_come_first_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "METRIC_AGES_MAX", 2)

    async def scenario(served: Watched) -> None:
        groups = ("a", "b", "c", "d", "e")
        await served.run(Face.create_topic, TOPIC, partitions=1)
        await served.publish(b"one")
        for group in groups:
            await served.run(Face.commit, group, {(TOPIC, 0): 0})
        served.clock.skip(10)
        seen = []
        for _ in range(3):
            found = await served.look(f.LAG_SECONDS)
            seen.append("".join(labels[0] for labels, age in found.items() if age == 10))
        assert seen == ["ab", "abcd", "abcde"]
        # All of them move on: whoever is not looked up is told as it was.
        await served.publish(b"two")
        for group in groups:
            await served.run(Face.commit, group, {(TOPIC, 0): 1})
        served.clock.skip(5)
        found = await served.look(f.LAG_SECONDS)
        assert {labels[0]: age for labels, age in found.items()} == {
            "a": 5, "b": 5, "c": 15, "d": 15, "e": 15,
        }  # fmt: skip
        found = await served.look(f.LAG_SECONDS)
        assert {labels[0] for labels, age in found.items() if age == 15} == {"e"}

    watched(scenario)


def test_others_have_their_turn_between_the_groups_of_one_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = 300
    rests: list[int] = []

    async def scenario(served: Watched) -> None:
        await served.run(Face.create_topic, TOPIC, partitions=1)
        for number in range(groups):
            await served.run(Face.open_queue, f"group-{number}", [TOPIC], WORKER)
        rest = Slices.rest

        async def noted(slices: Slices) -> None:
            rests.append(1)
            await rest(slices)

        monkeypatch.setattr(Slices, "rest", noted)
        await served.gathering.gather()

    watched(scenario)
    assert len(rests) > groups
