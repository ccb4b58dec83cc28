"""What is read for a trace: about the life of its message, however long the logs are; and
what is told when a log was cut."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.trace_values import MessageTrace
from headrace.core.values import Acknowledged, MessageId, Outgoing, Publication
from headrace.engine import state_log, state_reading
from headrace.engine.trace_topic import find_trace_partition
from headrace.record import NewRecord, build_batch, read_header
from headrace.record.attribute_headers import ORIGIN, REDRIVE_GROUP

# A piece and a mark of the state log, in place of 64 KiB.
FEW_BYTES = 1024


def look(bench: Any, offset: int) -> tuple[MessageTrace, int]:
    """The trace, and how many bytes were read for it."""
    steps = bench.node.trace_steps(f"{bench.topic}:0:{offset}")
    done, read = None, 0
    while True:
        try:
            step = steps.send(done)
        except StopIteration as end:
            trace: MessageTrace = end.value
            return trace, read
        done = step(1)
        read += done or 0


def kinds(trace: MessageTrace) -> list[str]:
    return [event.kind for event in trace.events]


def work_off(bench: Any, count: int) -> None:
    """One message after the other: published, leased and acked."""
    for _ in range(count):
        bench.publish(b"x")
        bench.node.ack(bench.group, bench.receipts(1))


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "MARK_BYTES", FEW_BYTES)
    monkeypatch.setattr(state_reading, "PIECE_BYTES", FEW_BYTES)


@pytest.mark.usefixtures("small_pieces")
def test_of_a_state_log_only_the_life_of_the_message_is_read(bench: Any) -> None:
    bench.make()
    work_off(bench, 200)
    everything = sum(each.size_bytes for each in bench.partition().state.log.segment_list)
    assert everything > 20 * FEW_BYTES
    for offset in (0, 100, 199):
        trace, read = look(bench, offset)
        assert kinds(trace) == ["published", "leased", "acked"]
        assert read <= 3 * FEW_BYTES
    # What comes later does not make it longer, and neither does a restart.
    before = look(bench, 100)
    work_off(bench, 200)
    assert look(bench, 100) == before
    bench.crash()
    trace, read = look(bench, 100)
    assert (kinds(trace), read <= 3 * FEW_BYTES) == (["published", "leased", "acked"], True)


@pytest.mark.usefixtures("small_pieces")
def test_a_message_that_is_not_done_is_looked_for_to_the_end(bench: Any) -> None:
    bench.make()
    bench.publish(b"slow")
    [slow] = bench.lease(1, by="slow")
    work_off(bench, 200)
    bench.node.nack(bench.group, [slow.receipt], error="busy")
    assert kinds(look(bench, 0)[0]) == ["published", "leased", "nacked"]


@pytest.mark.usefixtures("small_pieces")
def test_a_group_that_comes_later_or_went_is_told_of_too(bench: Any) -> None:
    bench.make()
    bench.node.open_queue("gone", [bench.topic], "eve")
    bench.publish(b"x")
    bench.node.ack(bench.group, bench.receipts(1))
    work_off(bench, 50)
    bench.node.ack("gone", bench.receipts(1, group="gone"))
    bench.node.delete_group("gone")
    bench.node.open_queue("late", [bench.topic], "bob", {"start": "earliest"})
    work_off(bench, 50)
    bench.node.ack("late", bench.receipts(1, group="late"))
    told = [(event.group, event.kind) for event in look(bench, 0)[0].events]
    numbers = {group for group, _ in told} - {None, bench.group, "late"}
    assert len(numbers) == 1
    assert told == [
        (None, "published"),
        (bench.group, "leased"),
        (bench.group, "acked"),
        *[(group, kind) for group in numbers for kind in ("leased", "acked")],
        ("late", "leased"),
        ("late", "acked"),
    ]


def test_of_the_topic_of_traces_only_what_speaks_of_the_message_is_read(bench: Any) -> None:
    bench.make(topic={"trace_sample": 1})
    reads = []
    for _ in range(2):
        work_off(bench, 1000)
        bench.partition().snapshot(bench.clock.time_ms, force=True)
        work_off(bench, 1)
        for _ in range(60):
            bench.node.release(bench.group, [])
        assert bench.partition().state.log.start_offset > 0
        carried = find_trace_partition(bench.node._broker.topics)
        assert carried is not None
        trace, read = look(bench, 500)
        assert kinds(trace) == ["published", "leased", "acked"]
        reads.append((sum(each.size_bytes for each in carried.log.segment_list), read))
    (once, first), (twice, second) = reads
    assert twice > 1.9 * once
    assert first < once / 2
    # The beginnings of batches of about 64 KiB are all that there is more to read.
    assert second - first < (twice - once) / 50


def test_a_cut_takes_away_what_was_told_of_messages_that_are_lost(bench: Any) -> None:
    bench.make(topic={"trace_sample": 1})
    bench.publish(b"kept")
    bench.publish(b"lost")
    kept, lost = bench.receipts(2)
    bench.node.ack(bench.group, [kept, lost])
    before = look(bench, 0)[0]
    # As after a loss of power, when the log's unsynced end is gone.
    bench.partition().truncate_to(1, bench.clock.time_ms)
    assert look(bench, 0)[0] == before
    bench.skip(1000)
    assert bench.publish(b"new") == [1]
    assert kinds(look(bench, 1)[0]) == ["published"]
    [again] = bench.lease(1)
    assert (again.offset, again.attempt) == (1, 1)
    bench.node.nack(bench.group, [again.receipt], error="busy")
    told = look(bench, 1)[0]
    assert kinds(told) == ["published", "leased", "nacked"]
    assert {event.at_ms for event in told.events} == {bench.clock.time_ms}
    # The same when all of it was carried over, and after a restart.
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    bench.publish(b"more")
    for _ in range(30):
        bench.node.release(bench.group, [])
    assert bench.partition().state.log.start_offset > 0
    assert kinds(look(bench, 0)[0]) == ["published", "leased", "acked"]
    assert look(bench, 1)[0].events == told.events
    bench.crash()
    assert look(bench, 1)[0].events == told.events


@pytest.mark.usefixtures("small_pieces")
def test_a_message_in_the_place_of_a_lost_one_is_followed_behind_the_cut(bench: Any) -> None:
    bench.make()
    work_off(bench, 3)
    bench.partition().truncate_to(1, bench.clock.time_ms)
    work_off(bench, 100)
    for offset in (0, 1, 2, 50):
        assert kinds(look(bench, offset)[0]) == ["published", "leased", "acked"]
    # Of which all that is left was said behind the cut.
    bench.publish(b"x")
    assert kinds(look(bench, 101)[0]) == ["published"]


def write_past_the_checks(bench: Any, *headers: tuple[str, bytes]) -> None:
    """As a Kafka client may: nobody looks into its batches."""
    now_ms = bench.clock.time_ms
    batch = build_batch([NewRecord(None, b"x", headers, now_ms)])
    bench.partition().append(batch, read_header(batch), now_ms)


def test_an_origin_that_somebody_made_up_links_to_nothing(bench: Any) -> None:
    bench.make()
    topic = bench.partition().topic.id.hex()
    origins = ["nonsense", "zz/0/0/0/0", f"{topic}/-1/0/0/0", f"{topic}/0/0/0/1_0", "\u00e4"]
    for origin in origins:
        write_past_the_checks(bench, (ORIGIN, origin.encode()), (REDRIVE_GROUP, b"workers"))
    bench.publish(b"x")
    assert [look(bench, offset)[0].links for offset in range(len(origins))] == [()] * len(origins)


def test_a_forged_copy_is_not_taken_for_the_one_that_was_redriven(bench: Any) -> None:
    bench.make()
    bench.publish(b"x")
    bench.node.reject(bench.group, bench.receipts(1), reason="bad")
    [letter] = bench.node.dead_letters(bench.topic)
    id = MessageId(letter.topic, letter.partition, letter.offset)
    bench.node.delete_records(bench.topic, 0, 1)
    bench.node.redrive(bench.topic, [id])
    before = bench.node.trace(str(id)).links
    [copy] = [each.id for each in before if each.relation == "redriven-to"]
    headers = dict(bench.node.trace(copy).headers)
    write_past_the_checks(bench, (ORIGIN, headers[ORIGIN]))
    bench.publish(b"y")
    assert bench.node.trace(str(id)).links == before


def test_an_aborted_transaction_acked_nothing_and_published_nothing(bench: Any) -> None:
    bench.make()
    bench.publish(b"in")
    [receipt] = bench.receipts(1)
    acks = [Acknowledged(bench.group, [receipt])]
    begun = bench.node.begin_transaction([Publication(bench.topic, [Outgoing(b"out")])], [], acks)
    bench.node.write_transaction(begun, [], acks)
    assert look(bench, 1)[0].transaction == "open"
    bench.node.end_transaction(begun, commits=False)
    out = look(bench, 1)[0]
    assert (out.transaction, out.groups, kinds(out)) == ("aborted", (), ["published"])
    told = look(bench, 0)[0]
    assert kinds(told) == ["published", "leased", "ack-held", "ack-aborted", "lease-expired"]
    assert told.groups[0].state == "pending"
    bench.node.ack(bench.group, bench.receipts(1))
    assert kinds(look(bench, 0)[0])[-2:] == ["leased", "acked"]
