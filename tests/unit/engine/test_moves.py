"""Moves: one dead letter and one redriven message, whatever crashes when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.core import limits
from headrace.core.values import MessageId, Outgoing
from headrace.engine.move import Moves
from headrace.platform.memory_disk import MemoryDisk

CopyDisk = Callable[[MemoryDisk], MemoryDisk]


def crash_points(bench: Any, copy_disk: CopyDisk, act: Callable[[], object]) -> list[MemoryDisk]:
    """The disk as it is before the copy, behind it, and before the completion."""
    disks: list[MemoryDisk] = []
    copy, complete = Moves._copy, Moves._complete

    def copy_noted(self: Moves, *arguments: Any) -> bool:
        disks.append(copy_disk(bench.disk))
        went_on = copy(self, *arguments)
        disks.append(copy_disk(bench.disk))
        return went_on

    def complete_noted(*arguments: Any) -> None:
        disks.append(copy_disk(bench.disk))
        complete(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moves, "_copy", copy_noted)
        patch.setattr(Moves, "_complete", staticmethod(complete_noted))
        act()
    assert len(disks) == 3
    return disks


@pytest.mark.parametrize("step", [0, 1, 2], ids=["intent only", "copied", "not completed"])
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_dead_letter_is_written_once_wherever_the_process_dies(
    bench: Any, copy_disk: CopyDisk, step: int, with_snapshot: bool
) -> None:
    bench.make()
    bench.publish(b"good", b"bad", b"worse")
    held = bench.receipts(3)
    act = lambda: bench.node.reject(bench.group, held[1:], reason="no")  # noqa: E731
    bench.crash(crash_points(bench, copy_disk, act)[step])
    if with_snapshot:
        bench.partition().snapshot(bench.clock.time_ms, force=True)
    for _ in range(2):
        letters = bench.node.dead_letters(bench.topic)
        assert [letter.value for letter in letters] == [b"bad", b"worse"]
        assert {letter.error for letter in letters} == {"no"}
        assert [bench.state(o) for o in range(3)] == ["pending", *["dead-lettered"] * 2]
        assert bench.node.queue_statistics(bench.group).dead_lettered == 2
        bench.reopen()


@pytest.mark.parametrize("step", [0, 1, 2], ids=["intent only", "copied", "not completed"])
def test_a_redriven_message_comes_back_once_wherever_the_process_dies(
    bench: Any, copy_disk: CopyDisk, step: int
) -> None:
    """As a copy; in place is in test_redrive_in_place.py."""
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    bench.node.delete_records(bench.topic, 0, 1)
    letter = MessageId("orders.dlq", 0, 0)
    act = lambda: bench.node.redrive(bench.topic, [letter])  # noqa: E731
    bench.crash(crash_points(bench, copy_disk, act)[step])
    assert bench.values() == [b"bad"]
    assert bench.node.dead_letters(bench.topic) == []
    assert bench.node.topic(bench.topic).partitions[0].end_offset == 2
    bench.reopen()
    assert bench.node.dead_letters(bench.topic) == []
    assert bench.values() == [b"bad"]


@pytest.mark.parametrize("durability", ["synced", "os"])
def test_what_ran_out_of_attempts_when_the_process_died_is_buried_once(
    bench: Any, durability: str
) -> None:
    bench.make(topic={"durability": durability}, group={"max_attempts": 1})
    bench.publish(b"0", b"1")
    bench.lease(1)
    bench.crash()
    assert [letter.value for letter in bench.node.dead_letters(bench.topic)] == [b"0"]
    assert bench.node.queue_statistics(bench.group).dead_lettered == 1
    assert bench.values() == [b"1"]


def test_a_dead_letter_tells_where_it_came_from_and_why(bench: Any) -> None:
    bench.make(group={"max_attempts": 2})
    bench.publish(b"bad", key=b"k", priority="high")
    for _ in range(2):
        bench.node.nack(bench.group, bench.receipts(), delay_ms=0, error="boom")
    (letter,) = bench.node.dead_letters(bench.topic)
    assert (letter.source, letter.group) == (MessageId("orders", 0, 0), bench.group)
    assert (letter.reason, letter.error, letter.attempts) == ("max-attempts", "boom", 2)
    assert (letter.key, letter.value, letter.redrives) == (b"k", b"bad", 0)
    assert letter.created_at_ms == letter.failed_at_ms == bench.clock.time_ms
    assert ("headrace-priority", b"1") in letter.headers


def test_a_dead_letter_of_a_message_with_as_many_headers_as_can_be_tells_all(bench: Any) -> None:
    bench.make()
    headers = tuple((f"name-{number}", b"%d" % number) for number in range(limits.HEADERS_MAX))
    bench.node.publish(bench.topic, [Outgoing(b"bad", headers=headers)])
    bench.node.reject(bench.group, bench.receipts(), reason="no")
    (letter,) = bench.node.dead_letters(bench.topic)
    assert (letter.source, letter.group) == (MessageId("orders", 0, 0), bench.group)
    assert (letter.reason, letter.error, letter.attempts) == ("rejected", "no", 1)
    assert letter.headers == headers
    bench.node.delete_records(bench.topic, 0, 1)
    bench.node.redrive(bench.topic, [MessageId("orders.dlq", 0, 0)])
    (delivery,) = bench.lease()
    assert delivery.headers[-len(headers) :] == headers


def test_a_redriven_copy_reaches_only_the_group_in_which_the_message_failed(bench: Any) -> None:
    bench.make()
    bench.node.open_queue("others", [bench.topic], "bob")
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    bench.node.ack("others", bench.receipts(group="others"))
    bench.node.delete_records(bench.topic, 0, 1)
    bench.node.redrive(bench.topic, [MessageId("orders.dlq", 0, 0)])
    bench.node.open_queue("later", [bench.topic], "eve")
    assert bench.values(group="others") == []
    assert bench.values(group="later") == []
    (delivery,) = bench.lease()
    assert (delivery.value, delivery.offset, delivery.attempt) == (b"bad", 1, 1)
    assert bench.node.queue_statistics("others").depth == 0


def test_a_message_that_comes_back_too_often_needs_force(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad")
    for times in range(4):
        bench.node.reject(bench.group, bench.receipts())
        (letter,) = bench.node.dead_letters(bench.topic)
        assert letter.redrives == times
        place = MessageId(letter.topic, letter.partition, letter.offset)
        result = bench.node.redrive(bench.topic, [place])
    assert (result.matched, result.redriven, result.looping) == (1, 0, 1)
    assert bench.node.redrive(bench.topic, [place], force=True).redriven == 1
    assert bench.values() == [b"bad"]


def test_dead_letters_are_listed_although_their_keeper_was_lost(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad", b"worse")
    bench.node.reject(bench.group, bench.receipts(1))
    letters = bench.partition(topic="orders.dlq").path
    bench.node.close()
    for name in bench.files(f"{letters}/state/"):
        bench.disk.remove(name)
    bench.crash()
    bench.node.reject(bench.group, bench.receipts(1))
    listed = [letter.value for letter in bench.node.dead_letters(bench.topic)]
    assert listed == [b"bad", b"worse"]
