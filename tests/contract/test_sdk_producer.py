"""Producers: messages collected into batches by the client, published in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace
from headrace.core.errors import InvalidArgument, InvalidName, UnknownPartition
from headrace.testing import ManualClock

# Nothing is sent because of time alone.
FOREVER = 60_000
WAIT = 60


def values_of(handle: headrace.Headrace, topic: str, count: int) -> list[Any]:
    """What a stream reads, partition by partition."""
    with handle.stream(topic) as stream:
        records: list[headrace.Record[Any]] = []
        while len(records) < count:
            records += stream.poll(1000, wait=WAIT)
        assert len(records) == count
    return [record.value for record in sorted(records, key=lambda each: each.id)]


@pytest.mark.parametrize("value", [b"", b"\x00\xff", "grün", {"a": [1, None]}, 7, None])
def test_a_value_that_a_producer_published_comes_out_as_it_went_in(
    handle: headrace.Headrace, value: Any
) -> None:
    handle.create_topic("orders", 1)
    with handle.producer() as producer:
        place = producer.publish("orders", value, key="k", headers={"trace": "abc"}).result(WAIT)
    assert str(place) == "orders:0:0"
    with handle.queue("orders") as queue:
        [message] = queue.receive()
        assert (message.value, message.key, message.headers["trace"]) == (value, b"k", b"abc")


def test_everything_is_published_when_the_block_ends(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 3)
    with handle.producer(linger_ms=FOREVER) as producer:
        pending = [producer.publish("orders", b"%d" % n, key=b"%d" % (n % 7)) for n in range(500)]
    assert all(each.done() for each in pending)
    assert len({str(each.result()) for each in pending}) == 500
    assert handle.depth("orders") == 500


def test_messages_of_a_partition_stay_in_order_over_many_batches(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    with handle.producer(batch_messages=7, linger_ms=0) as producer:
        pending = [producer.publish("orders", n) for n in range(300)]
        assert [each.result(WAIT).offset for each in pending] == list(range(300))
    assert values_of(handle, "orders", 300) == list(range(300))


def test_a_key_goes_where_the_node_would_have_put_it(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 5)
    keys = [f"customer-{n}" for n in range(40)]
    chosen = [handle.publish("orders", b"x", key=key).partition for key in keys]
    with handle.producer() as producer:
        pending = [producer.publish("orders", b"x", key=key) for key in keys]
        assert [each.result(WAIT).partition for each in pending] == chosen
        assert producer.publish("orders", b"x", partition=3).result(WAIT).partition == 3
        with pytest.raises(UnknownPartition, match="0 to 4"):
            producer.publish("orders", b"x", partition=5)


def test_a_full_batch_goes_without_waiting_and_a_flush_sends_the_rest(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    with handle.producer(batch_messages=10, linger_ms=FOREVER) as producer:
        pending = [producer.publish("orders", n) for n in range(15)]
        assert pending[9].result(WAIT).offset == 9
        assert not pending[10].done()
        with pytest.raises(TimeoutError):
            pending[10].result(0)
        producer.flush()
        assert [each.result().offset for each in pending] == list(range(15))
    with handle.producer(batch_bytes=4_000, linger_ms=FOREVER) as producer:
        pending = [producer.publish("orders", b"x" * 1_000) for _ in range(5)]
        assert pending[0].result(WAIT).offset == 15


def test_what_is_special_about_a_message_counts_through_a_producer(
    handle: headrace.Headrace, clock: ManualClock
) -> None:
    handle.create_topic("orders", 1)
    with handle.producer() as producer:
        producer.publish("orders", "later", delay=30)
        producer.publish("orders", "short", ttl=10)
        producer.publish("orders", "normal", max_attempts=7)
        producer.publish("orders", "urgent", priority="critical", visibility=120)
    with handle.queue("orders") as queue:
        messages = queue.receive(10, wait=0)
        assert [each.value for each in messages] == ["urgent", "short", "normal"]
        assert [each.max_attempts for each in messages if each.value == "normal"] == [7]
        queue.release(messages)
        clock.skip(29)
        assert [each.value for each in queue.receive(10, wait=0)] == ["urgent", "normal"]
        clock.skip(1)
        assert [each.value for each in queue.receive(10, wait=0)] == ["later"]


def test_a_topic_that_drops_duplicates_does_so_for_a_producer(handle: headrace.Headrace) -> None:
    handle.create_topic("payments", 3, dedup=True)
    with handle.producer() as producer:
        first = producer.publish("payments", b"x", dedup_id="payment-7").result(WAIT)
        again = producer.publish("payments", b"x", dedup_id="payment-7").result(WAIT)
        other = producer.publish("payments", b"x").result(WAIT)
        many = producer.publish_many("payments", [b"y", b"z"]).result(WAIT)
    assert (again.id, again.duplicate, first.duplicate) == (first.id, True, False)
    assert not other.duplicate and len(many) == 2
    assert handle.depth("payments") == 4


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_read_as_any_other(
    handle: headrace.Headrace, compression: Any
) -> None:
    handle.create_topic("orders", 1)
    with handle.producer(compression=compression) as producer:
        producer.publish_many("orders", ["the same again"] * 200)
        producer.publish("orders", "urgent", priority="critical")
    size = handle.topic("orders").partitions[0].size_bytes
    assert (size < 3_000) == (compression != "none")
    with handle.queue("orders") as queue:
        assert queue.receive(1)[0].value == "urgent"
    assert values_of(handle, "orders", 201)[0] == "the same again"


def test_many_are_published_in_the_order_given(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    handle.create_topic("spread", 4)
    with handle.producer() as producer:
        places = producer.publish_many("orders", [b"%d" % n for n in range(2_500)]).result(WAIT)
        assert [place.offset for place in places] == list(range(2_500))
        mixed = producer.publish_many(
            "orders",
            [headrace.NewMessage("a", key="k"), "b", headrace.NewMessage(None, key="k")],
            headers={"source": "import"},
        )
        assert [place.offset for place in mixed.result(WAIT)] == [2_500, 2_501, 2_502]
        spread = producer.publish_many("spread", [b"x" * 1_000] * 2_000).result(WAIT)
        assert len({place.id for place in spread}) == 2_000
        assert {place.partition for place in spread} == {0, 1, 2, 3}
        assert len(producer.publish_many("orders", []).result(WAIT)) == 0
    assert values_of(handle, "orders", 2_503)[-3:] == ["a", "b", None]


def test_without_acks_nobody_learns_the_place(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    with handle.producer(acks="none") as producer:
        assert producer.publish("orders", 1).result(WAIT).offset == -1
        assert [each.offset for each in producer.publish_many("orders", [2, 3]).result(WAIT)] == [
            -1,
            -1,
        ]
    assert values_of(handle, "orders", 3) == [1, 2, 3]


def test_an_error_is_told_to_whoever_asks_and_otherwise_by_the_flush(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 1)
    with handle.producer(linger_ms=FOREVER) as producer:
        asked = producer.publish("orders", 1)
        handle.delete_topic("orders")
        with pytest.raises(headrace.UnknownTopic):
            producer.flush()
        with pytest.raises(headrace.UnknownTopic):
            asked.result()
        producer.flush()
        with pytest.raises(headrace.UnknownTopic):
            producer.publish("orders", 2)
        # A topic that is made again is found again.
        handle.create_topic("orders", 2)
        place = producer.publish("orders", 3, partition=1)
        producer.flush()
        assert str(place.result()) == "orders:1:0"


def test_a_producer_goes_on_behind_a_batch_that_was_refused(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    with handle.producer(linger_ms=0) as producer:
        producer.publish("orders", b"x" * 1_000).result(WAIT)
        handle.alter_topic("orders", record_bytes_max=2_000)
        with pytest.raises(headrace.RecordTooLarge):
            producer.publish("orders", b"y" * 20_000).result(WAIT)
        assert producer.publish("orders", b"z").result(WAIT).offset == 1
        assert producer.publish("orders", b"z").result(WAIT).offset == 2


def test_what_cannot_be_published_is_refused_at_once(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open()
    handle.create_topic("orders", 1)
    handle.create_topic("small", 1, record_bytes_max=100)
    handle.publish("orders", 1)
    with handle.queue("orders") as queue:
        queue.receive()[0].reject()
    with handle.producer() as producer:
        with pytest.raises(headrace.UnknownTopic):
            producer.publish("missing", 1)
        with pytest.raises(InvalidName):
            producer.publish("orders.dlq", 1)
        with pytest.raises(InvalidArgument):
            producer.publish("orders", object())
        with pytest.raises(headrace.RecordTooLarge):
            producer.publish("small", b"x" * 101)
        with pytest.raises(headrace.RecordTooLarge):
            producer.publish_many("small", [b"x", b"x" * 101])
        assert producer.publish("small", b"x" * 100).result(WAIT).offset == 0
        assert len(producer.publish_many("small", [b"x" * 60] * 9).result(WAIT)) == 9
    with pytest.raises(headrace.Closed):
        producer.publish("orders", 1)
    for wrong in ({"acks": "some"}, {"compression": "rar"}, {"linger_ms": -1}, {"linger_ms": 0.5}):
        with pytest.raises(InvalidArgument):
            handle.producer(**wrong)


def test_a_handle_that_makes_topics_makes_them_for_a_producer(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(auto_create=True)
    with handle.producer() as producer:
        producer.publish("made", 1)
        producer.publish_many("made-too", [1, 2])
    assert (handle.depth("made"), handle.depth("made-too")) == (1, 2)


def test_closing_the_handle_publishes_what_a_producer_holds(sdk_backend: SdkBackend) -> None:
    sdk_backend.open().create_topic("orders", 1)
    if sdk_backend.is_exclusive:
        sdk_backend.close()
    handle = sdk_backend.open()
    pending = handle.producer(linger_ms=FOREVER).publish("orders", 1)
    handle.close()
    assert pending.result().offset == 0
    assert sdk_backend.open().depth("orders") == 1


def test_a_callback_is_called_when_the_message_is_published(handle: headrace.Headrace) -> None:
    handle.create_topic("orders", 1)
    heard: list[str] = []
    with handle.producer(linger_ms=FOREVER) as producer:
        pending = producer.publish("orders", 1)
        pending.add_done_callback(lambda each: heard.append(str(each.result())))
        assert not heard
    assert heard == ["orders:0:0"]
    pending.add_done_callback(lambda each: heard.append("at once"))
    assert heard[-1] == "at once"


def test_a_producer_for_asyncio_says_the_same_words(sdk_backend: SdkBackend) -> None:
    async def test() -> None:
        async with sdk_backend.open_async() as handle:
            await handle.create_topic("orders", 1)
            async with handle.producer(linger_ms=FOREVER) as producer:
                pending = await producer.publish("orders", {"id": 7}, key="k")
                assert not pending.done()
                await producer.flush()
                assert str(await pending) == "orders:0:0"
                many = await producer.publish_many("orders", [b"x"] * 1_500)
                await producer.flush()
                assert [place.offset for place in await many] == list(range(1, 1_501))
                late = [await producer.publish("orders", n) for n in range(3)]
            assert [(await each).offset for each in late] == [1_501, 1_502, 1_503]
            with pytest.raises(headrace.Closed):
                await producer.publish("orders", 1)
            with pytest.raises(headrace.UnknownTopic):
                async with handle.producer() as producer:
                    await producer.publish("missing", 1)

    asyncio.run(test())


def test_a_full_buffer_makes_publishers_wait_and_nothing_is_lost(
    handle: headrace.Headrace,
) -> None:
    handle.create_topic("orders", 2)
    with handle.producer(buffer_bytes=10_000, linger_ms=0) as producer:
        for _ in range(200):
            producer.publish("orders", b"x" * 1_000)
        producer.publish_many("orders", [b"x" * 1_000] * 100)
    assert handle.depth("orders") == 300


def test_tasks_that_find_no_room_wait_for_it(sdk_backend: SdkBackend) -> None:
    async def test() -> None:
        async with sdk_backend.open_async() as handle:
            await handle.create_topic("orders", 2)
            async with handle.producer(buffer_bytes=10_000, linger_ms=0) as producer:

                async def publish_some() -> None:
                    for _ in range(50):
                        await producer.publish("orders", b"x" * 1_000)

                await asyncio.gather(*(publish_some() for _ in range(4)))
                await producer.publish_many("orders", [b"x" * 1_000] * 100)
            assert await handle.depth("orders") == 300

    asyncio.run(test())
