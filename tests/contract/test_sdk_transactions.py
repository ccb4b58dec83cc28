"""Transactions of the SDK: messages, positions and acks, together or not at all."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace


@pytest.fixture
def handle(sdk_backend: SdkBackend) -> headrace.Headrace:
    return sdk_backend.open(auto_create=True)


def values_of(handle: headrace.Headrace, topic: str) -> list[Any]:
    with handle.stream(topic, start="earliest") as stream:
        return sorted(record.value for record in stream.poll(1_000, wait=0))


def test_all_of_it_is_there_when_the_block_is_over(handle: headrace.Headrace) -> None:
    with handle.transaction() as tx:
        tx.publish("invoices", "i1", key="k")
        tx.publish_many("mails", [b"m1", b"m2"])
        tx.publish("invoices", "i2", key="k", priority="high")
    assert [place.topic for place in tx.published] == ["invoices", "mails", "mails", "invoices"]
    first, last = tx.published[0], tx.published[3]
    assert (first.partition, first.offset + 1) == (last.partition, last.offset)
    assert values_of(handle, "invoices") == ["i1", "i2"]
    assert values_of(handle, "mails") == [b"m1", b"m2"]


def test_an_error_in_the_block_means_that_nothing_happened(handle: headrace.Headrace) -> None:
    handle.create_topic("invoices")
    with pytest.raises(RuntimeError), handle.transaction() as tx:
        tx.publish("invoices", "i1")
        raise RuntimeError("no paper")
    assert values_of(handle, "invoices") == []
    with pytest.raises(headrace.Closed):
        tx.publish("invoices", "i2")


def test_a_message_is_acked_with_what_came_of_it(handle: headrace.Headrace) -> None:
    handle.publish("orders", "o1")
    queue = handle.queue("orders")
    [message] = queue.receive()
    with handle.transaction() as tx:
        tx.publish("invoices", "i1")
        tx.ack(message)
        assert not message.settled
    assert message.settled
    assert queue.depth() == 0
    assert handle.status(message.id).state == "acked"
    assert values_of(handle, "invoices") == ["i1"]
    with pytest.raises(headrace.InvalidArgument, match="settled before"):
        handle.transaction().ack(message)


def test_a_lease_that_is_over_aborts_all_of_it(
    handle: headrace.Headrace, sdk_backend: SdkBackend
) -> None:
    handle.publish("orders", "o1")
    handle.create_topic("invoices")
    queue = handle.queue("orders", visibility=5, backoff_ms=0)
    [message] = queue.receive()
    sdk_backend.clock.skip(6)
    with pytest.raises(headrace.StaleReceipt), handle.transaction() as tx:
        tx.publish("invoices", "i1")
        tx.ack(message)
    assert values_of(handle, "invoices") == []
    assert not message.settled
    [again] = queue.receive()
    assert again.attempt == 2
    with handle.transaction() as tx:
        tx.publish("invoices", "i2")
        tx.ack(again)
    assert values_of(handle, "invoices") == ["i2"]


def test_one_bad_ack_among_good_ones_aborts_all_of_it_and_costs_the_others_nothing(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", ["o1", "o2"])
    queue = handle.queue("orders", visibility=60)
    good, stale = queue.receive(2)
    queue.ack([stale.receipt])
    with pytest.raises(headrace.StaleReceipt), handle.transaction() as tx:
        tx.publish("invoices", "i1")
        tx.ack(good, stale)
    assert "invoices" not in {topic.name for topic in handle.topics()}
    good.ack()
    assert queue.depth() == 0


def test_what_another_member_has_now_is_not_committed_with_its_results(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 2)
    for partition in (0, 1):
        handle.publish_many("orders", [f"o{partition}"], partition=partition)
    handle.create_topic("invoices")
    first = handle.stream("orders", "billing", auto_commit=None)
    records = first.poll(10, wait=0)
    assert len(records) == 2
    second = handle.stream("orders", "billing", auto_commit=None)
    for stream, given in ((first, records), (second, second.poll(10, wait=0))):
        try:
            with handle.transaction() as tx:
                for record in given:
                    tx.publish("invoices", record.value)
                tx.commit(stream)
        except headrace.StaleGeneration:
            assert stream is first
    # Told once, it goes on with what is its own.
    with handle.transaction() as tx:
        for record in first.poll(10, wait=0):
            tx.publish("invoices", record.value)
        tx.commit(first)
    again = values_of(handle, "invoices")
    assert sorted(set(again)) == sorted(again)
    first.end(failed=True)
    with handle.transaction() as tx:
        for record in second.poll(10, wait=0):
            tx.publish("invoices", record.value)
        tx.commit(second)
    assert values_of(handle, "invoices") == ["o0", "o1"]


def test_a_transaction_may_be_large(handle: headrace.Headrace) -> None:
    handle.create_topic("large", 1)
    with handle.transaction() as tx:
        tx.publish_many("large", [b"x" * 900_000] * 5)
    assert len(tx.published) == 5


def test_nothing_is_made_for_a_transaction_that_is_refused(handle: headrace.Headrace) -> None:
    for wrong in ({"topic": "no spaces"}, {"topic": "new", "partition": 9}):
        with pytest.raises(headrace.HeadraceError), handle.transaction() as tx:
            tx.publish("another", 1)
            tx.publish(wrong.pop("topic"), 2, **wrong)  # type: ignore[arg-type]
    assert handle.topics() == []


def test_a_stream_goes_on_behind_what_was_committed_with_its_results(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    handle.publish_many("orders", ["o1", "o2", "o3"])
    with handle.stream("orders", "billing", auto_commit=None) as stream:
        records = stream.poll(2, wait=0)
        with handle.transaction() as tx:
            for record in records:
                tx.publish("invoices", f"for {record.value}")
            tx.commit(stream)
        stream.poll(1, wait=0)
        with pytest.raises(RuntimeError), handle.transaction() as tx:
            tx.publish("invoices", "never")
            tx.commit(stream)
            raise RuntimeError("no paper")
        stream.end(failed=True)
    assert values_of(handle, "invoices") == ["for o1", "for o2"]
    with handle.stream("orders", "billing") as again:
        assert [record.value for record in again.poll(10, wait=0)] == ["o3"]


def test_a_queue_delivers_what_was_committed_and_nothing_that_was_aborted(
    handle: headrace.Headrace, sdk_backend: SdkBackend
) -> None:
    handle.publish("orders", "o1")
    queue = handle.queue("orders", visibility=5, backoff_ms=0, max_attempts=9)
    handle.create_topic("work")
    work = handle.queue("work")
    [message] = queue.receive()
    sdk_backend.clock.skip(6)
    with pytest.raises(headrace.StaleReceipt), handle.transaction() as tx:
        tx.publish("work", "aborted")
        tx.ack(message)
    with handle.transaction() as tx:
        tx.publish("work", "committed")
    assert [each.value for each in work.receive(10, wait=0)] == ["committed"]


def test_many_transactions_at_once(handle: headrace.Headrace) -> None:
    def work(number: int) -> None:
        with handle.transaction() as tx:
            tx.publish("a", number)
            tx.publish("b", number)

    handle.create_topic("a")
    handle.create_topic("b")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(80)))
    assert values_of(handle, "a") == values_of(handle, "b") == list(range(80))
    # Producers are used again, not made anew.
    assert len(handle.transactions()) <= 8


def test_the_same_awaited(sdk_backend: SdkBackend) -> None:
    async def work() -> tuple[list[Any], int]:
        async with sdk_backend.open_async(auto_create=True) as handle:
            await handle.publish("orders", "o1")
            async with handle.queue("orders") as queue:
                [message] = await queue.receive()
                async with handle.transaction() as tx:
                    tx.publish("invoices", "i1")
                    tx.ack(message)
                async with handle.stream("invoices", start="earliest") as stream:
                    found = [record.value for record in await stream.poll(10, wait=0)]
                return found, await queue.depth()

    assert asyncio.run(work()) == (["i1"], 0)


def test_an_empty_transaction_is_nothing(handle: headrace.Headrace) -> None:
    with handle.transaction() as tx:
        pass
    assert tx.published == []
    assert handle.transactions() == []


def test_what_cannot_be_part_of_a_transaction_is_refused(handle: headrace.Headrace) -> None:
    handle.create_topic("once", dedup=True)
    handle.create_topic("small", record_bytes_max=10)
    with pytest.raises(headrace.InvalidArgument, match="drops duplicates"):
        with handle.transaction() as tx:
            tx.publish("small", b"fits")
            tx.publish("once", b"x", dedup_id="1")
    with pytest.raises(headrace.RecordTooLarge), handle.transaction() as tx:
        tx.publish("small", b"x" * 11)
    with pytest.raises(headrace.InvalidArgument, match="a transaction acks messages"):
        handle.transaction().ack("orders:0:1")  # type: ignore[arg-type]
    assert values_of(handle, "small") == []


def test_it_holds_after_closing_and_opening_again(sdk_backend: SdkBackend) -> None:
    with sdk_backend.open(auto_create=True) as handle:
        handle.publish("orders", "o1")
        [message] = handle.queue("orders").receive()
        with handle.transaction() as tx:
            tx.publish("invoices", "i1")
            tx.ack(message)
    handle = sdk_backend.open()
    assert values_of(handle, "invoices") == ["i1"]
    assert handle.depth("orders") == 0
