"""Rounds of syncs without a disk that syncs: every way from one phase to another, and what
each event ends. What drivers make of it is in `tests/contract/test_group_commit.py`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.core.errors import (
    DeadlineExceeded,
    DiskFull,
    FencedLeader,
    HeadraceError,
    SyncFailed,
    UnknownTopic,
)
from headrace.core.request_context import NEVER
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker, Round
from headrace.engine.commit import Commit
from headrace.engine.confirmed import Confirmed
from headrace.engine.move import Move
from headrace.engine.partition import Partition
from headrace.engine.rounds import RETRY_MS, Ended, Phase, Rounds
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, check_batch

NOW_MS = 1_000


class Bench:
    """Rounds over a broker with topics that nothing was written to."""

    def __init__(self) -> None:
        self.broker = Broker(MemoryDisk(), SystemEntropy(), NOW_MS)
        self.rounds: Rounds[str] = Rounds(self.broker, "check the disk")
        self.make("orders")
        self.make("bills")
        self.rounds.take(self.broker.commit())
        self.due: Round | None = None
        self.end_round(self.begin())

    def make(self, name: str, **settings: Any) -> None:
        self.broker.topics.create(name, 1, TopicSettings(**settings), NOW_MS)

    def partition(self, topic: str = "orders") -> Partition:
        return self.broker.topics.partition(self.broker.topics.named(topic), 0)

    def append(self, *topics: str) -> Commit:
        commit = self.broker.commit()
        for topic in topics or ("orders",):
            partition = self.partition(topic)
            batch = build_batch([NewRecord(None, b"value")])
            appended = partition.append(batch, check_batch(batch), NOW_MS)
            commit.data.append((partition, appended.next_offset))
        return commit

    def submit(self, waiter: str, *topics: str, deadline: float = NEVER) -> Commit:
        """A call that wrote to these topics, and has to wait."""
        commit = self.append(*topics)
        taken = self.rounds.take(commit)
        assert not taken.is_done and taken.failure is None
        self.rounds.wait(commit, waiter, deadline)
        return commit

    def begin(self) -> Round:
        begun = self.rounds.begin()
        assert isinstance(begun, Round)
        self.due = begun
        return begun

    def end_round(self, due: Round) -> Ended[str]:
        return self.rounds.on_synced(due, NOW_MS)

    def delete(self, topic: str = "orders") -> Ended[str]:
        commit = self.broker.commit()
        self.broker.delete_topic(self.broker.topics.named(topic), NOW_MS, commit)
        return self.rounds.on_deleted()

    def break_next(self, name: str, error: Exception) -> None:
        """The broker's next call of this name fails."""
        real = getattr(self.broker, name)

        def fail(*_: object) -> None:
            setattr(self.broker, name, real)
            raise error

        setattr(self.broker, name, fail)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


FULL, BROKEN = errno.ENOSPC, errno.EIO


# Phases.


def become(bench: Bench, phase: Phase) -> None:
    if phase is Phase.FAILED:
        bench.rounds.on_sync_failed(system_error(BROKEN))
    elif phase is not Phase.IDLE:
        bench.submit("before")
        bench.begin()
    if phase is Phase.RESTING:
        on_synced_without(bench, FULL)
    assert bench.rounds.phase is phase


def on_synced(bench: Bench) -> None:
    assert bench.due is not None
    bench.end_round(bench.due)


def on_synced_without(bench: Bench, number: int) -> None:
    bench.break_next("on_synced", system_error(number))
    on_synced(bench)


def begin_without(bench: Bench, number: int) -> None:
    bench.break_next("begin_sync", system_error(number))
    bench.rounds.begin()


def on_interrupted(bench: Bench) -> None:
    assert bench.due is not None
    bench.rounds.on_interrupted(bench.due)


