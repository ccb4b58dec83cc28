"""What requests that come late do to transactions, without KIP-890's rules and with them.

A client sends a request, does not hear of it in time, and says it again or goes on; the
network delivers the first one later. In the protocol of KIP-98 a producer has one epoch
for all its transactions, so nobody can tell that such a request belongs to one that is
over. What follows from that is what KIP-890 was made for, and what Jepsen found in its
report on Bufstream: writes that are lost, aborted writes that are read, transactions of
which one half counts.

Each scenario is played twice. In the old protocol, as clients speak it to this day that
do not know `transaction.version=2`, the anomaly is there: if it went away by itself, the
scenario would show nothing. In the new one it is not. Where the cure is the check with
the coordinator before a batch is written, which old clients have as well, the anomaly is
shown by a node that does not check: `transaction_version=0`.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.asking import Asking, run
from tests.unit.server.transaction_door import (
    NEW,
    OLD,
    START,
    TIMEOUT_MS,
    TOPIC,
    Transactor,
    committed,
    committed_offset,
    make_topic,
)

from headrace.platform.memory_disk import MemoryDisk
from headrace.server.kafka.errors import Error
from headrace.testing import ManualClock

both = pytest.mark.parametrize("versions", [OLD, NEW], ids=["without", "with"])
Versions = dict[int, int]


async def producer_of(versions: Versions, *, level: int = 2) -> Transactor:
    asking = Asking(MemoryDisk(), clock=ManualClock(START), transaction_version=level)
    make_topic(asking)
    producer = Transactor(asking, versions)
    assert await producer.init() == Error.NONE
    return producer


async def begin(producer: Transactor, *indexes: int) -> None:
    """In the new protocol the first write does it."""
    if producer.versions is OLD:
        assert await producer.add(*indexes) == [Error.NONE] * len(indexes)


@both
def test_a_late_write_of_an_aborted_transaction_is_read_and_hides_a_good_one(
    versions: Versions,
) -> None:
    async def scenario() -> None:
        producer = await producer_of(versions)
        await begin(producer, 0)
        late = producer.batch(0, b"aborted")
        assert await producer.end(commit=False) == Error.NONE
        await begin(producer, 0)
        if versions is OLD:
            assert await producer.send(0, late) == Error.NONE
            # As far as the producer knows its first batch was never written, so the
            # next one has the same numbers, and is taken for it.
            producer.forget_sequences()
            assert await producer.write(0, b"good") == Error.NONE
        else:
            assert await producer.send(0, late) == Error.INVALID_PRODUCER_EPOCH
            assert await producer.write(0, b"good") == Error.NONE
        assert await producer.end(commit=True) == Error.NONE
        seen = await committed(producer.asking)
        assert seen == ([b"aborted"] if versions is OLD else [b"good"])

    run(scenario)


@pytest.mark.parametrize(
    ("versions", "level"), [(OLD, 0), (OLD, 2), (NEW, 2)], ids=["without", "checked", "with"]
)
def test_a_late_write_behind_the_end_hangs_and_holds_back_every_reader(
    versions: Versions, level: int
) -> None:
    async def scenario() -> None:
        producer = await producer_of(versions, level=level)
        await begin(producer, 0)
        late = producer.batch(0, b"late")
        assert await producer.end(commit=False) == Error.NONE
        code = await producer.send(0, late)
        other = Transactor(producer.asking, versions, "other")
        await other.init()
        await begin(other, 0)
        assert await other.write(0, b"good") == Error.NONE
        assert await other.end(commit=True) == Error.NONE
        partition = producer.asking.broker.topics.partition(
            producer.asking.broker.topics.named(TOPIC), 0
        )
        if level == 0:
            assert code == Error.NONE
            # The coordinator does not know of it, so it will not end it: an operator has to.
            assert producer.asking.broker.transactions.next_deadline_ms() is None
            assert len(partition.open_transactions()) == 1
            assert await committed(producer.asking) == []
        else:
            refused = Error.INVALID_PRODUCER_EPOCH
            assert code == (Error.TRANSACTION_ABORTABLE if versions is OLD else refused)
            assert await committed(producer.asking) == [b"good"]

    run(scenario)


@both
def test_a_late_commit_makes_half_of_the_next_transaction_count(versions: Versions) -> None:
    async def scenario() -> None:
        producer = await producer_of(versions)
        await begin(producer, 0)
        assert await producer.write(0, b"first") == Error.NONE
        # Sent, not heard of in time, and sent again over another connection.
        late = producer.ending(commit=True)
        assert await producer.end(commit=True) == Error.NONE
        await begin(producer, 0, 1)
        assert await producer.write(0, b"half") == Error.NONE
        code = await send_late_end(producer, late)
        if versions is OLD:
            assert code == Error.NONE
            assert await producer.write(1, b"other half") == Error.TRANSACTION_ABORTABLE
            # The producer gives it up, and half of it has been committed.
            assert await producer.end(commit=False) == Error.INVALID_TXN_STATE
            assert await committed(producer.asking, 0) == [b"first", b"half"]
            assert await committed(producer.asking, 1) == []
        else:
            assert code == Error.PRODUCER_FENCED
            assert await committed(producer.asking, 0) == [b"first"]
            assert await producer.write(1, b"other half") == Error.NONE
            assert await producer.end(commit=True) == Error.NONE
            assert await committed(producer.asking, 0) == [b"first", b"half"]
            assert await committed(producer.asking, 1) == [b"other half"]

    run(scenario)


@both
def test_a_late_abort_takes_half_of_a_transaction_that_is_committed(versions: Versions) -> None:
    async def scenario() -> None:
        producer = await producer_of(versions)
        await begin(producer, 0)
        assert await producer.write(0, b"first") == Error.NONE
        late = producer.ending(commit=False)
        assert await producer.end(commit=False) == Error.NONE
        await begin(producer, 0)
        assert await producer.write(0, b"half") == Error.NONE
        code = await send_late_end(producer, late)
        assert code == (Error.NONE if versions is OLD else Error.PRODUCER_FENCED)
        await begin(producer, 1)
        assert await producer.write(1, b"other half") == Error.NONE
        assert await producer.end(commit=True) == Error.NONE
        # Committed, and the producer was told so.
        assert await committed(producer.asking, 1) == [b"other half"]
        assert await committed(producer.asking, 0) == ([] if versions is OLD else [b"half"])

    run(scenario)


@both
def test_late_offsets_of_an_aborted_transaction_skip_what_nobody_did(versions: Versions) -> None:
    async def scenario() -> None:
        producer = await producer_of(versions)
        if versions is OLD:
            assert await producer.add_offsets() == Error.NONE
        late = producer.offsets(5)
        assert await producer.end(commit=False) == Error.NONE
        await begin(producer, 0)
        if versions is OLD:
            assert await producer.add_offsets() == Error.NONE
        assert await producer.write(0, b"something else") == Error.NONE
        code = await producer.send_offsets(late)
        assert code == (Error.NONE if versions is OLD else Error.INVALID_PRODUCER_EPOCH)
        assert await producer.end(commit=True) == Error.NONE
        offset, _ = await committed_offset(producer.asking)
        assert offset == (5 if versions is OLD else -1)

    run(scenario)


@pytest.mark.parametrize("bumps", [False, True], ids=["without", "with"])
def test_a_late_partition_begins_a_transaction_that_costs_its_producer(bumps: bool) -> None:
    async def scenario() -> None:
        # Both add partitions by request; the end makes the difference.
        producer = await producer_of({**OLD, 26: 5} if bumps else OLD)
        assert await producer.add(0) == [Error.NONE]
        late = Transactor(producer.asking, producer.versions)
        late.producer_id, late.epoch = producer.producer_id, producer.epoch
        assert await producer.write(0, b"first") == Error.NONE
        assert await producer.end(commit=True) == Error.NONE
        code = await late.add(0)
        await pass_time(producer.asking)
        again = await producer.add(0)
        if bumps:
            assert code == [Error.PRODUCER_FENCED] and again == [Error.NONE]
            assert await producer.write(0, b"second") == Error.NONE
            assert await producer.end(commit=True) == Error.NONE
        else:
            # It did nothing, and is fenced for being slow.
            assert code == [Error.NONE] and again == [Error.PRODUCER_FENCED]

    run(scenario)


async def send_late_end(producer: Transactor, request: object) -> int:
    """Whatever it is answered, the producer does not hear of it."""
    answer = await producer.asking.ask(26, producer.versions[26], request)
    return int(answer.error_code)


async def pass_time(asking: Asking) -> None:
    clock = asking.clock
    assert isinstance(clock, ManualClock)
    clock.skip(TIMEOUT_MS / 1000)
    await asking.skip(TIMEOUT_MS / 1000)
    async with asyncio.timeout(30):
        while asking.broker.transactions.pending():
            await asyncio.sleep(0)
