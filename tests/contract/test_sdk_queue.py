"""Queues: leasing and settling, alone and in company, through the SDK."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import Any

import pytest
from tests.contract.conftest import SdkBackend

import headrace
from headrace.platform.clock import SystemClock
from headrace.testing import ManualClock


@pytest.fixture
def orders(handle: headrace.Headrace) -> headrace.Headrace:
    handle.create_topic("orders")
    return handle


def test_a_message_knows_what_there_is_to_know_about_it(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    published = orders.publish("orders", "text", key="k", priority="high")
    created_at = clock.now()
    clock.skip(5)
    with orders.queue("orders", visibility=10, max_attempts=4) as queue:
        [message] = queue.receive()
        assert message.id == published.id
        assert (message.topic, message.partition, message.offset) == tuple(published.id)
        assert (message.key, message.value, message.raw) == (b"k", "text", b"text")
        assert message.priority == "high"
        assert (message.attempt, message.max_attempts) == (1, 4)
        assert message.created_at == created_at
        assert message.delivered_at == clock.now()
        assert (message.deadline - message.delivered_at).total_seconds() == 10
        assert message.failed_at is None and message.error is None
        assert isinstance(message.receipt, str)


def test_a_queue_that_changes_the_settings_of_others_says_both_values(
    orders: headrace.Headrace, caplog: pytest.LogCaptureFixture
) -> None:
    with orders.queue("orders", max_attempts=3), orders.queue("orders", max_attempts=3):
        assert caplog.messages == []
        with orders.queue("orders", max_attempts=5):
            [said] = [each for each in caplog.messages if "max_attempts" in each]
            assert "was 3 and is now 5" in said and "2 others" in said
            assert orders.group("default").settings["max_attempts"] == 5
    caplog.clear()
    # Nobody else reads it: a change like any other.
    with orders.queue("orders", max_attempts=7):
        assert caplog.messages == []


def test_an_acked_message_is_done_for_its_group_alone(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders", "billing") as billing, orders.queue("orders", "mail") as mail:
        billing.receive()[0].ack()
        assert billing.depth() == 0
        assert billing.receive(wait=100) == []
        assert mail.depth() == 1
        assert mail.receive()[0].value == b"x"


def test_a_nacked_message_comes_back_after_its_delay_with_its_error(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        queue.receive()[0].nack(delay=20, error="no answer")
        failed_at = clock.now()
        assert queue.lease() == []
        assert queue.receive(wait=19) == []
        [message] = queue.receive(wait=2)
        assert (message.attempt, message.error, message.failed_at) == (2, "no answer", failed_at)


def test_a_rejected_message_goes_to_the_dead_letters_at_once(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        queue.receive()[0].reject(error="nonsense")
        assert queue.depth() == 0
    [letter] = orders.dead_letters("orders")
    assert (letter.reason, letter.error) == ("rejected", "nonsense")


def test_the_former_name_of_a_rejects_text_is_taken_with_a_warning(
    orders: headrace.Headrace,
) -> None:
    orders.publish_many("orders", [b"x", b"y", b"z"])
    with orders.queue("orders") as queue:
        one, two, three = queue.receive(3)
        with pytest.warns(DeprecationWarning, match=r"reject\(error=\.\.\.\)") as warned:
            one.reject(reason="by the message")
            queue.reject([two], reason="by the queue")
        assert {each.filename for each in warned} == {__file__}
        with pytest.raises(headrace.InvalidArgument, match="leave reason out"):
            three.reject("this", reason="that")
    errors = {letter.error for letter in orders.dead_letters("orders")}
    assert errors == {"by the message", "by the queue"}


def test_a_released_message_is_ready_again_at_no_cost(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        queue.receive()[0].release()
        [message] = queue.lease()
        assert message.attempt == 1


def test_a_lease_that_is_not_extended_ends(orders: headrace.Headrace, clock: ManualClock) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders", visibility=10) as queue, orders.queue("orders") as other:
        [message] = queue.receive()
        message.extend(60)
        clock.skip(30)
        assert other.lease() == []
        clock.skip(31)
        [again] = other.receive(wait=5)
        assert again.attempt == 2
        with pytest.raises(headrace.StaleReceipt):
            message.ack()


@pytest.mark.parametrize("form", ["message", "receipt", "id", "id text", "published"])
def test_a_message_is_settled_by_any_of_its_names(orders: headrace.Headrace, form: str) -> None:
    published = orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        [message] = queue.receive()
        name: Any = {
            "message": message,
            "receipt": message.receipt,
            "id": message.id,
            "id text": str(message.id),
            "published": published,
        }[form]
        queue.extend(name, 60)
        queue.ack(name)
        assert queue.depth() == 0
        with pytest.raises(headrace.StaleReceipt):
            queue.ack(name)


def test_a_list_is_settled_in_one_call_with_an_answer_for_each(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"a", b"b", b"c"])
    with orders.queue("orders") as queue:
        first, second, third = queue.receive(max=3)
        first.ack()
        outcomes = queue.ack([first, second, "no receipt", third.receipt])
        assert [type(outcome) for outcome in outcomes] == [
            headrace.StaleReceipt,
            type(None),
            headrace.InvalidReceipt,
            type(None),
        ]
        assert second.settled
        assert queue.depth() == 0


def test_an_id_means_the_lease_of_this_consumer(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as holder, orders.queue("orders") as other:
        [message] = holder.receive()
        with pytest.raises(headrace.StaleReceipt, match="has no lease"):
            other.ack(message.id)
        holder.ack(message.id)


def test_a_message_as_a_context_is_acked_at_its_end(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        with queue.receive()[0] as message:
            assert not message.settled
        assert message.settled
        assert queue.depth() == 0


def test_a_message_as_a_context_is_nacked_when_the_block_raises(
    orders: headrace.Headrace,
) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        with pytest.raises(ZeroDivisionError), queue.receive()[0]:
            _ = 1 / 0
        [message] = queue.receive(wait=60)
        assert message.error == "ZeroDivisionError: division by zero"
        assert message.attempt == 2


def test_an_interrupted_message_is_released_and_loses_no_attempt(
    orders: headrace.Headrace,
) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        with pytest.raises(KeyboardInterrupt), queue.receive()[0]:
            raise KeyboardInterrupt
        assert queue.lease()[0].attempt == 1


def test_a_message_settled_inside_its_context_is_left_alone(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders") as queue:
        with queue.receive()[0] as message:
            message.nack(delay=0)
        with pytest.raises(ValueError, match="after the ack"), queue.receive()[0] as message:
            message.ack()
            raise ValueError("after the ack")
        assert queue.depth() == 0


def test_an_error_inside_the_context_is_not_hidden_by_a_lost_lease(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    orders.publish("orders", b"x")
    with orders.queue("orders", visibility=1, auto_extend=False) as queue:
        with pytest.raises(ValueError, match="mine") as caught, queue.receive()[0]:
            clock.skip(60)
            queue.lease()
            raise ValueError("mine")
        assert "giving orders:" in caught.value.__notes__[0]


def test_two_consumers_of_one_group_share_its_messages(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"%d" % n for n in range(20)])
    with orders.queue("orders", "workers") as one, orders.queue("orders", "workers") as two:
        seen = [
            message.value for _ in range(5) for queue in (one, two) for message in queue.lease(2)
        ]
    assert sorted(seen) == sorted(b"%d" % n for n in range(20))


def test_one_consumer_reads_three_topics(handle: headrace.Headrace) -> None:
    names = ["orders", "payments", "refunds"]
    for name in names:
        handle.create_topic(name)
        handle.publish(name, name)
    with handle.queue(names) as queue:
        assert sorted(message.value for message in queue.receive()) == names


def test_topics_come_and_go_while_the_queue_lives(handle: headrace.Headrace) -> None:
    for name in ("orders", "payments"):
        handle.create_topic(name)
    with handle.queue("orders") as queue:
        queue.add_topics("payments")
        handle.publish("payments", b"x")
        queue.receive()[0].ack()
        queue.remove_topics("payments")
        handle.publish("payments", b"y")
        assert queue.topics == ("orders",)
        assert queue.receive(wait=10) == []
        with pytest.raises(headrace.InvalidArgument, match="at least one"):
            queue.remove_topics("orders")


def test_a_closed_queue_gives_its_leases_back(orders: headrace.Headrace) -> None:
    orders.publish("orders", b"x")
    queue = orders.queue("orders")
    [message] = queue.receive()
    queue.close()
    queue.close()
    with pytest.raises(headrace.Closed):
        message.ack()
    with orders.queue("orders") as other:
        assert other.lease()[0].attempt == 1


def test_leaving_a_loop_gives_back_what_was_leased_ahead(orders: headrace.Headrace) -> None:
    orders.publish_many("orders", [b"%d" % n for n in range(50)])
    with orders.queue("orders", prefetch=16) as queue:
        for count, message in enumerate(queue, 1):
            message.ack()
            if count == 20:
                break
        assert queue.stats().leased == 0
        with orders.queue("orders") as other:
            left = other.receive(max=100)
    assert len(left) == 30
    assert {message.attempt for message in left} == {1}


def test_a_slow_handler_never_gets_a_message_whose_lease_ran_out(
    orders: headrace.Headrace, clock: ManualClock
) -> None:
    orders.publish_many("orders", [b"%d" % n for n in range(40)])
    attempts = []
    with orders.queue("orders", visibility=30) as queue:
        for count, message in enumerate(queue, 1):
            # Quick at first, so that the queue leases ahead, and slow from then on.
            clock.skip(0 if count < 16 else 25)
            message.ack()
            attempts.append(message.attempt)
            if count == 40:
                break
    assert set(attempts) == {1}


def test_closing_the_queue_ends_a_loop_in_another_thread(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders")
    queue = handle.queue("orders")
    seen: list[bytes] = []
    first = threading.Event()

    def work() -> None:
        for message in queue:
            seen.append(message.value)
            message.ack()
            first.set()

    thread = threading.Thread(target=work)
    thread.start()
    handle.publish("orders", b"x")
    assert first.wait(60)
    queue.close()
    thread.join(60)
    assert not thread.is_alive()
    assert seen == [b"x"]


def test_closing_the_handle_ends_a_wait_with_nothing(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders")
    queue = handle.queue("orders")
    received: list[Any] = []

    def receive() -> None:
        # Whether the wait had begun when the handle was closed decides how it ends.
        with contextlib.suppress(headrace.Closed):
            received.append(queue.receive())

    thread = threading.Thread(target=receive)
    thread.start()
    handle.close()
    thread.join(60)
    assert received in ([[]], [])
    with pytest.raises(headrace.Closed):
        queue.receive()


def test_ten_producers_and_five_consumers_handle_every_message_once(
    sdk_backend: SdkBackend,
) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders", durability="os")
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()
    everything = threading.Event()

    def produce(producer: int) -> None:
        for number in range(100):
            handle.publish("orders", b"%d/%d" % (producer, number))

    def consume(queue: headrace.Queue[Any]) -> None:
        for message in queue:
            with message, lock:
                seen[message.value] += 1
            # Outside, since closing a queue gives back what is not acked yet.
            if handle.depth("orders", group="workers") == 0 and len(seen) == 1_000:
                everything.set()

    queues = [handle.queue("orders", "workers", visibility=300) for _ in range(5)]
    threads = [threading.Thread(target=produce, args=(number,)) for number in range(10)]
    threads += [threading.Thread(target=consume, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    assert everything.wait(120)
    for thread in threads[:10]:
        thread.join(60)
    for queue in queues:
        queue.close()
    for thread in threads:
        thread.join(60)
    assert len(seen) == 1_000
    assert set(seen.values()) == {1}
    assert handle.depth("orders", group="workers") == 0


def test_threads_may_share_one_queue(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders", durability="os")
    handle.publish_many("orders", [b"%d" % n for n in range(200)])
    queue = handle.queue("orders", visibility=300)
    seen: list[bytes] = []

    def consume() -> None:
        while messages := queue.receive(max=7, wait=0):
            seen.extend(message.value for message in messages)
            queue.ack(messages)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == sorted(b"%d" % n for n in range(200))
    assert queue.depth() == 0


def test_a_waiting_receive_is_woken_by_a_publish(sdk_backend: SdkBackend) -> None:
    handle = sdk_backend.open(clock=SystemClock())
    handle.create_topic("orders")
    queue = handle.queue("orders")
    received: list[Any] = []
    thread = threading.Thread(target=lambda: received.extend(queue.receive(wait=60)))
    thread.start()
    handle.publish("orders", b"x")
    thread.join(60)
    assert [message.value for message in received] == [b"x"]
