"""The state log: every event, snapshots, and what a crash leaves of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace.core.errors import CorruptLog
from headrace.core.values import MessageId
from headrace.engine import state
from headrace.engine.grant import NOTHING
from headrace.engine.partition import Partition
from headrace.engine.state import decode_event, encode_event
from headrace.engine.window import DEAD

EVENTS: list[state.Event] = [
    state.Opened(1, 0, 5),
    state.Granted(1, 7, "ann", 99, 5, 6, [0, 2, 4, 5], [1, 3]),
    state.Granted(1, 7, "ann", 99, 5, 6, [4, 5], [1], 2),
    state.Acked(1, "ann", 5, [0, 1]),
    state.Retried(1, "ann", 5, 9, "no", [1, 2]),
    state.Retried(1, "ann", 5, 9, None, [1, 2]),
    state.LeaseEnded(1, 5, [4, 5]),
    state.Released(1, "ann", 5, [4, 5]),
    state.Extended(1, 8, "ann", 99, 5, 60, [4, 5]),
    state.Expired(1, 5, [4, 5]),
    state.Cancelled(5, [4, 5]),
    state.MoveIntended(1, 2, b"t" * 16, 0, 3, "ann", 5, "rejected", None, [4, 5], False, DEAD),
    state.MoveDone(1, 2, 5, DEAD, [4, 5]),
    state.Purged(1, "", 5, [4, 5]),
    state.Closed(1),
    state.Cut(12),
    state.SnapshotPartition(5, [4, 5]),
    state.SnapshotGroup(1, 0, 9),
    state.SnapshotChunk(1, 0, b"states", None),
    state.SnapshotKeys(1, 0, b"keys"),
    state.SnapshotRest(1, 2, 3, {"acked": 1}, b"", b"", [(1, 2, None)], [], []),
    state.SnapshotEnd(5),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_comes_back_as_it_was_written(event: state.Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_every_kind_of_event_is_among_those_tried() -> None:
    tags = {type(event).__struct_config__.tag for event in EVENTS}
    assert tags == {*range(1, 15), *range(20, 26)}


def test_a_grant_of_an_earlier_version_is_tied_to_nothing() -> None:
    now = state.Granted(1, 7, "ann", 99, 5, 6, [4, 5], [1], 2)
    fields = msgspec.msgpack.decode(encode_event(now))
    before = decode_event(msgspec.msgpack.encode(fields[:-1]))
    assert before == state.Granted(1, 7, "ann", 99, 5, 6, [4, 5], [1], NOTHING)


def test_an_event_of_an_unknown_number_is_not_skipped() -> None:
    with pytest.raises(CorruptLog, match="newer Headrace"):
        decode_event(b"\x92\x63\x01")


def view_of(partition: Partition) -> dict[str, Any]:
    """Everything that a view knows and a restart must bring back."""
    (view,) = partition.views.values()
    window = view.window
    return {
        "bounds": (window.start, window.end),
        "values": [window.value_at(offset) for offset in range(window.end)],
        "attempts": [window.attempts_at(o) for o in range(window.start, window.end)],
        "totals": +view.totals,
        "retries": sorted((due, o) for due, o in view.retries),
        "failures": view.failures,
        "held": +view.held,
        "leases": {o: (g.owner, g.nonce, g.at_ms, g.until_ms) for o, g in view.leased_by().items()},
        "next": (view.next_grant, view.next_move),
    }


def live_a_little(bench: Any) -> None:
    """One of everything: acked, retried, released, extended, dead, expired,
    cancelled, delayed, leased, ready."""
    bench.make()
    bench.publish(*[b"%d" % number for number in range(12)])
    bench.publish(b"late", delay_ms=9_000_000)
    bench.publish(b"short", ttl_ms=50)
    bench.publish(b"off", delay_ms=9_000_000)
    held = bench.receipts(8)
    bench.node.ack(bench.group, held[:2])
    bench.node.nack(bench.group, held[2:3], delay_ms=70_000, error="no")
    bench.node.release(bench.group, held[3:4])
    bench.node.extend(bench.group, held[4:5], visibility_ms=90_000)
    bench.node.reject(bench.group, held[5:6], reason="bad")
    bench.node.cancel(MessageId(bench.topic, 0, 14))
    bench.skip(60)
    bench.node.queue_statistics(bench.group)


def loaded_again(bench: Any) -> Partition:
    """The partition's views as a replay makes them, with no lease ended."""
    before = bench.partition()
    bench.node.close()
    catalog = bench.node._broker.topics.catalog
    again = Partition(bench.disk, before.topic, 0, bench.clock.time_ms, read_only=True)
    again.load(catalog.groups_by_id, bench.clock.time_ms)
    return again


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_replay_makes_the_same_state_from_events_and_from_snapshots(
    bench: Any, with_snapshot: bool
) -> None:
    live_a_little(bench)
    partition = bench.partition()
    if with_snapshot:
        partition.snapshot(bench.clock.time_ms, force=True)
        assert len(partition.state.log.segments()) > 1
        bench.node.ack(bench.group, bench.receipts(1))
        # What tracing keeps of it is carried over first, a little with each call.
        for _ in range(20):
            bench.node.release(bench.group, [])
        assert len(partition.state.log.segments()) == 1
    before = view_of(partition)
    assert view_of(loaded_again(bench)) == before


