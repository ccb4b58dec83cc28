"""Transactions at the door: each API of them, old and new, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.test_groups import GROUP, join_alone
from tests.unit.server.transaction_door import (
    ADD,
    END,
    INIT,
    NAME,
    NEW,
    OLD,
    PRODUCE,
    START,
    TIMEOUT_MS,
    TOPIC,
    TXN_COMMIT,
    Transactor,
    committed,
    committed_offset,
    make_topic,
)

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.testing import ManualClock
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.generated.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.generated.list_transactions_request import ListTransactionsRequest

both = pytest.mark.parametrize("versions", [OLD, NEW], ids=["old", "new"])


def door(**how: Any) -> Asking:
    asking = Asking(MemoryDisk(), **how)
    make_topic(asking)
    return asking


async def begun(asking: Asking, versions: dict[int, int], *indexes: int) -> Transactor:
    """A producer with a transaction, as a client of these versions begins it."""
    producer = Transactor(asking, versions)
    assert await producer.init() == Error.NONE
    if versions is OLD:
        assert await producer.add(*indexes) == [Error.NONE] * len(indexes)
    return producer


@both
def test_committed_records_are_seen_once_the_end_is_answered(versions: dict[int, int]) -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, versions, 0, 1)
        assert await producer.write(0, b"a", b"b") == Error.NONE
        assert await producer.write(1, b"c") == Error.NONE
        assert await committed(asking, 0) == []
        assert await producer.end(commit=True) == Error.NONE
        assert await committed(asking, 0) == [b"a", b"b"]
        assert await committed(asking, 1) == [b"c"]

    run(scenario)


@both
def test_aborted_records_are_never_seen(versions: dict[int, int]) -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, versions, 0)
        assert await producer.write(0, b"a") == Error.NONE
        assert await producer.end(commit=False) == Error.NONE
        if versions is OLD:
            assert await producer.add(0) == [Error.NONE]
        assert await producer.write(0, b"b") == Error.NONE
        assert await producer.end(commit=True) == Error.NONE
        assert await committed(asking) == [b"b"]

    run(scenario)


@both
def test_offsets_of_a_transaction_count_with_it(versions: dict[int, int]) -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, versions, 0)
        if versions is OLD:
            assert await producer.add_offsets() == Error.NONE
        assert await producer.commit_offset(7) == Error.NONE
        assert await committed_offset(asking) == (-1, Error.NONE)
        assert await committed_offset(asking, stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
        assert await producer.end(commit=True) == Error.NONE
        assert await committed_offset(asking, stable=True) == (7, Error.NONE)

    run(scenario)


def test_a_group_that_has_moved_on_takes_no_offsets_of_its_former_members() -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, NEW)
        joined = await join_alone(asking)
        member, generation = joined.member_id, joined.generation_id
        request = producer.offsets(7)._replace(group_id=GROUP, member_id=member)
        stale = request._replace(generation_id=generation - 1)
        assert await producer.send_offsets(stale) == Error.ILLEGAL_GENERATION
        nobody = request._replace(generation_id=generation, member_id="nobody")
        assert await producer.send_offsets(nobody) == Error.UNKNOWN_MEMBER_ID
        right = request._replace(generation_id=generation)
        assert await producer.send_offsets(right) == Error.NONE

    run(scenario)


@both
def test_the_end_is_answered_with_what_comes_next(versions: dict[int, int]) -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, versions, 0)
        await producer.write(0, b"a")
        before = producer.epoch
        request = producer.ending(commit=True)
        assert await producer.send_end(request) == Error.NONE
        assert producer.epoch == before + (1 if versions is NEW else 0)
        # Said again, because the answer was lost.
        again = await asking.ask(END, versions[END], request)
        assert again.error_code == Error.NONE
        if versions is NEW:
            assert (again.producer_id, again.producer_epoch) == (
                producer.producer_id,
                producer.epoch,
            )
        other = await asking.ask(END, versions[END], request._replace(committed=False))
        assert other.error_code == Error.INVALID_TXN_STATE

    run(scenario)


@both
def test_a_new_producer_ends_what_the_old_one_left(versions: dict[int, int]) -> None:
    async def scenario() -> None:
        asking = door()
        old = await begun(asking, versions, 0)
        await old.write(0, b"a")
        new = Transactor(asking, versions)
        # As Kafka does: the old one is fenced, and the new one asks again.
        assert await new.init() == Error.CONCURRENT_TRANSACTIONS
        assert await old.write(0, b"zombie") == Error.INVALID_PRODUCER_EPOCH
        assert await new.init() == Error.NONE
        assert new.producer_id == old.producer_id and new.epoch > old.epoch
        assert await committed(asking) == []
        assert await old.write(0, b"zombie") == Error.INVALID_PRODUCER_EPOCH
        assert await old.end(commit=True) == Error.PRODUCER_FENCED
        assert await old.add(0) == [Error.PRODUCER_FENCED]
        assert await old.init(claim=True) == Error.PRODUCER_FENCED
        assert await old.commit_offset(9) == Error.INVALID_PRODUCER_EPOCH

    run(scenario)


def test_old_clients_are_told_what_they_understand() -> None:
    async def scenario() -> None:
        asking = door()
        oldest = {**OLD, END: 1, ADD: 1, INIT: 3, PRODUCE: 10, TXN_COMMIT: 3}
        old = await begun(asking, oldest)
        assert await Transactor(asking, NEW).init() == Error.NONE
        epoch = Error.INVALID_PRODUCER_EPOCH
        assert await old.end(commit=True) == epoch
        assert await old.add(0) == [epoch]
        assert await old.init(claim=True) == epoch
        current = Transactor(asking, oldest)
        await current.init()
        assert await current.write(0, b"a") == Error.INVALID_TXN_STATE
        assert await current.commit_offset(1) == Error.INVALID_TXN_STATE

    run(scenario)


def test_a_partition_that_was_not_added_is_not_written_to() -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, OLD, 0)
        assert await producer.write(1, b"a") == Error.TRANSACTION_ABORTABLE
        assert await producer.commit_offset(1) == Error.TRANSACTION_ABORTABLE
        assert (
            asking.broker.topics.partition(asking.broker.topics.named(TOPIC), 1).log.end_offset == 0
        )

    run(scenario)


def test_partitions_are_added_all_or_none() -> None:
    async def scenario() -> None:
        asking = door()
        producer = Transactor(asking, OLD)
        await producer.init()
        unknown, skipped = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.OPERATION_NOT_ATTEMPTED
        assert await producer.add(0, 9) == [skipped, unknown]
        offsets = "__consumer_offsets"
        assert await producer.add(0, topic=offsets) == [unknown]
        await producer.add_offsets()
        assert await producer.add(0, topic=offsets) == [Error.TOPIC_AUTHORIZATION_FAILED]
        assert await producer.write(0, b"a") == Error.TRANSACTION_ABORTABLE

    run(scenario)


def test_who_is_unknown_or_has_another_number_is_told_so() -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, NEW)
        stranger = Transactor(asking, NEW, "stranger")
        stranger.producer_id, stranger.epoch = producer.producer_id, producer.epoch
        wrong = Transactor(asking, NEW)
        wrong.producer_id, wrong.epoch = producer.producer_id + 1, producer.epoch
        mapping = Error.INVALID_PRODUCER_ID_MAPPING
        for each in (stranger, wrong):
            assert await each.add(0) == [mapping]
            assert await each.add_offsets() == mapping
            assert await each.write(0, b"a") == mapping
            assert await each.commit_offset(1) == mapping
            assert await each.end(commit=True) == mapping
        for name, asked_ms in (("", TIMEOUT_MS), (NAME, 0), (NAME, -1), (NAME, 900_001)):
            code = await Transactor(asking, NEW, name).init(asked_ms)
            invalid = Error.INVALID_TRANSACTION_TIMEOUT
            assert code == (invalid if name else Error.INVALID_REQUEST)
        assert await producer.end(commit=True) == Error.INVALID_TXN_STATE

    run(scenario)


def test_a_transactional_batch_without_an_id_is_refused() -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, NEW)
        batch = producer.batch(0, b"a")
        nameless = Transactor(asking, NEW)
        nameless.name = None  # type: ignore[assignment]
        assert await nameless.send(0, batch) == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    run(scenario)


def test_time_ends_what_nobody_ends_and_fences_its_producer() -> None:
    async def scenario() -> None:
        clock = ManualClock(START)
        asking = door(clock=clock)
        producer = await begun(asking, NEW)
        await producer.write(0, b"a")
        partition = asking.broker.topics.partition(asking.broker.topics.named(TOPIC), 0)
        clock.skip(TIMEOUT_MS / 1000)
        await asking.skip(TIMEOUT_MS / 1000)
        async with asyncio.timeout(30):
            while partition.open_transactions() or asking.broker.transactions.pending():
                await asyncio.sleep(0)
        assert await committed(asking) == []
        assert await producer.end(commit=True) == Error.PRODUCER_FENCED
        assert await producer.write(0, b"b") == Error.INVALID_PRODUCER_EPOCH

    run(scenario)


def test_the_nodes_housekeeping_forgets_ids_that_nobody_uses() -> None:
    async def scenario() -> None:
        clock = ManualClock(START)
        asking = door(clock=clock)
        producer = Transactor(asking, NEW)
        await producer.init()
        clock.skip(7 * 24 * 3600)
        asking.service.duties.see_to_all()
        assert await producer.end(commit=False) == Error.INVALID_PRODUCER_ID_MAPPING

    run(scenario)


def test_batches_that_are_sent_without_waiting_keep_their_order() -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, NEW)
        batches = [producer.batch(0, b"%d" % number) for number in range(5)]
        sent = [producer.begin_send(0, batch) for batch in batches]
        other = producer.begin_send(1, producer.batch(1, b"other"))
        assert await asyncio.gather(*sent, other) == [Error.NONE] * 6
        assert await producer.end(commit=True) == Error.NONE
        assert await committed(asking) == [b"0", b"1", b"2", b"3", b"4"]
        assert await committed(asking, 1) == [b"other"]

    run(scenario)


def test_the_end_of_an_aborted_nothing_brings_a_new_epoch() -> None:
    async def scenario() -> None:
        producer = await begun(door(), NEW)
        batch = producer.batch(0, b"late")
        assert await producer.end(commit=False) == Error.NONE
        assert producer.epoch == 1
        assert await producer.send(0, batch) == Error.INVALID_PRODUCER_EPOCH

    run(scenario)


def test_transactions_are_listed_and_described() -> None:
    async def scenario() -> None:
        asking = door()
        producer = await begun(asking, OLD, 1)
        await Transactor(asking, OLD, "idle").init()

        async def listed(*filters: Any) -> list[tuple[str, str]]:
            answer = await asking.ask(66, 2, ListTransactionsRequest(*filters))
            assert answer.error_code == Error.NONE
            return sorted(
                (each.transactional_id, each.transaction_state)
                for each in answer.transaction_states
            )

        assert await listed() == [("idle", "Empty"), (NAME, "Ongoing")]
        assert await listed(("Ongoing",)) == [(NAME, "Ongoing")]
        assert await listed((), (producer.producer_id,)) == [(NAME, "Ongoing")]
        assert await listed((), (), 3_600_000) == []
        assert await listed((), (), -1, "i.*") == [("idle", "Empty")]
        odd = await asking.ask(66, 2, ListTransactionsRequest(("Lost",)))
        assert list(odd.unknown_state_filters) == ["Lost"] and not odd.transaction_states
        bad = await asking.ask(66, 2, ListTransactionsRequest((), (), -1, "("))
        assert bad.error_code == Error.INVALID_REGULAR_EXPRESSION

        answer = await asking.ask(65, 0, DescribeTransactionsRequest((NAME, "nobody", "")))
        known, unknown, nameless = answer.transaction_states
        assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
        assert (known.producer_id, known.producer_epoch) == (producer.producer_id, 0)
        assert [(each.topic, list(each.partitions)) for each in known.topics] == [(TOPIC, [1])]
        assert unknown.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
        assert nameless.error_code == Error.INVALID_REQUEST

    run(scenario)


@pytest.mark.parametrize("level", [0, 2])
def test_the_second_version_is_a_finalised_feature(level: int) -> None:
    async def scenario() -> None:
        asking = door(transaction_version=level)
        answer = await asking.ask(18, 4, ApiVersionsRequest("test", "1"))
        assert ("transaction.version", 0, 2) in map(tuple, answer.supported_features)
        finalised = {each.name: tuple(each)[1:] for each in answer.finalized_features}
        assert finalised.get("transaction.version") == ((2, 2) if level else None)

    run(scenario)


def test_a_transaction_goes_on_after_the_node_was_killed() -> None:
    async def scenario() -> None:
        disk = MemoryDisk()
        asking = Asking(disk)
        make_topic(asking)
        producer = await begun(asking, NEW)
        await producer.write(0, b"a")
        await producer.commit_offset(1)
        await asking.close()
        producer.asking = asking = Asking(disk)
        assert await producer.write(0, b"b") == Error.NONE
        assert await producer.end(commit=True) == Error.NONE
        assert await committed(asking) == [b"a", b"b"]
        assert await committed_offset(asking) == (1, Error.NONE)

    run(scenario)