EVENTS: dict[str, Callable[[Bench], object]] = {
    "take": lambda bench: bench.rounds.take(bench.append()),
    "go_on_with": lambda bench: bench.rounds.go_on_with([bench.partition()]),
    "on_timer": lambda bench: bench.rounds.on_timer(),
    "on_deleted": lambda bench: bench.rounds.on_deleted(),
    "on_late": lambda bench: bench.rounds.on_late(1.0),
    "begin": lambda bench: bench.rounds.begin(),
    "begin, no files left": lambda bench: begin_without(bench, errno.EMFILE),
    "begin, broken": lambda bench: begin_without(bench, BROKEN),
    "on_synced": on_synced,
    "on_synced, full": lambda bench: on_synced_without(bench, FULL),
    "on_synced, broken": lambda bench: on_synced_without(bench, BROKEN),
    "on_interrupted": on_interrupted,
    "on_sync_failed": lambda bench: bench.rounds.on_sync_failed(system_error(BROKEN)),
    "on_disk_failed": lambda bench: bench.rounds.on_disk_failed(SyncFailed("no")),
    "close": lambda bench: bench.rounds.close(),
}
IDLE, SYNCING, RESTING, FAILED = Phase.IDLE, Phase.SYNCING, Phase.RESTING, Phase.FAILED
# None where the event cannot be: there is one round at a time, and it ends once.
TRANSITIONS: dict[str, tuple[Phase | None, ...]] = {
    #                       IDLE     SYNCING  RESTING  FAILED
    "take":                 (IDLE,    SYNCING, IDLE,    FAILED),
    "go_on_with":           (IDLE,    SYNCING, IDLE,    FAILED),
    "on_timer":             (IDLE,    SYNCING, IDLE,    FAILED),
    "on_deleted":           (IDLE,    SYNCING, RESTING, FAILED),
    "on_late":              (IDLE,    SYNCING, RESTING, FAILED),
    "begin":                (SYNCING, None,    SYNCING, FAILED),
    "begin, no files left": (RESTING, None,    RESTING, FAILED),
    "begin, broken":        (FAILED,  None,    FAILED,  FAILED),
    "on_synced":            (None,    IDLE,    None,    None),
    "on_synced, full":      (None,    RESTING, None,    None),
    "on_synced, broken":    (None,    FAILED,  None,    None),
    "on_interrupted":       (None,    IDLE,    None,    None),
    "on_sync_failed":       (FAILED,  FAILED,  FAILED,  FAILED),
    "on_disk_failed":       (FAILED,  FAILED,  FAILED,  FAILED),
    "close":                (IDLE,    SYNCING, IDLE,    FAILED),
}  # fmt: skip


@pytest.mark.parametrize(
    ("phase", "event", "wanted"),
    [
        pytest.param(phase, event, wanted, id=f"{event} in {phase.name}")
        for event, row in TRANSITIONS.items()
        for phase, wanted in zip(Phase, row, strict=True)
        if wanted is not None
    ],
)
def test_every_event_in_every_phase_leads_where_the_table_says(
    bench: Bench, phase: Phase, event: str, wanted: Phase
) -> None:
    become(bench, phase)
    EVENTS[event](bench)
    assert bench.rounds.phase is wanted
    assert (bench.rounds.failed is None) == (wanted is not FAILED)


def test_a_failure_while_files_are_synced_outlives_the_round(bench: Bench) -> None:
    bench.submit("call")
    due = bench.begin()
    ended = bench.rounds.on_disk_failed(SyncFailed("under another call"))
    assert [waiter for waiter, _ in ended.failed] == ["call"]
    bench.end_round(due)
    bench.rounds.on_interrupted(due)
    assert bench.rounds.phase is FAILED
    assert str(bench.rounds.failed) == "under another call"


# What a round contains, and what it ends.


def test_a_round_takes_what_is_dirty_and_ends_what_it_makes_safe(bench: Bench) -> None:
    bench.submit("first")
    bench.submit("both", "orders", "bills")
    due = bench.begin()
    assert {partition.topic.name for partition in due.partitions} == {"orders", "bills"}
    bench.submit("later")
    ended = bench.end_round(due)
    assert ended.done == ["first", "both"]
    assert set(ended.shown) == set(due.partitions)
    assert bench.rounds.is_due
    assert bench.begin().partitions == [bench.partition()]


def test_what_is_safe_already_waits_for_nothing(bench: Bench) -> None:
    assert bench.rounds.take(bench.broker.commit()).is_done
    assert not bench.rounds.is_due


def test_an_interrupted_round_is_repeated(bench: Bench) -> None:
    bench.submit("call")
    due = bench.begin()
    bench.rounds.on_interrupted(due)
    again = bench.begin()
    assert again.partitions == due.partitions
    assert bench.end_round(again).done == ["call"]


def test_the_end_of_a_round_can_be_waited_for(bench: Bench) -> None:
    bench.submit("call")
    due = bench.begin()
    bench.rounds.wait_for_round("round")
    assert bench.end_round(due).done == ["call", "round"]


