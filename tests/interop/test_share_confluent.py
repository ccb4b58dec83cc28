"""Share groups as confluent-kafka's ShareConsumer lives in them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

import pytest
from confluent_kafka import AcknowledgeType, IllegalStateException, Message
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic
from tests.interop.share_members import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    TOPIC,
    WAIT_SECONDS,
    configure,
    letters_of,
    member,
    poll,
    publish,
    publish_mixed,
    seen,
    settle,
    take,
)


@pytest.fixture
def served(node: NodeProcess) -> str:
    """A node with one topic of one partition, whose group reads all of it."""
    make_topic(node.bootstrap, TOPIC, 1)
    configure(node.bootstrap, start="earliest")
    return node.bootstrap


def test_a_batch_is_polled_accepted_and_gone(served: str) -> None:
    publish(served, [b"%d" % number for number in range(50)])
    with member(served) as consumer:
        messages = take(consumer, 50)
    assert {message.value() for message in messages} == {b"%d" % n for n in range(50)}
    assert {message.delivery_count() for message in messages} == {1}
    with member(served) as another:
        assert poll(another, 1.5) == []


def test_a_poll_gets_500_messages_of_mixed_priorities(served: str) -> None:
    publish_mixed(served, 1_000)
    with member(served) as consumer:
        first = poll(consumer)
        assert len(first) == 500
        settle(consumer, first)
        rest = take(consumer, 500)
    assert len({message.offset() for message in first + rest}) == 1_000
    with member(served) as another:
        assert poll(another, 1) == []


def test_a_group_that_nobody_configured_begins_at_the_end(node: NodeProcess) -> None:
    make_topic(node.bootstrap, TOPIC, 1)
    publish(node.bootstrap, [b"before"])
    with member(node.bootstrap) as consumer:
        assert poll(consumer, 2) == []
        publish(node.bootstrap, [b"after"])
        assert [message.value() for message in take(consumer, 1)] == [b"after"]


def test_implicit_mode_accepts_with_the_next_poll(served: str) -> None:
    publish(served, [b"x"] * 10)
    with member(served, implicit=True) as consumer:
        assert len(poll(consumer)) == 10
        publish(served, [b"y"])
        assert [message.value() for message in poll(consumer)] == [b"y"]
    # Closing gives back what no later poll has accepted.
    with member(served) as another:
        assert [message.value() for message in take(another, 1)] == [b"y"]
        assert poll(another, 1) == []


def test_acknowledgements_that_closing_sends_count(served: str) -> None:
    publish(served, [b"x"] * 3)
    with member(served) as consumer:
        for message in poll(consumer):
            consumer.acknowledge(message, ACCEPT)
    with member(served) as another:
        assert poll(another, 1.5) == []


def test_a_released_message_backs_off_and_counts(served: str) -> None:
    configure(served, backoff_ms=700)
    publish(served, [b"x"])
    with member(served) as consumer:
        before = time.monotonic()
        settle(consumer, poll(consumer), RELEASE)
        again = poll(consumer)
        assert seen(again) == [(0, 2)]
        # A lower bound only: it must rest, however slow the machine is.
        assert time.monotonic() - before >= 0.7
        settle(consumer, again)


def test_a_rejected_message_is_a_dead_letter(served: str) -> None:
    publish(served, [b"good", b"bad"], headers={"trace": "t1"})
    with member(served) as consumer:
        settle(
            consumer,
            poll(consumer),
            lambda message: REJECT if message.value() == b"bad" else ACCEPT,
        )
        [letter] = letters_of(served, 1)
        assert poll(consumer, 1) == []
    assert letter.value() == b"bad"
    headers = dict(letter.headers() or [])
    assert headers["trace"] == b"t1"
    assert headers["headrace-dlq-reason"] == b"rejected"


def test_a_message_out_of_deliveries_is_a_dead_letter(served: str) -> None:
    configure(served, deliveries=2, backoff_ms=0)
    publish(served, [b"poison"])
    with member(served) as consumer:
        for expected in (1, 2):
            messages = poll(consumer)
            assert seen(messages) == [(0, expected)]
            settle(consumer, messages, RELEASE)
        [letter] = letters_of(served, 1)
        assert poll(consumer, 1) == []
    assert letter.value() == b"poison"


def test_a_lock_that_runs_out_is_delivered_again_to_another(served: str) -> None:
    configure(served, lock_ms=1000)
    publish(served, [b"x"])
    with member(served) as slow, member(served) as quick:
        assert seen(poll(slow)) == [(0, 1)]
        # The next lock is a long one: whoever has it answers in time.
        configure(served, lock_ms=60_000)
        messages = poll(quick)
        assert seen(messages) == [(0, 2)]
        settle(quick, messages)


def test_several_members_share_one_partition(served: str) -> None:
    configure(served, held=40)
    published = 0
    with member(served) as first, member(served) as second, member(served) as third:
        counts = {id(each): 0 for each in (first, second, third)}
        offsets: list[int] = []
        end = time.monotonic() + WAIT_SECONDS
        # There is work until each has had some: one may be late to join.
        while len(offsets) < published or not all(counts.values()):
            assert time.monotonic() < end, counts
            if published < 400 or len(offsets) == published:
                publish(served, [b"x"] * 100)
                published += 100
            for each in (first, second, third):
                messages = poll(each, 0.2)
                if messages:
                    settle(each, messages)
                    counts[id(each)] += len(messages)
                    offsets += [message.offset() or 0 for message in messages]
    assert sorted(offsets) == list(range(published))


def test_a_member_that_closes_gives_back_at_no_cost(served: str) -> None:
    publish(served, [b"x"] * 5)
    with member(served) as first:
        assert len(poll(first)) == 5
        with member(served) as second:
            assert poll(second, 1) == []
            first.close()
            assert [count for _, count in seen(take(second, 5))] == [1] * 5


def _hold(bootstrap: str, parent: Connection) -> None:
    with member(bootstrap) as consumer:
        parent.send(len(poll(consumer)))
        # Nothing comes: it is killed while it waits.
        parent.recv()


def test_a_killed_members_leases_come_back_at_once(served: str) -> None:
    configure(served, lock_ms=60_000)
    publish(served, [b"x"] * 5)
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("spawn").Process(target=_hold, args=(served, theirs))
    worker.start()
    try:
        assert ours.poll(WAIT_SECONDS) and ours.recv() == 5
        with member(served) as survivor:
            assert poll(survivor, 1) == []
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            # The locks have most of their 60 s left; the delivery counts, since
            # a message that kills its worker must end somewhere.
            messages = poll(survivor, 30)
            assert [count for _, count in seen(messages)] == [2] * 5
            settle(survivor, messages)
    finally:
        worker.kill()
        worker.join()


def test_priorities_show_between_answers(served: str) -> None:
    configure(served, held=10)
    publish(served, [b"later"] * 30, headers={"headrace-priority": "background"})
    publish(served, [b"first"] * 10, headers={"headrace-priority": "critical"})
    with member(served) as consumer:
        first = poll(consumer)
        assert {message.value() for message in first} == {b"first"}
        settle(consumer, first)
        assert {message.value() for message in take(consumer, 30)} == {b"later"}


def test_delay_and_ttl_hold_for_share_members(served: str) -> None:
    publish(served, [b"over"], headers={"headrace-ttl-ms": "1"})
    before = time.monotonic()
    publish(served, [b"delayed"], headers={"headrace-delay-ms": "1500"})
    publish(served, [b"now"])
    came: list[bytes | str | None] = []
    with member(served) as consumer:
        while len(came) < 2:
            messages = poll(consumer)
            assert messages
            for message in messages:
                assert message.delivery_count() == 1
                # A lower bound only. Nothing but time brings this one.
                assert message.value() != b"delayed" or time.monotonic() - before >= 1.5
                came.append(message.value())
            settle(consumer, messages)
    assert len(came) == 2 and set(came) == {b"now", b"delayed"}


def test_a_topic_that_is_made_later_is_read(node: NodeProcess) -> None:
    configure(node.bootstrap, start="earliest")
    make_topic(node.bootstrap, "first", 1)
    with member(node.bootstrap, GROUP, "first", "later") as consumer:
        assert poll(consumer, 1) == []
        make_topic(node.bootstrap, "later", 2)
        publish(node.bootstrap, [b"x"] * 4, "later")
        assert len(take(consumer, 4)) == 4


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_loses_nothing_and_repeats_nothing(node: NodeProcess, kill: bool) -> None:
    make_topic(node.bootstrap, TOPIC, 1)
    configure(node.bootstrap, start="earliest", deliveries=10, held=50)
    publish(node.bootstrap, [b"%d" % number for number in range(200)])
    done: list[int] = []
    with member(node.bootstrap) as consumer:
        messages = poll(consumer)
        settle(consumer, messages)
        done += [message.offset() or 0 for message in messages]
        # These are held while the node goes, and come again.
        assert poll(consumer)
        node.restart(kill=kill)
        with member(node.bootstrap) as survivor:
            while len(done) < 200:
                done += [message.offset() or 0 for message in take(survivor, 1)]
    assert sorted(done) == list(range(200))


def test_polling_with_unsettled_messages_is_the_clients_error_alone(served: str) -> None:
    publish(served, [b"x"])
    with member(served) as consumer:
        [message] = poll(consumer)
        with pytest.raises(IllegalStateException):
            consumer.poll(0.1)
        settle(consumer, [message])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_bites_of_large_compressed_batches_are_whole(served: str, codec: str) -> None:
    from confluent_kafka import Producer
    from tests.interop.group_members import quiet

    producer = Producer(
        {**quiet(served), "linger.ms": 200, "compression.type": codec, "batch.size": 900_000}
    )
    for number in range(2500):
        producer.produce(TOPIC, b"value %d " % number * 5, key=b"%d" % number)
    assert producer.flush(30) == 0
    with member(served) as consumer:
        messages = take(consumer, 2500)
    by_key: dict[bytes | str | None, Message] = {message.key(): message for message in messages}
    assert len(by_key) == len(messages) == 2500
    for number in range(2500):
        assert by_key[b"%d" % number].value() == b"value %d " % number * 5


def test_every_type_in_one_commit(served: str) -> None:
    configure(served, backoff_ms=0)
    publish(served, [b"%d" % number for number in range(9)])
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    with member(served) as consumer:
        messages = poll(consumer)
        assert len(messages) == 9
        settle(consumer, messages, lambda message: kinds[(message.offset() or 0) % 3])
        again = poll(consumer)
        assert seen(again) == [(1, 2), (4, 2), (7, 2)]
        settle(consumer, again)
    assert [letter.value() for letter in letters_of(served, 3)] == [b"2", b"5", b"8"]
