"""The coordinator's table and the ends of transactions, sync by sync."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.engine.transaction_bench import GROUP, NAME, TIMEOUT_MS, TransactionBench

from headrace.core import limits
from headrace.engine.broker import PRODUCER_IDS_RESERVED
from headrace.engine.coordinator.transaction import State, Transaction, TransactionError
from headrace.engine.cursor import Commitment
from headrace.engine.cursor_expiry import CursorExpiry
from headrace.platform.memory_disk import MemoryDisk
from headrace.testing import FaultDisk
from headrace.testing.fault_disk import keep_nothing


@pytest.fixture
def bench() -> TransactionBench:
    made = TransactionBench(MemoryDisk())
    made.make_topic()
    return made


def reopened(bench: TransactionBench, copy: Callable[[MemoryDisk], MemoryDisk]) -> TransactionBench:
    """After the process was killed: what it wrote is there."""
    return TransactionBench(copy(bench.disk), bench.now_ms)


def test_an_end_is_decided_on_disk_before_a_marker_is_written(bench: TransactionBench) -> None:
    owner = bench.init()
    bench.add(owner, 0, 1)
    bench.write(owner, 0, b"a")
    bench.write(owner, 1, b"b")
    bench.settle()
    assert bench.end(owner, commit=True).state is State.PREPARE_COMMIT
    assert bench.markers(0) == bench.markers(1) == 0
    ending = bench.table.ending_of(NAME)
    assert ending is not None and not ending.is_done
    assert bench.sync() == {bench.partition(0), bench.partition(1)}
    assert bench.markers(0) == bench.markers(1) == 1
    assert bench.committed(0) == [] and not ending.is_done
    bench.sync()
    assert ending.is_done
    assert bench.committed(0) == [b"a"] and bench.committed(1) == [b"b"]
    found = bench.table.find(NAME)
    assert found is not None and (found.state, found.epoch) == (State.COMPLETE_COMMIT, 1)


def test_what_an_aborted_transaction_wrote_is_never_seen(bench: TransactionBench) -> None:
    owner = bench.init()
    bench.add(owner, 0, offsets=True)
    bench.write(owner, 0, b"a")
    bench.commit_offset(owner, 1)
    bench.end(owner, commit=False)
    bench.settle()
    assert bench.committed(0) == [] and bench.offset() is None and bench.is_stable()


def test_offsets_count_when_their_transaction_does(bench: TransactionBench) -> None:
    owner = bench.init()
    bench.add(owner, 0, offsets=True)
    bench.commit_offset(owner, 1)
    bench.settle()
    assert bench.offset() is None and not bench.is_stable()
    bench.end(owner, commit=True)
    bench.sync()
    assert bench.offset() is None and not bench.is_stable()
    bench.settle()
    assert bench.offset() == 1 and bench.is_stable()


def test_a_later_commit_has_the_last_word_on_a_position(
    bench: TransactionBench, copy_disk: Callable[[MemoryDisk], MemoryDisk]
) -> None:
    owner = bench.init()
    bench.add(owner, offsets=True)
    bench.commit_offset(owner, 1)
    bench.broker.cursors.commit(GROUP, {(bench.topic_id, 0): Commitment(0)}, bench.now_ms)
    bench.end(owner, commit=True)
    bench.settle()
    assert bench.offset() == 0 and bench.is_stable()
    assert reopened(bench, copy_disk).offset() == 0


def test_the_table_and_what_is_open_survive_a_kill(
    bench: TransactionBench, copy_disk: Callable[[MemoryDisk], MemoryDisk]
) -> None:
    owner = bench.init()
    begun = bench.add(owner, 0, offsets=True)
    bench.write(owner, 0, b"a")
    bench.commit_offset(owner, 1)
    bench.settle()
    after = reopened(bench, copy_disk)
    assert after.table.find(NAME) == begun
    assert after.offset() is None and not after.is_stable()
    assert after.table.next_deadline_ms() == bench.now_ms + TIMEOUT_MS
    after.end(begun, commit=True)
    after.settle()
    assert after.committed(0) == [b"a"] and after.offset() == 1


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_is_carried_out_by_whoever_opens_next(
    bench: TransactionBench,
    copy_disk: Callable[[MemoryDisk], MemoryDisk],
    rounds: int,
    commit: bool,
) -> None:
    owner = bench.init()
    bench.add(owner, 0, 1, offsets=True)
    bench.write(owner, 0, b"a")
    bench.write(owner, 1, b"b")
    bench.commit_offset(owner, 1)
    bench.settle()
    bench.end(owner, commit=commit)
    for _ in range(rounds):
        bench.sync()
    after = reopened(bench, copy_disk)
    found = after.table.find(NAME)
    assert found is not None and not found.is_ending and found.is_commit is commit
    assert after.committed(0) == ([b"a"] if commit else [])
    assert after.committed(1) == ([b"b"] if commit else [])
    assert after.offset() == (1 if commit else None) and after.is_stable()
    assert not after.partition(0).open_transactions()


def test_a_transaction_ends_without_a_topic_that_is_gone(bench: TransactionBench) -> None:
    owner = bench.init()
    bench.add(owner, 0, 1, offsets=True)
    bench.write(owner, 0, b"a")
    bench.commit_offset(owner, 1)
    bench.settle()
    topic = bench.broker.topics.named("orders")
    bench.broker.delete_topic(topic, bench.now_ms, bench.broker.commit())
    bench.end(owner, commit=True)
    bench.settle()
    found = bench.table.find(NAME)
    assert found is not None and found.state is State.COMPLETE_COMMIT
    assert bench.broker.cursors.find(GROUP, (topic.id, 0)) is None


def test_what_is_open_for_too_long_is_aborted_and_its_producer_fenced(
    bench: TransactionBench,
) -> None:
    owner = bench.init()
    bench.add(owner, 0)
    bench.write(owner, 0, b"a")
    bench.settle()
    bench.now_ms += TIMEOUT_MS - 1
    assert bench.table.tick(bench.now_ms) == []
    bench.now_ms += 1
    assert bench.table.tick(bench.now_ms) == [NAME]
    bench.settle()
    assert bench.partition(0).last_stable_offset == bench.partition(0).high_watermark
    assert bench.committed(0) == [] and bench.table.next_deadline_ms() is None
    late = bench.table.end(
        NAME, owner.producer_id, owner.epoch, commit=True, bumps=True, now_ms=bench.now_ms
    )
    assert late is TransactionError.PRODUCER_FENCED


def test_an_id_that_nobody_uses_is_forgotten(
    bench: TransactionBench, copy_disk: Callable[[MemoryDisk], MemoryDisk]
) -> None:
    first = bench.init()
    bench.table.unused_ms = 1_000
    bench.now_ms += 999
    bench.broker.duties.forget(bench.now_ms, bench.broker.commit())
    assert bench.table.find(NAME) is not None
    bench.now_ms += 1
    bench.broker.duties.forget(bench.now_ms, bench.broker.commit())
    assert bench.table.find(NAME) is None
    bench.settle()
    after = reopened(bench, copy_disk)
    assert after.table.find(NAME) is None
    assert after.init().producer_id != first.producer_id


def test_a_position_that_a_transaction_is_about_to_change_does_not_expire(
    bench: TransactionBench,
) -> None:
    cursors = bench.broker.cursors
    expiry = CursorExpiry(cursors, 1_000)
    cursors.commit(GROUP, {(bench.topic_id, 0): Commitment(0)}, bench.now_ms)
    owner = bench.init()
    bench.add(owner, offsets=True)
    bench.commit_offset(owner, 0)
    bench.settle()
    expiry.tick(bench.now_ms, set())
    bench.now_ms += 1_000
    expiry.tick(bench.now_ms, set())
    bench.end(owner, commit=True)
    bench.settle()
    assert bench.offset() == 0 and bench.is_stable()
    expiry.tick(bench.now_ms, set())
    bench.settle()
    assert bench.offset() is None


def test_a_producer_id_is_not_given_out_again_when_its_reservation_is_lost() -> None:
    disk = FaultDisk()
    bench = TransactionBench(disk)
    bench.make_topic()
    bench.broker.cursors.place(bench.now_ms)
    bench.settle()
    first = bench.init()
    partition = bench.broker.topics.partitions(
        bench.broker.topics.catalog.topics["__transaction_state"]
    )[0]
    bench.settle()
    # Its own topic is there; now only that one reaches the disk.
    for _ in range(PRODUCER_IDS_RESERVED - 1):
        bench.broker.new_producer_id(bench.now_ms)
    other = bench.table.init("other", TIMEOUT_MS, None, bench.now_ms)
    assert isinstance(other, Transaction)
    partition.log.sync_now()
    after = TransactionBench(disk.crash(keep_nothing))
    assert after.table.find("other") == other
    given = {after.broker.new_producer_id(after.now_ms) for _ in range(3)}
    assert not given & {first.producer_id, other.producer_id}


def test_an_end_waits_for_room_on_the_disk_and_then_goes_on() -> None:
    disk = FaultDisk()
    bench = TransactionBench(disk)
    bench.make_topic()
    owner = bench.init()
    bench.add(owner, 0, 1)
    bench.write(owner, 0, b"a")
    bench.write(owner, 1, b"b")
    bench.settle()
    bench.end(owner, commit=True)
    ending = bench.table.ending_of(NAME)
    assert ending is not None
    disk.fail_writes_after(0)
    bench.sync()
    assert ending.is_blocked and not ending.is_done
    bench.sync()
    assert ending.is_blocked
    disk.fail_writes_after(None)
    bench.settle()
    bench.sync()
    bench.sync()
    assert ending.is_done and not ending.is_blocked
    assert bench.committed(0) == [b"a"] and bench.committed(1) == [b"b"]


def test_names_and_numbers_of_ids_have_limits(
    bench: TransactionBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    invalid = TransactionError.INVALID_REQUEST
    assert bench.table.init("", TIMEOUT_MS, None, bench.now_ms) is invalid
    too_long = "n" * (limits.TRANSACTIONAL_ID_CHARACTERS_MAX + 1)
    assert bench.table.init(too_long, TIMEOUT_MS, None, bench.now_ms) is invalid
    bench.init()
    monkeypatch.setattr(limits, "TRANSACTIONAL_IDS_MAX", 1)
    one_more = bench.table.init("other", TIMEOUT_MS, None, bench.now_ms)
    assert one_more is TransactionError.POLICY_VIOLATION
    assert bench.init().epoch == 1


def test_nothing_is_known_of_an_id_that_never_began(bench: TransactionBench) -> None:
    mapping = TransactionError.INVALID_PRODUCER_ID_MAPPING
    place = (bench.topic_id, 0)
    assert bench.table.add("nobody", 1, 0, {place}, bench.now_ms) is mapping
    assert bench.table.check_write("nobody", 1, 0, place) is mapping
    assert bench.table.abort("nobody", bench.now_ms) is mapping
    ended = bench.table.end("nobody", 1, 0, commit=True, bumps=True, now_ms=bench.now_ms)
    assert ended is mapping