def test_what_follows_a_round_and_found_no_room_is_tried_again_later(bench: Bench) -> None:
    bench.submit("call")
    due = bench.begin()
    bench.break_next("on_synced", DiskFull("no room"))
    ended = bench.end_round(due)
    assert not ended.done and not ended.failed and ended.wake_ms == RETRY_MS
    assert not bench.rounds.is_due
    bench.rounds.on_timer()
    assert bench.rounds.is_due
    assert bench.end_round(bench.begin()).done == ["call"]


def test_a_failed_sync_ends_every_call_now_and_later(bench: Bench) -> None:
    bench.submit("first")
    bench.begin()
    bench.submit("second")
    [(first, error), (second, _)] = bench.rounds.on_sync_failed(system_error(BROKEN)).failed
    assert (first, second) == ("first", "second")
    assert isinstance(error, SyncFailed) and "Input/output error" in str(error)
    assert "check the disk" in str(error)
    assert bench.rounds.take(bench.broker.commit()).failure is error
    assert not bench.rounds.is_due


# Deletion.


def failures(ended: Ended[str]) -> dict[str, type[HeadraceError]]:
    return {waiter: type(error) for waiter, error in ended.failed}


@pytest.mark.parametrize("is_under_way", [False, True])
def test_calls_fail_whose_topic_is_deleted_and_others_wait_on(
    bench: Bench, is_under_way: bool
) -> None:
    bench.submit("orders")
    bench.submit("bills", "bills")
    bench.submit("both", "bills", "orders")
    due = bench.begin() if is_under_way else None
    assert failures(bench.delete()) == {"orders": UnknownTopic, "both": UnknownTopic}
    assert bench.end_round(due or bench.begin()).done == ["bills"]
    assert not bench.rounds.waiting


def test_what_was_on_disk_before_its_topic_was_deleted_has_not_failed(bench: Bench) -> None:
    commit = bench.append("orders")
    bench.rounds.take(commit)
    bench.end_round(bench.begin())
    later = bench.append("bills")
    commit.data += later.data
    assert bench.rounds.take(commit) == (False, None, (), None)
    bench.rounds.wait(commit, "call")
    assert failures(bench.delete()) == {}
    assert bench.end_round(bench.begin()).done == ["call"]


def test_a_commit_that_comes_after_the_deletion_has_failed(bench: Bench) -> None:
    commit = bench.append()
    bench.delete()
    taken = bench.rounds.take(commit)
    assert not taken.is_done and isinstance(taken.failure, UnknownTopic)


def test_a_deleted_topic_is_in_no_later_round(bench: Bench) -> None:
    partition = bench.partition()
    commit = bench.append()
    bench.make("lazy", durability="interval")
    bench.rounds.take(bench.append("lazy"))
    bench.submit("call", "orders", "bills")
    due = bench.begin()
    bench.delete("orders")
    bench.delete("lazy")
    # It comes back by every way there is.
    bench.rounds.take(commit)
    bench.rounds.go_on_with([partition])
    bench.rounds.on_timer()
    bench.rounds.on_interrupted(due)
    due = bench.begin()
    assert bench.partition("bills") in due.partitions
    bench.break_next("on_synced", system_error(FULL))
    assert partition not in due.partitions and partition not in bench.end_round(due).shown
    assert all(not each.is_deleted for each in bench.begin().partitions)


def test_moves_of_other_calls_fail_nobody_when_their_topic_is_deleted(bench: Bench) -> None:
    move = SimpleNamespace(
        source=bench.partition(), intent_end=1, is_done=False, is_blocked=False, is_lost=False
    )
    commit = bench.append("bills")
    commit.wait_for_moves([cast(Move, move)])
    assert not bench.rounds.take(commit).is_done
    bench.rounds.wait(commit, "call")
    due = bench.begin()
    assert set(due.partitions) == {bench.partition(), bench.partition("bills")}
    assert not bench.end_round(due).done
    # As `Moves.forget` says of what it forgets.
    move.is_done = True
    assert failures(bench.delete()) == {}
    assert bench.end_round(bench.begin()).done == ["call"]


def test_a_blocked_move_is_awaited_until_its_intent_is_on_disk(bench: Bench) -> None:
    move = SimpleNamespace(
        source=bench.partition(), intent_end=1, is_done=False, is_blocked=True, is_lost=False
    )
    commit = bench.broker.commit()
    commit.wait_for_moves([cast(Move, move)])
    assert not bench.rounds.take(commit).is_done
    move.intent_end = 0
    assert bench.rounds.take(commit).is_done


