"""A start replays what happened since the last snapshots, and those come often enough."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.core import limits
from headrace.engine import state_log, upkeep
from headrace.engine.replay import Replay


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "SNAPSHOT_WORTH_BYTES", 1_000)
    monkeypatch.setattr(limits, "STATE_REPLAY_BYTES_MAX", 8_000)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kinds of events that were applied."""
    kinds: list[str] = []
    apply = Replay.apply

    def note(self: Replay, event: Any) -> None:
        kinds.append(type(event).__name__)
        apply(self, event)

    monkeypatch.setattr(Replay, "apply", note)
    yield kinds


def work(bench: Any, count: int) -> None:
    """One by one, which writes most."""
    bench.publish(*[b"x"] * count)
    for receipt in bench.receipts(count):
        bench.node.ack(bench.group, [receipt])


def maintain(bench: Any) -> None:
    bench.skip(31_000)
    bench.publish(b"now")


@pytest.mark.parametrize("trace_sample", [None, 1.0])
def test_after_a_close_a_start_reads_a_snapshot_and_not_what_led_to_it(
    bench: Any, replayed: list[str], trace_sample: float | None
) -> None:
    bench.make(topic={"trace_sample": trace_sample})
    work(bench, 100)
    bench.publish(b"left")
    bench.reopen()
    assert "SnapshotGroup" in replayed and "Acked" not in replayed
    assert bench.node.queue_statistics(bench.group).acked == 100
    assert bench.values() == [b"left"]


@pytest.mark.parametrize("durability", ["synced", "interval", "os"])
def test_what_a_killed_process_leaves_to_replay_is_bounded_for_all_partitions_together(
    bench: Any, durability: str
) -> None:
    bench.make(partitions=4, topic={"durability": durability, "trace_sample": None})
    for _ in range(8):
        work(bench, 60)
        maintain(bench)
    states = [bench.partition(index).state for index in range(4)]
    left = sum(state.bytes_since_snapshot for state in states)
    assert left <= limits.STATE_REPLAY_BYTES_MAX + 60 * 4 * 100
    # What the snapshots replaced is gone from the disk as well.
    assert sum(state.log.size_bytes for state in states) < 5 * limits.STATE_REPLAY_BYTES_MAX
    before = bench.node.queue_statistics(bench.group)
    bench.crash()
    after = bench.node.queue_statistics(bench.group)
    assert (after.acked, after.ready) == (before.acked, before.ready)


@pytest.fixture
def little_each(bench: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """State logs of many partitions, none of which has enough to be worth a snapshot alone."""
    monkeypatch.setattr(upkeep, "SNAPSHOT_WORTH_BYTES", 10_000)
    monkeypatch.setattr(upkeep, "LITTLE_BYTES", 200)
    monkeypatch.setattr(limits, "STATE_CLOSED_BYTES_MAX", 2_000)
    bench.make(partitions=20, topic={"trace_sample": None})
    for index in range(20):
        bench.node.publish_values(bench.topic, [b"x"] * (2 + index // 2), partition=index)
    while receipts := bench.receipts(1):
        bench.node.ack(bench.group, receipts)
    states = [bench.partition(index).state for index in range(20)]
    assert sum(left_in(states)) > 2 * limits.STATE_REPLAY_BYTES_MAX
    assert max(left_in(states)) < upkeep.SNAPSHOT_WORTH_BYTES
    return states


def left_in(states: list[Any]) -> list[int]:
    return [state.bytes_since_snapshot for state in states]


def test_many_partitions_with_a_little_each_stay_in_the_bound_those_with_the_most_first(
    bench: Any, little_each: list[Any]
) -> None:
    before = left_in(little_each)
    maintain(bench)
    after = left_in(little_each)
    assert sum(after) <= limits.STATE_REPLAY_BYTES_MAX
    done = [size for size, left in zip(before, after, strict=True) if left < size]
    kept = [size for size, left in zip(before, after, strict=True) if left >= size]
    assert kept and min(done) >= max(kept)
    # No more than had to be.
    assert sum(after) > limits.STATE_REPLAY_BYTES_MAX - 2 * max(before)


def test_a_close_leaves_little_also_of_many_partitions_with_a_little_each(
    bench: Any, little_each: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The housekeeping of the start has nothing to do.
    monkeypatch.setattr(limits, "STATE_REPLAY_BYTES_MAX", 1_000_000)
    bench.reopen()
    states = [bench.partition(index).state for index in range(20)]
    assert sum(left_in(states)) <= limits.STATE_CLOSED_BYTES_MAX
    assert bench.node.queue_statistics(bench.group).ready == 0


def test_a_close_takes_a_bounded_number_of_snapshots(
    bench: Any, little_each: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOTS_AT_CLOSE_MAX", 3)
    monkeypatch.setattr(limits, "STATE_REPLAY_BYTES_MAX", 1_000_000)
    before = sorted(left_in(little_each))
    bench.reopen()
    states = [bench.partition(index).state for index in range(20)]
    assert sorted(left_in(states))[3:] == before[:-3]


def test_what_is_less_than_the_last_snapshot_waits(bench: Any, little_each: list[Any]) -> None:
    for state in little_each:
        state.snapshot_bytes = 9_000
    before = left_in(little_each)
    maintain(bench)
    assert all(map(operator.ge, left_in(little_each), before))


def test_a_snapshot_that_was_torn_is_cut_and_the_one_before_it_counts(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of several batches, the last of which goes.
    monkeypatch.setattr(state_log, "BATCH_BYTES", 50)
    bench.make(topic={"trace_sample": 1.0})
    work(bench, 50)
    state = bench.partition().state
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    bench.node.ack(bench.group, bench.receipts(1))
    work(bench, 20)
    end = state.log.end_offset
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    # A loss of power leaves its beginning.
    last = max(name for name in bench.files("/state/") if name.endswith(".log"))
    del bench.disk.names[last].data[-3:]
    bench.crash()
    assert bench.partition().state.log.end_offset == end
    assert bench.node.queue_statistics(bench.group).acked == 70
    work(bench, 5)
    bench.crash()
    assert bench.node.queue_statistics(bench.group).acked == 75


def test_the_history_of_a_message_is_found_behind_a_snapshot_after_a_restart(bench: Any) -> None:
    """Its events lie before the snapshot with which a replay begins."""
    bench.make(topic={"trace_sample": 1.0})
    work(bench, 100)
    bench.partition().snapshot(bench.clock.time_ms, force=True)
    before = bench.node.trace(f"{bench.topic}:0:3")
    bench.crash()
    after = bench.node.trace(f"{bench.topic}:0:3")
    assert after.events == before.events and len(after.events) >= 3


def test_a_full_disk_keeps_no_close_from_ending(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.make()
    work(bench, 100)

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_log.StateLog, "write_snapshot", full)
    bench.node.close()
    monkeypatch.undo()
    bench.crash()
    assert bench.node.queue_statistics(bench.group).acked == 100
