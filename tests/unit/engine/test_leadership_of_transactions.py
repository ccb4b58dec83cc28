"""The lead of a partition is lost and taken at every step of a transaction: it counts as a
whole or not at all, and a marker that was not written is owed."""

from __future__ import annotations

from functools import partial

import pytest
from tests.unit.engine.second_node import CHANGES, Change, Part, Stage, at_every_step, named
from tests.unit.engine.transaction_bench import NAME, TIMEOUT_MS, TOPIC

from headrace.core.errors import FencedLeader
from headrace.engine.catalog import CURSOR_TOPIC, TRANSACTION_TOPIC
from headrace.engine.commit import Commit
from headrace.engine.coordinator.transaction import State, Transaction, TransactionError


class Transactor:
    """A client: from its id to the end, each part answered before the next."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.owner: Transaction | None = None

    def parts(self, *, commits: bool) -> list[Part]:
        return [self.init, self.add, self.write, partial(self.end, commits=commits)]

    def _heard(self, outcome: Transaction | TransactionError, commit: Commit) -> Transaction:
        if isinstance(outcome, TransactionError):
            # A client asks again who coordinates.
            assert outcome is TransactionError.NOT_COORDINATOR
            raise FencedLeader(outcome.name)
        commit.data += self.stage.table.depends(NAME)
        return outcome

    def init(self, commit: Commit) -> None:
        stage = self.stage
        begun = stage.table.init(NAME, TIMEOUT_MS, None, stage.now_ms)
        self.owner = self._heard(begun, commit)

    def add(self, commit: Commit) -> None:
        stage, owner = self.stage, self.owner
        assert owner is not None
        places = {(stage.topic_id, 0), (stage.topic_id, 1), stage.broker.cursors.place(0)}
        added = stage.table.add(NAME, owner.producer_id, owner.epoch, places, stage.now_ms)
        self._heard(added, commit)

    def write(self, commit: Commit) -> None:
        stage, owner = self.stage, self.owner
        assert owner is not None
        for index, value in ((0, b"a"), (1, b"b")):
            place = stage.topic_id, index
            refused = stage.table.check_write(NAME, owner.producer_id, owner.epoch, place)
            if refused is not TransactionError.NONE:
                assert refused is TransactionError.NOT_COORDINATOR
                raise FencedLeader(refused.name)
            stage.write(owner, index, value)
            partition = stage.partition(index)
            commit.data.append((partition, partition.log.end_offset))
        stage.commit_offset(owner, 1)
        cursors = named(stage, CURSOR_TOPIC)
        commit.data.append((cursors, cursors.log.end_offset))

    def end(self, commit: Commit, *, commits: bool) -> None:
        stage, owner = self.stage, self.owner
        assert owner is not None
        ended = stage.table.end(
            NAME, owner.producer_id, owner.epoch,
            commit=commits, bumps=True, now_ms=stage.now_ms,
        )  # fmt: skip
        self._heard(ended, commit)
        ending = stage.table.ending_of(NAME)
        if ending is not None:
            commit.endings.append(ending)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("of", [TOPIC, CURSOR_TOPIC, TRANSACTION_TOPIC])
@pytest.mark.parametrize("change", CHANGES)
def test_a_transaction_counts_as_a_whole_or_not_at_all(
    change: Change, of: str, commits: bool
) -> None:
    def try_at(at: int) -> bool:
        stage = Stage()
        stage.make_topic(2)
        stage.broker.cursors.ensure_topic(stage.now_ms)
        stage.table.ensure_topic(stage.now_ms)
        stage.settle()
        take = partial(stage.take, named(stage, of), change)
        parts = Transactor(stage).parts(commits=commits)
        is_done, was_under_way = stage.play(parts, at, take)
        # What was left open ends by time.
        stage.now_ms += 2 * TIMEOUT_MS
        stage.table.tick(stage.now_ms)
        stage.settle()
        seen = [b"a" in stage.committed(0), b"b" in stage.committed(1), stage.offset() == 1]
        assert len(set(seen)) == 1
        if is_done:
            assert all(seen) == commits
        if not commits:
            assert not any(seen)
        for index in (0, 1):
            assert stage.partition(index).open_transactions() == []
        assert stage.is_stable()
        return was_under_way

    at_every_step(try_at, least=15)


def decided(stage: Stage) -> Transaction:
    """A transaction with records in two partitions whose commit was decided, and is on disk;
    no marker is."""
    stage.make_topic(2)
    owner = stage.init()
    stage.add(owner, 0, 1)
    stage.write(owner, 0, b"a")
    stage.write(owner, 1, b"b")
    stage.settle()
    stage.end(owner, commit=True)
    return owner


def test_a_marker_is_owed_while_another_node_leads_its_partition() -> None:
    stage = Stage()
    decided(stage)
    stage.take(stage.partition(0), "gone")
    stage.settle()
    ending = stage.table.ending_of(NAME)
    assert ending is not None and not ending.is_done and ending.is_blocked
    assert (stage.markers(0), stage.markers(1)) == (0, 1)
    found = stage.table.find(NAME)
    assert found is not None and found.state is State.PREPARE_COMMIT
    stage.give_back()
    stage.settle()
    assert ending.is_done
    assert stage.committed(0) == [b"a"] and stage.committed(1) == [b"b"]


@pytest.mark.parametrize("change", CHANGES)
def test_a_marker_that_was_not_safe_when_the_lead_was_lost_is_written_again(
    change: Change,
) -> None:
    stage = Stage()
    decided(stage)
    stage.sync()
    assert stage.markers(0) == 1
    stage.take(stage.partition(0), change)
    ending = stage.table.ending_of(NAME)
    assert ending is not None
    stage.sync()
    if change == "gone":
        assert not ending.is_done
    stage.give_back()
    stage.settle()
    assert ending.is_done and stage.markers(0) == 1
    assert b"a" in stage.committed(0) and b"b" in stage.committed(1)


def test_a_marker_that_was_safe_is_not_written_again() -> None:
    stage = Stage()
    decided(stage)
    stage.sync()
    stage.take(stage.partition(1), "gone")
    stage.sync()
    stage.take(stage.partition(0), "back")
    stage.settle()
    assert stage.markers(0) == 1 and stage.markers(1) == 1


def test_whoever_waits_for_an_end_hears_that_another_node_coordinates() -> None:
    stage = Stage()
    decided(stage)
    stage.sync()
    ending = stage.table.ending_of(NAME)
    assert ending is not None and stage.table.depends(NAME) == []
    commit = stage.broker.commit()
    commit.endings.append(ending)
    stage.take(named(stage, TRANSACTION_TOPIC), "back")
    stage.settle()
    assert not commit.is_done() and isinstance(commit.failure(), FencedLeader)
    # The decision was safe, and is carried out by whoever coordinates then.
    assert stage.committed(0) == [b"a"] and stage.committed(1) == [b"b"]


def test_a_deleted_topic_is_owed_no_marker() -> None:
    stage = Stage()
    decided(stage)
    stage.broker.delete_topic(stage.partition(0).topic, stage.now_ms, stage.broker.commit())
    stage.settle()
    found = stage.table.find(NAME)
    assert found is not None and found.state is State.COMPLETE_COMMIT


def test_another_coordinator_is_named_and_not_an_unknown_producer() -> None:
    stage = Stage()
    owner = stage.init()
    stage.make_topic(1)
    stage.settle()
    stage.take(named(stage, TRANSACTION_TOPIC), "gone")
    table, producer = stage.table, (owner.producer_id, owner.epoch)
    place = stage.topic_id, 0
    for outcome in (
        table.init(NAME, TIMEOUT_MS, None, stage.now_ms),
        table.init("another", TIMEOUT_MS, None, stage.now_ms),
        table.add(NAME, *producer, {place}, stage.now_ms),
        table.end(NAME, *producer, commit=True, bumps=True, now_ms=stage.now_ms),
        table.abort(NAME, stage.now_ms),
        table.check_write(NAME, *producer, place),
    ):
        assert outcome is TransactionError.NOT_COORDINATOR
    stage.now_ms += 100 * TIMEOUT_MS
    assert table.tick(stage.now_ms) == [] and table.forget_unused(stage.now_ms) is None
    stage.give_back()
    assert table.find(NAME) == owner