# Other nodes.


def wait_for_others(bench: Bench) -> Confirmed:
    """A call waits for other nodes alone: the disk has all of it."""
    others = Confirmed()
    partition = bench.partition()
    partition.become_leader(partition.epoch + 1, NOW_MS, others)
    bench.submit("call")
    ended = bench.end_round(bench.begin())
    assert not ended.done and not ended.failed
    bench.end_round(bench.begin())
    return others


def test_a_call_that_waits_for_other_nodes_asks_for_no_round(bench: Bench) -> None:
    wait_for_others(bench)
    assert bench.rounds.waiting and not bench.rounds.is_due
    bench.rounds.on_timer()
    assert not bench.rounds.is_due


def test_a_round_ends_what_other_nodes_have_confirmed(bench: Bench) -> None:
    others = wait_for_others(bench)
    others.data_end = 1
    bench.rounds.go_on_with([bench.partition()])
    assert bench.rounds.is_due
    assert bench.end_round(bench.begin()).done == ["call"]


def test_a_round_ends_calls_whose_lead_was_lost(bench: Bench) -> None:
    wait_for_others(bench)
    bench.broker.leading.resign(bench.partition())
    bench.rounds.go_on_with(())
    assert bench.rounds.is_due
    assert failures(bench.end_round(bench.begin())) == {"call": FencedLeader}
    assert not bench.rounds.is_due


def test_a_commit_that_comes_after_the_lead_was_lost_has_failed(bench: Bench) -> None:
    commit = bench.append()
    bench.broker.leading.resign(bench.partition())
    taken = bench.rounds.take(commit)
    assert not taken.is_done and isinstance(taken.failure, FencedLeader)


# Deadlines.


def test_a_call_whose_deadline_has_come_waits_no_longer_and_is_synced_all_the_same(
    bench: Bench,
) -> None:
    bench.submit("short", deadline=1.0)
    bench.submit("long", deadline=2.0)
    bench.submit("patient")
    assert bench.rounds.next_deadline() == 1.0
    assert failures(bench.rounds.on_late(0.9)) == {}
    assert failures(bench.rounds.on_late(1.0)) == {"short": DeadlineExceeded}
    assert bench.rounds.next_deadline() == 2.0
    assert bench.end_round(bench.begin()).done == ["long", "patient"]
    assert bench.rounds.next_deadline() == NEVER
    assert bench.partition().high_watermark == 3


# Durability.


def test_what_is_synced_now_and_then_asks_for_a_timer_and_is_safe_meanwhile(bench: Bench) -> None:
    bench.make("slow", durability="interval", sync_interval_ms=5_000)
    bench.make("quick", durability="interval", sync_interval_ms=20)
    bench.submit("the topics", "orders")
    bench.end_round(bench.begin())
    slow, quick = bench.partition("slow"), bench.partition("quick")
    assert bench.rounds.take(bench.append("slow")) == (True, None, (slow,), 5_000)
    assert bench.rounds.take(bench.append("slow")) == (True, None, (slow,), None)
    assert bench.rounds.take(bench.append("quick", "slow")).wake_ms == 20
    assert not bench.rounds.is_due
    bench.rounds.on_timer()
    due = bench.begin()
    assert set(due.partitions) == {slow, quick}
    bench.end_round(due)
    assert bench.rounds.take(bench.append("slow")).wake_ms == 5_000


def test_what_the_system_is_left_to_sync_is_in_no_round(bench: Bench) -> None:
    bench.make("hints", durability="os")
    bench.submit("the topic", "orders")
    bench.end_round(bench.begin())
    taken = bench.rounds.take(bench.append("hints"))
    assert taken == (True, None, (bench.partition("hints"),), None)
    bench.rounds.on_timer()
    assert not bench.rounds.is_due


def test_closing_takes_everything_along(bench: Bench) -> None:
    bench.make("hints", durability="os")
    bench.rounds.take(bench.append("hints"))
    bench.rounds.close()
    assert bench.begin().partitions == sorted(bench.broker.topics, key=lambda each: each.path)


def test_what_finds_no_room_at_the_end_is_left_for_the_next_start(bench: Bench) -> None:
    bench.submit("call")
    bench.rounds.close()
    due = bench.begin()
    bench.break_next("on_synced", system_error(FULL))
    ended = bench.end_round(due)
    assert ended.wake_ms is None and failures(ended) == {"call": DiskFull}
    assert bench.rounds.failed is None and not bench.rounds.is_due
