"""Order by key and by partition: one at a time, the first first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core.errors import InvalidArgument
from headrace.engine import order as order_module
from headrace.engine import window as window_module
from headrace.engine.order import KeyOrder
from headrace.engine.window import EXPIRED, READY, WAITING, Window

BY_KEY = {"ordering": "key"}


def publish_in_turn(bench: Any, *pairs: tuple[bytes | None, bytes]) -> None:
    for key, value in pairs:
        bench.publish(value, key=key)


def ack_one(bench: Any) -> None:
    bench.node.ack(bench.group, bench.receipts(1))


def test_one_message_of_a_key_goes_out_at_a_time_and_in_order(bench: Any) -> None:
    bench.make(topic=BY_KEY)
    publish_in_turn(bench, (b"a", b"a0"), (b"b", b"b0"), (b"a", b"a1"), (b"b", b"b1"))
    held = bench.lease()
    assert [d.value for d in held] == [b"a0", b"b0"]
    assert bench.values() == []
    bench.node.ack(bench.group, [held[1].receipt])
    assert bench.values() == [b"b1"]
    bench.node.ack(bench.group, [held[0].receipt])
    assert bench.values() == [b"a1"]


def test_messages_without_a_key_wait_for_nobody(bench: Any) -> None:
    bench.make(topic=BY_KEY)
    publish_in_turn(bench, (None, b"0"), (None, b"1"), (b"a", b"2"), (None, b"3"))
    assert len(bench.values()) == 4


def test_a_nacked_message_holds_its_key_until_it_is_done(bench: Any) -> None:
    bench.make(topic=BY_KEY, group={"max_attempts": 2})
    publish_in_turn(bench, (b"a", b"a0"), (b"a", b"a1"))
    bench.node.nack(bench.group, bench.receipts(), delay_ms=1_000)
    assert bench.values() == []
    bench.reopen()
    assert bench.values() == []
    bench.skip(1_000)
    held = bench.lease()
    assert [d.value for d in held] == [b"a0"]
    # Given up, it frees its key.
    bench.node.nack(bench.group, [held[0].receipt])
    assert bench.values() == [b"a1"]


def test_a_lease_that_ends_comes_back_before_its_followers(bench: Any) -> None:
    bench.make(topic=BY_KEY, group={"visibility_ms": 100})
    publish_in_turn(bench, (b"a", b"a0"), (b"a", b"a1"))
    assert bench.values() == [b"a0"]
    bench.skip(100)
    assert bench.values() == [b"a0"]
    bench.reopen()
    assert bench.values() == [b"a0"]


def test_key_order_beats_the_lane(bench: Any) -> None:
    bench.make(topic=BY_KEY)
    bench.publish(b"first", key=b"a", priority="background")
    bench.publish(b"second", key=b"a", priority="critical")
    assert bench.values() == [b"first"]


@pytest.mark.parametrize("how", ["expired", "rejected", "cancelled"])
@pytest.mark.parametrize("buries", [False, True])
def test_what_is_given_up_frees_its_key(bench: Any, how: str, buries: bool) -> None:
    bench.make(topic={**BY_KEY, "dead_letter_expired": buries})
    bench.publish(b"a0", key=b"a", ttl_ms=100 if how == "expired" else None)
    bench.publish(b"a1", key=b"a")
    if how == "expired":
        bench.skip(100)
    elif how == "rejected":
        bench.node.reject(bench.group, bench.receipts())
    else:
        bench.node.delete_records(bench.topic, 0, 1)
    assert bench.values() == [b"a1"]


@pytest.mark.parametrize("buries", [False, True])
def test_what_expires_while_it_waits_lets_nobody_pass_the_head(bench: Any, buries: bool) -> None:
    bench.make(topic={**BY_KEY, "dead_letter_expired": buries})
    bench.publish(b"a0", key=b"a")
    bench.publish(b"a1", key=b"a", ttl_ms=100)
    bench.publish(b"a2", key=b"a")
    held = bench.receipts()
    bench.skip(100)
    assert bench.state(1) == "expired"
    assert bench.values() == []
    bench.node.ack(bench.group, held)
    assert bench.values() == [b"a2"]


def test_a_delayed_message_joins_its_key_when_it_is_due(bench: Any) -> None:
    bench.make(topic=BY_KEY)
    bench.publish(b"late", key=b"a", delay_ms=1_000)
    publish_in_turn(bench, (b"a", b"a1"), (b"a", b"a2"))
    held = bench.receipts()
    bench.skip(1_000)
    assert bench.values() == []
    bench.node.ack(bench.group, held)
    assert bench.values() == [b"a2"]
    ack_one(bench)
    assert bench.state(0) == "pending"


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_after_a_reopen_a_message_that_became_due_does_not_pass_the_one_given_out(
    bench: Any, with_snapshot: bool
) -> None:
    bench.make(topic=BY_KEY)
    bench.publish(b"late", key=b"a", delay_ms=1_000)
    publish_in_turn(bench, (b"a", b"a1"), (b"a", b"a2"))
    assert bench.values() == [b"a1"]
    bench.skip(1_000)
    if with_snapshot:
        bench.partition().snapshot(bench.clock.time_ms, force=True)
    bench.reopen()
    assert bench.values() == [b"a1"]
    assert bench.values() == []


def test_after_a_reopen_what_was_given_out_before_comes_before_what_became_due(
    bench: Any,
) -> None:
    bench.make(topic=BY_KEY, group={"visibility_ms": 100})
    bench.publish(b"late", key=b"a", delay_ms=50)
    publish_in_turn(bench, (b"a", b"a1"))
    assert bench.values() == [b"a1"]
    bench.skip(100)
    assert bench.state(1) == "pending"
    bench.reopen()
    assert bench.values() == [b"a1"]


def test_what_expired_behind_the_one_given_out_does_not_set_others_free_in_a_replay(
    bench: Any,
) -> None:
    bench.make(topic=BY_KEY)
    bench.publish(b"late", key=b"a", delay_ms=100, ttl_ms=300)
    publish_in_turn(bench, (b"a", b"a1"))
    assert bench.values() == [b"a1"]
    bench.skip(300)
    assert bench.state(0) == "expired"
    publish_in_turn(bench, (b"a", b"a2"))
    bench.reopen()
    assert bench.values() == [b"a1"]
    assert bench.values() == []


def test_order_of_a_partition_is_first_in_first_out(bench: Any) -> None:
    bench.make(topic={"ordering": "partition"}, group={"max_attempts": 2})
    bench.publish(b"0", priority="low")
    bench.publish(b"1", priority="critical")
    bench.publish(b"2")
    held = bench.lease()
    assert [d.value for d in held] == [b"0"]
    bench.node.nack(bench.group, [held[0].receipt], delay_ms=1_000)
    assert bench.values() == []
    bench.reopen()
    assert bench.values() == []
    bench.skip(1_000)
    held = bench.lease()
    assert [d.value for d in held] == [b"0"]
    bench.node.nack(bench.group, [held[0].receipt])
    assert bench.values() == [b"1"]
    assert bench.values() == []
    bench.reopen()
    assert bench.values() == [b"1"]


def test_a_topic_in_order_of_keys_grows_only_when_told_to(bench: Any) -> None:
    bench.make(topic=BY_KEY)
    with pytest.raises(InvalidArgument, match="break_key_order"):
        bench.node.grow_topic(bench.topic, 2)
    assert len(bench.node.grow_topic(bench.topic, 2, break_key_order=True).partitions) == 2
    bench.node.publish_values(bench.topic, [b"new"], partition=1)
    assert bench.values() == [b"new"]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (window_module, order_module):
        monkeypatch.setattr(module, "CHUNK_BITS", 2)
        monkeypatch.setattr(module, "CHUNK", 4)
    yield


@pytest.mark.usefixtures("small_chunks")
def test_no_chain_leads_through_a_chunk_that_is_gone() -> None:
    window = Window(0)
    order = KeyOrder(window)
    window.extend(12, 2 << 4 | READY)
    for offset in range(12):
        order.set_key(offset, 7)
    # Offset 1 was delayed and joins last, behind offsets of later chunks.
    for offset in (0, *range(2, 12), 1):
        order.join(offset)

    def end(offset: int) -> None:
        window.put(offset, offset + 1, EXPIRED)
        order.on_done(offset)
        window.advance()
        order.forget_below(window.start)

    end(1)
    for offset in (0, *range(2, 8)):
        end(offset)
    assert window.start == 8
    window.extend(1, 2 << 4 | READY)
    order.set_key(12, 7)
    order.join(12)
    assert [window.state_at(offset) for offset in range(8, 13)] == [READY, *[WAITING] * 4]
    for offset in range(8, 12):
        end(offset)
    assert window.state_at(12) == READY
    assert len(order) == 1
    end(12)
    assert len(order) == 0


def test_who_asks_when_a_head_runs_out_of_attempts_gets_the_next(bench: Any) -> None:
    bench.make(topic={"ordering": "partition"}, group={"max_attempts": 1, "visibility_ms": 100})
    bench.publish(b"0", b"1")
    assert bench.values() == [b"0"]
    bench.skip(100)
    assert bench.values() == [b"1"]