def test_events_after_a_snapshot_count_on_top_of_it(bench: Any) -> None:
    live_a_little(bench)
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    bench.node.ack(bench.group, bench.receipts(2))
    before = view_of(bench.partition())
    assert view_of(loaded_again(bench)) == before


def test_a_snapshot_that_was_torn_counts_for_nothing_and_hides_nothing(bench: Any) -> None:
    bench.make()
    bench.publish(b"0", b"1", b"2")
    bench.node.ack(bench.group, bench.receipts(1))
    partition = bench.partition()
    # All of a snapshot but its end.
    torn = [state.SnapshotPartition(1, []), state.SnapshotGroup(1, 0, 0)]
    partition.state.append(torn, partition.epoch, bench.clock.time_ms)
    bench.reopen()
    assert bench.state(0) == "acked"
    bench.node.ack(bench.group, bench.receipts(1))
    bench.reopen()
    assert [bench.state(offset) for offset in range(3)] == ["acked", "acked", "pending"]


def test_what_was_said_of_a_lost_tail_is_void_for_what_takes_its_place(bench: Any) -> None:
    bench.make()
    bench.publish(b"kept")
    bench.publish(b"lost")
    bench.node.ack(bench.group, bench.receipts(2))
    assert [bench.state(0), bench.state(1)] == ["acked", "acked"]
    bench.partition().truncate_to(1, bench.clock.time_ms)
    bench.publish(b"new")
    assert bench.state(1) == "pending"
    bench.reopen()
    assert [bench.state(0), bench.state(1)] == ["acked", "pending"]
    assert bench.values() == [b"new"]


def test_a_tail_that_is_lost_between_two_openings_is_written_down(bench: Any) -> None:
    bench.make()
    bench.publish(b"kept")
    bench.publish(b"lost")
    bench.node.nack(bench.group, bench.receipts(2), delay_ms=1_000)
    # The data log loses its last batch while the state log keeps its events.
    bench.partition().log.truncate_to(1)
    bench.crash()
    bench.publish(b"new")
    bench.reopen()
    assert bench.values() == [b"new"]
    bench.skip(1_000)
    assert bench.values() == [b"kept"]
    assert bench.attempts(1) == 1


def test_a_due_time_of_a_lost_message_does_not_wake_the_one_in_its_place(bench: Any) -> None:
    bench.make()
    bench.publish(b"lost", delay_ms=1_000)
    bench.partition().truncate_to(0, bench.clock.time_ms)
    bench.publish(b"new", delay_ms=5_000)
    bench.skip(2_000)
    assert bench.values() == []
    bench.skip(3_000)
    assert bench.values() == [b"new"]


def test_a_retry_of_a_lost_message_does_not_wake_the_one_in_its_place(bench: Any) -> None:
    bench.make()
    bench.publish(b"lost")
    bench.node.nack(bench.group, bench.receipts(), delay_ms=1_000)
    bench.partition().truncate_to(0, bench.clock.time_ms)
    bench.publish(b"new")
    bench.node.nack(bench.group, bench.receipts(), delay_ms=5_000)
    bench.skip(2_000)
    assert bench.values() == []
    bench.skip(3_000)
    assert bench.values() == [b"new"]


def test_the_last_possible_attempt_is_not_given_back_by_a_snapshot(bench: Any) -> None:
    bench.make(group={"max_attempts": 255})
    bench.publish(b"0")
    for _ in range(254):
        bench.node.nack(bench.group, bench.receipts(), delay_ms=0)
    assert bench.lease()[0].attempt == 255
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    bench.reopen()
    assert bench.state(0) == "dead-lettered"
