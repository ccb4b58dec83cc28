"""A redrive makes a message ready where it is, as long as it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.engine.test_moves import crash_points

from headrace.core import limits
from headrace.core.values import MessageId, RedriveResult
from headrace.engine.move import Moves
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, Record, build_batch, read_header
from headrace.record.attribute_headers import DLQ_GROUP, ORIGIN

CopyDisk = Callable[[MemoryDisk], MemoryDisk]


def letter_ids(bench: Any) -> list[MessageId]:
    letters = bench.node.dead_letters(bench.topic, limit=1_000)
    return [MessageId(each.topic, each.partition, each.offset) for each in letters]


def redrive_all(bench: Any, **words: Any) -> RedriveResult:
    ids = letter_ids(bench)
    dry = bench.node.redrive(bench.topic, ids, dry_run=True, **words)
    done: RedriveResult = bench.node.redrive(bench.topic, ids, **words)
    assert dry == done
    return done


def ways(result: RedriveResult) -> tuple[int, int]:
    assert result.redriven == result.in_place + result.copied
    return result.in_place, result.copied


def stored_letter(bench: Any) -> Record:
    (record,) = bench.partition(topic="orders.dlq").read([0, 1])
    assert isinstance(record, Record)
    return record


def write_letter(bench: Any, record: Record) -> MessageId:
    """As no client can: what is in a log may come from anywhere."""
    partition = bench.partition(topic="orders.dlq")
    new = NewRecord(record.key, record.value, record.headers, record.timestamp_ms)
    batch = build_batch([new])
    with bench.node._writing() as (now_ms, commit):
        place = partition.append(batch, read_header(batch), now_ms)
        commit.data.append((partition, place.next_offset))
    return MessageId("orders.dlq", 0, place.first_offset)


def end_offset(bench: Any) -> int:
    end: int = bench.node.topic(bench.topic).partitions[0].end_offset
    return end


def test_no_record_is_written_and_only_its_group_gets_the_message(bench: Any) -> None:
    bench.make()
    bench.node.open_queue("others", [bench.topic], "bob")
    bench.publish(b"bad", b"good")
    bench.node.ack("others", bench.receipts(group="others"))
    bench.node.reject(bench.group, bench.receipts(1))
    assert ways(redrive_all(bench)) == (1, 0)
    assert end_offset(bench) == 2
    bench.node.open_queue("later", [bench.topic], "eve")
    assert bench.values(group="others") == []
    assert bench.values(group="later") == [b"bad", b"good"]
    first, second = bench.lease()
    assert (first.value, first.offset, first.attempt, first.error) == (b"bad", 0, 1, None)
    assert second.value == b"good"
    bench.node.ack(bench.group, [first.receipt, second.receipt])
    assert letter_ids(bench) == []
    assert bench.state(0) == "acked"


@pytest.mark.parametrize("count", [1, 70_000])
def test_one_that_lies_far_behind_what_is_done_comes_back(bench: Any, count: int) -> None:
    """The window has dropped the chunks that it lay in."""
    bench.make(group={"leases_per_consumer_max": 10_000})
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts(1))
    for start in range(0, count, 10_000):
        bench.publish(*[b"x"] * min(10_000, count - start))
        bench.node.ack(bench.group, bench.receipts(10_000))
    view = next(iter(bench.partition().views.values()))
    assert view.window.start == count + 1
    assert ways(redrive_all(bench)) == (1, 0)
    for again in (bench.reopen, bench.crash, lambda: None):
        again()
        (delivery,) = bench.lease()
        assert (delivery.value, delivery.offset, delivery.attempt) == (b"bad", 0, 1)
        bench.node.release(bench.group, [delivery.receipt])
    bench.node.ack(bench.group, bench.receipts())
    view = next(iter(bench.partition().views.values()))
    assert view.window.start == count + 1
    assert bench.node.queue_statistics(bench.group).depth == 0
    bench.reopen()
    assert bench.values() == []


def test_it_keeps_its_priority_and_waits_for_no_delay(bench: Any) -> None:
    bench.make()
    bench.publish(b"late", delay_ms=60_000, priority="high")
    bench.skip(60_000)
    bench.publish(b"new")
    bench.node.reject(bench.group, bench.receipts(1))
    assert ways(redrive_all(bench)) == (1, 0)
    for again in (lambda: None, bench.reopen):
        again()
        (delivery,) = bench.lease(1)
        assert (delivery.value, delivery.lane) == (b"late", 1)
        bench.node.release(bench.group, [delivery.receipt])


def test_its_first_lease_is_counted_once(bench: Any) -> None:
    bench.make()
    bench.publish(b"late", delay_ms=1_000)
    bench.skip(1_000)
    (view,) = bench.partition().views.values()
    bench.node.reject(bench.group, bench.receipts())
    bench.skip(60_000)
    assert ways(redrive_all(bench)) == (1, 0)
    assert len(bench.lease()) == 1
    assert (sum(view.to_lease.counts), view.to_lease.sum_ms) == (1, 0)
    assert bench.partition().scanner.delays_ended["delivered"] == 1


def test_what_it_asks_for_holds_again(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad", max_attempts=1, visibility_ms=7_000, ttl_ms=100_000)
    bench.node.reject(bench.group, bench.receipts())
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    bench.reopen()
    assert ways(redrive_all(bench)) == (1, 0)
    (delivery,) = bench.lease()
    assert (delivery.max_attempts, delivery.deadline_ms) == (1, bench.clock.time_ms + 7_000)
    bench.node.release(bench.group, [delivery.receipt])
    bench.skip(100_000)
    assert bench.values() == []
    assert bench.state(0) == "expired"


def test_how_often_it_came_back_is_kept_through_restarts(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad")
    for times in range(limits.REDRIVES_MAX):
        bench.node.reject(bench.group, bench.receipts())
        (letter,) = bench.node.dead_letters(bench.topic)
        assert letter.redrives == times
        assert ways(redrive_all(bench)) == (1, 0)
        if times == 1:
            bench.partition().snapshot(bench.clock.time_ms, force=True)
        bench.reopen()
    bench.node.reject(bench.group, bench.receipts())
    assert redrive_all(bench) == RedriveResult(1, 0, 1, None)
    assert ways(redrive_all(bench, force=True)) == (1, 0)
    assert end_offset(bench) == 1


def test_a_copy_that_failed_is_redriven_where_it_is_and_counts_on(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad", b"next")
    bench.node.reject(bench.group, bench.receipts(1))
    bench.node.delete_records(bench.topic, 0, 1)
    assert ways(redrive_all(bench)) == (0, 1)
    held = {delivery.offset: delivery.receipt for delivery in bench.lease()}
    bench.node.reject(bench.group, [held[2]])
    assert ways(redrive_all(bench)) == (1, 0)
    (delivery,) = bench.lease()
    assert (delivery.offset, end_offset(bench)) == (2, 3)
    bench.node.reject(bench.group, [delivery.receipt])
    (letter,) = bench.node.dead_letters(bench.topic)
    assert letter.redrives == 2


def test_what_is_not_there_any_more_is_published_as_a_copy(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad", b"worse", b"good")
    bench.node.reject(bench.group, bench.receipts(2))
    bench.node.delete_records(bench.topic, 0, 1)
    assert ways(redrive_all(bench)) == (1, 1)
    assert sorted((each.offset, each.value) for each in bench.lease()) == [
        (1, b"worse"),
        (2, b"good"),
        (3, b"bad"),
    ]


def test_what_compaction_took_is_published_as_a_copy(bench: Any) -> None:
    bench.make(topic={"cleanup": "compact", "segment_bytes": 1024})
    bench.publish(b"old", key=b"k")
    bench.node.reject(bench.group, bench.receipts())
    bench.publish(*[b"x" * 400] * 5, key=b"k")
    with bench.node._writing() as (now_ms, _):
        bench.partition().log.roll(now_ms)
        bench.node._broker.maintain(now_ms)
    assert ways(redrive_all(bench)) == (0, 1)
    assert b"old" in bench.values()


def test_what_expired_begins_a_new_life_as_a_copy(bench: Any) -> None:
    bench.make(topic={"dead_letter_expired": True})
    bench.publish(b"expired", b"rejected", ttl_ms=1_000)
    bench.node.reject(bench.group, bench.receipts(1))
    bench.skip(1_000)
    assert bench.values() == []
    assert sorted(each.reason for each in bench.node.dead_letters(bench.topic)) == [
        "expired",
        "rejected",
    ]
    assert ways(redrive_all(bench)) == (0, 2)
    assert len(bench.lease()) == 2


def test_one_that_expires_after_its_redrive_is_a_letter_again(bench: Any) -> None:
    """Somebody wanted it done; without a word it would be gone."""
    bench.make()
    bench.publish(b"bad", b"never failed", ttl_ms=1_000)
    bench.node.reject(bench.group, bench.receipts(1))
    bench.skip(999)
    assert ways(redrive_all(bench)) == (1, 0)
    bench.reopen()
    bench.skip(1)
    assert bench.values() == []
    [letter] = bench.node.dead_letters(bench.topic)
    assert (letter.value, letter.reason, letter.redrives) == (b"bad", "expired", 1)
    assert bench.state(0) == bench.state(1) == "expired"
    numbers = bench.node.queue_statistics(bench.group)
    assert (numbers.expired, numbers.depth) == (2, 0)
    # Now it begins a new life.
    assert ways(redrive_all(bench)) == (0, 1)
    bench.skip(999)
    assert bench.values() == [b"bad"]


def test_a_group_that_is_gone_keeps_the_letter_and_one_made_again_gets_a_copy(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    bench.node.delete_group(bench.group)
    assert redrive_all(bench) == RedriveResult(1, 0, 0, None, orphaned=1)
    bench.node.open_queue(bench.group, [bench.topic], "ann", {"start": "latest"})
    assert ways(redrive_all(bench)) == (0, 1)
    (delivery,) = bench.lease()
    assert (delivery.value, delivery.offset) == (b"bad", 1)


def test_a_topic_that_was_made_again_does_not_revive_its_namesakes_messages(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    (letter,) = bench.node.dead_letters(bench.topic)
    stored = stored_letter(bench)
    bench.node.delete_topic(bench.topic)
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    ids = letter_ids(bench)
    strange = write_letter(bench, stored)
    assert bench.node.dead_letter(strange).source == letter.source
    assert ways(bench.node.redrive(bench.topic, [strange])) == (0, 1)
    assert ways(bench.node.redrive(bench.topic, ids)) == (1, 0)


@pytest.mark.parametrize("change", ["value", "origin", "group", "nonsense"])
def test_a_letter_that_somebody_wrote_revives_nothing(bench: Any, change: str) -> None:
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    stored = stored_letter(bench)
    headers = dict(stored.headers)
    if change == "group":
        bench.node.open_queue("others", [bench.topic], "bob")
        headers[DLQ_GROUP] = b"others"
    elif change == "origin":
        headers[ORIGIN] = b"/7".join((headers[ORIGIN] or b"").split(b"/0"))
    elif change == "nonsense":
        headers[ORIGIN] = b"\xff/" * 5
    value = b"mine" if change == "value" else stored.value
    forged = write_letter(bench, stored._replace(value=value, headers=tuple(headers.items())))
    assert ways(bench.node.redrive(bench.topic, [forged])) == (0, 1)
    assert bench.state(0) == "dead-lettered"
    assert ways(redrive_all(bench)) == (1, 0)


def test_of_two_letters_of_one_message_the_second_is_a_copy(bench: Any) -> None:
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    write_letter(bench, stored_letter(bench))
    assert ways(redrive_all(bench)) == (1, 1)
    assert sorted(delivery.offset for delivery in bench.lease()) == [0, 1]


def test_there_is_a_bound_on_how_many_are_kept(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REVIVED_MAX", 2)
    bench.make()
    bench.publish(b"0", b"1", b"2")
    bench.node.reject(bench.group, bench.receipts())
    assert ways(redrive_all(bench)) == (2, 1)
    held = bench.receipts()
    assert len(held) == 3
    bench.node.ack(bench.group, held[:1])
    bench.node.reject(bench.group, held[1:])
    assert sum(ways(redrive_all(bench))) == 2


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_order_holds_for_a_message_that_came_back(bench: Any, ordering: str) -> None:
    bench.make(topic={"ordering": ordering})
    bench.publish(b"0", b"1", b"2", key=b"k")
    bench.node.reject(bench.group, bench.receipts(1))
    (held,) = bench.lease(1)
    assert held.value == b"1"
    assert ways(redrive_all(bench)) == (1, 0)
    assert bench.values() == [], "1 is being worked on"
    bench.node.ack(bench.group, [held.receipt])
    came = []
    while leased := bench.lease(1):
        came.append(leased[0].value)
        assert bench.lease() == []
        bench.node.ack(bench.group, [leased[0].receipt])
    assert sorted(came) == [b"0", b"2"]


def test_a_message_that_was_given_up_while_it_waited_for_its_key_comes_back(bench: Any) -> None:
    """Its place in the order of keys is still linked when it comes back."""
    bench.make(topic={"ordering": "key"})
    bench.publish(b"0", b"1", b"2", key=b"k")
    partition = bench.partition()
    (view,) = partition.views.values()
    with bench.node._writing() as (now_ms, commit):
        bench.node._broker.fates.give_up(partition, view, [1], "retention", now_ms, commit=commit)
    assert bench.state(1) == "dead-lettered"
    assert ways(redrive_all(bench)) == (1, 0)
    came = []
    while leased := bench.lease():
        came += [delivery.value for delivery in leased]
        bench.node.ack(bench.group, [delivery.receipt for delivery in leased])
    assert came == [b"0", b"2", b"1"]


# Crashes.


@pytest.mark.parametrize("step", [0, 1, 2], ids=["intent only", "revived", "not completed"])
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_it_comes_back_once_wherever_the_process_dies(
    bench: Any, copy_disk: CopyDisk, step: int, with_snapshot: bool
) -> None:
    bench.make()
    bench.publish(b"good", b"bad", b"worse")
    held = bench.receipts(3)
    bench.node.ack(bench.group, held[:1])
    bench.node.reject(bench.group, held[1:])
    ids = letter_ids(bench)
    disks = crash_points(bench, copy_disk, lambda: bench.node.redrive(bench.topic, ids))
    bench.crash(disks[step])
    if with_snapshot:
        for topic in (bench.topic, "orders.dlq"):
            bench.partition(topic=topic).snapshot(bench.clock.time_ms, force=True)
    for _ in range(2):
        assert letter_ids(bench) == []
        assert bench.values() == [b"bad", b"worse"]
        assert end_offset(bench) == 3
        bench.reopen()
    bench.node.reject(bench.group, bench.receipts())
    assert [each.redrives for each in bench.node.dead_letters(bench.topic)] == [1, 1]


def test_a_message_that_died_again_is_not_revived_by_the_redrive_before(
    bench: Any, copy_disk: CopyDisk
) -> None:
    """The completion was lost, and the message has another letter by now."""
    bench.make()
    bench.publish(b"bad")
    bench.node.reject(bench.group, bench.receipts())
    complete = Moves._complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moves, "_complete", staticmethod(_complete_in_memory(complete)))
        bench.node.redrive(bench.topic, letter_ids(bench))
    bench.node.reject(bench.group, bench.receipts())
    bench.crash()
    (letter,) = bench.node.dead_letters(bench.topic)
    assert (letter.redrives, letter.offset) == (1, 1)
    assert bench.values() == []
    assert ways(redrive_all(bench)) == (1, 0)


def _complete_in_memory(complete: Callable[..., None]) -> Callable[..., None]:
    def act(move: Any, now_ms: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(move.source, "write", lambda view, event, *_, **__: view.apply(event))
            complete(move, now_ms)

    return act


@pytest.mark.parametrize("is_crash", [False, True])
def test_what_goes_away_between_intent_and_revival_is_copied(
    bench: Any, copy_disk: CopyDisk, is_crash: bool
) -> None:
    bench.make()
    bench.publish(b"bad", b"worse", b"good")
    bench.node.reject(bench.group, bench.receipts(2))
    ids = letter_ids(bench)
    copy = Moves._copy
    disks: list[MemoryDisk] = []

    def copy_later(self: Moves, *arguments: Any) -> bool:
        if not disks:
            disks.append(copy_disk(bench.disk))
            if not is_crash:
                bench.node._broker.delete_records(
                    bench.node._broker.topics.named(bench.topic), 0, 1, arguments[-1]
                )
        return copy(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moves, "_copy", copy_later)
        assert ways(bench.node.redrive(bench.topic, ids)) == (2, 0)
    if is_crash:
        # The records go before the redrive is taken up.
        patch = pytest.MonkeyPatch()
        resume = Moves.resume

        def resume_later(self: Moves, partitions: Any) -> None:
            for partition in partitions:
                if partition.topic.name == bench.topic:
                    partition.log.delete_before(1)
                    partition.on_start_moved()
            resume(self, partitions)

        patch.setattr(Moves, "resume", resume_later)
        bench.crash(disks[0])
        patch.undo()
    for again in (lambda: None, bench.crash, bench.reopen):
        again()
        bench.node.release(bench.group, [])
        assert letter_ids(bench) == []
        came = bench.lease()
        assert sorted((each.offset, each.value) for each in came) == [
            (1, b"worse"),
            (2, b"good"),
            (3, b"bad"),
        ]
        bench.node.release(bench.group, [each.receipt for each in came])
