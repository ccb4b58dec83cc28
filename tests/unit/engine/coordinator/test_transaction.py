"""One transactional id: every way from one state to another, and every refusal."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.limits import TRANSACTION_PARTITIONS_MAX
from headrace.engine.coordinator.transaction import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_EPOCH,
    Claim,
    State,
    Transaction,
    TransactionError,
    first_transaction,
)

TOPIC = b"t" * 16
A, B = (TOPIC, 0), (TOPIC, 1)
OWNER = 7
START_MS = 1_000
TIMEOUT_MS = 60_000


def numbers(first: int = 100) -> Callable[[], int]:
    count = itertools.count(first)
    return lambda: next(count)


def empty(**fields: Any) -> Transaction:
    return first_transaction(OWNER, TIMEOUT_MS, START_MS)._replace(**fields)


def ongoing(**fields: Any) -> Transaction:
    begun = empty(**fields)
    added = begun.on_add(begun.producer_id, begun.epoch, {A, B}, START_MS + 1)
    assert isinstance(added, Transaction)
    return added


def end(transaction: Transaction, epoch: int | None = None, **how: Any) -> Any:
    said: dict[str, Any] = {
        "commit": True,
        "bumps": False,
        "now_ms": START_MS + 2,
        "new_producer_id": numbers(),
    }
    producer_id = how.pop("producer_id", transaction.producer_id)
    said.update(how)
    return transaction.on_end(producer_id, transaction.epoch if epoch is None else epoch, **said)


def init(transaction: Transaction, claim: Claim | None = None) -> Any:
    return transaction.on_init(TIMEOUT_MS, claim, START_MS + 3, numbers())


def ended(*, commit: bool, bumps: bool, **fields: Any) -> Transaction:
    written = end(ongoing(**fields), commit=commit, bumps=bumps).on_written(START_MS + 3)
    assert isinstance(written, Transaction)
    return written


def test_the_first_partition_begins_a_transaction() -> None:
    begun = empty().on_add(OWNER, 0, {A}, 5_000)
    assert isinstance(begun, Transaction)
    assert begun.state is State.ONGOING and begun.partitions == {A}
    assert begun.deadline_ms == 5_000 + TIMEOUT_MS
    more = begun.on_add(OWNER, 0, {B}, 6_000)
    assert isinstance(more, Transaction)
    assert more.partitions == {A, B} and more.started_at_ms == 5_000


def test_a_partition_that_is_in_it_changes_nothing() -> None:
    begun = ongoing()
    assert begun.on_add(OWNER, 0, {A}, 9_000) is begun


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_decided_and_then_written(commit: bool) -> None:
    decided = end(ongoing(), commit=commit)
    assert decided.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    assert decided.partitions == {A, B} and decided.epoch == 0
    written = decided.on_written(START_MS + 3)
    assert written.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert written.partitions == frozenset() and written.epoch == 0


def test_the_next_transaction_knows_nothing_of_the_last() -> None:
    begun = ended(commit=True, bumps=False).on_add(OWNER, 0, {B}, 9_000)
    assert isinstance(begun, Transaction)
    assert begun.partitions == {B} and begun.started_at_ms == 9_000


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_said_again_is_answered_again(commit: bool, bumps: bool) -> None:
    decided = end(ongoing(), commit=commit, bumps=bumps)
    # The producer whose answer was lost knows the epoch that it had.
    again = end(decided, 0, commit=commit, bumps=bumps)
    assert again is TransactionError.CONCURRENT_TRANSACTIONS
    written = decided.on_written(START_MS + 3)
    assert end(written, 0, commit=commit, bumps=bumps) is written
    other = TransactionError.INVALID_TXN_STATE
    assert end(decided, 0, commit=not commit, bumps=bumps) is other
    assert end(written, 0, commit=not commit, bumps=bumps) is other


def test_a_newer_client_has_the_next_epoch_with_every_end() -> None:
    written = ended(commit=True, bumps=True)
    assert (written.producer_id, written.epoch, written.last_epoch) == (OWNER, 1, 0)
    fenced = TransactionError.PRODUCER_FENCED
    assert written.on_add(OWNER, 0, {A}, 9_000) is fenced
    assert written.check_write(OWNER, 0, A) is fenced


def test_an_end_said_again_cannot_end_the_next_transaction() -> None:
    begun = ended(commit=True, bumps=True).on_add(OWNER, 1, {A}, 9_000)
    assert isinstance(begun, Transaction)
    assert end(begun, 0, bumps=True) is TransactionError.PRODUCER_FENCED
    # In the older protocol nobody can tell.
    older = ended(commit=True, bumps=False).on_add(OWNER, 0, {A}, 9_000)
    assert isinstance(older, Transaction)
    assert end(older, 0).state is State.PREPARE_COMMIT


def test_an_abort_without_partitions_still_brings_the_next_epoch() -> None:
    skipped = end(empty(), commit=False, bumps=True)
    assert (skipped.state, skipped.epoch) == (State.COMPLETE_ABORT, 1)
    again = end(skipped, 1, commit=False, bumps=True)
    assert again.epoch == 2
    assert end(again, 1, commit=False, bumps=True) is again
    assert end(skipped, 1, commit=True, bumps=True) is TransactionError.INVALID_TXN_STATE


def test_there_is_nothing_to_end_before_something_was_added() -> None:
    for commit in (True, False):
        assert end(empty(), commit=commit) is TransactionError.INVALID_TXN_STATE


def test_epochs_that_are_used_up_bring_a_new_producer_id() -> None:
    decided = end(ongoing(epoch=EPOCH_EXHAUSTED), bumps=True)
    assert (decided.producer_id, decided.epoch) == (OWNER, EPOCH_MAX)
    written = decided.on_written(START_MS + 3)
    assert (written.producer_id, written.epoch) == (100, 0)
    # The answer was lost: the producer says it with the id and epoch that it had.
    again = end(written, EPOCH_EXHAUSTED, producer_id=OWNER, bumps=True)
    assert again is written
    assert init(written, Claim(OWNER, EPOCH_EXHAUSTED)).producer_id == 100
    skipped = end(empty(epoch=EPOCH_EXHAUSTED), commit=False, bumps=True)
    assert (skipped.producer_id, skipped.epoch) == (100, 0)


def test_the_last_epoch_is_left_for_fencing() -> None:
    fenced = ongoing(epoch=EPOCH_EXHAUSTED).on_abort(START_MS + 1 + TIMEOUT_MS)
    assert isinstance(fenced, Transaction)
    assert fenced.epoch == EPOCH_MAX
    renewed = init(fenced.on_written(START_MS + 3))
    assert (renewed.producer_id, renewed.epoch) == (100, 0)
    assert init(renewed).epoch == 1


def test_a_new_producer_fences_the_old_one() -> None:
    second = init(empty())
    assert (second.producer_id, second.epoch, second.last_epoch) == (OWNER, 1, NO_EPOCH)
    assert second.on_add(OWNER, 0, {A}, 9_000) is TransactionError.PRODUCER_FENCED
    assert end(second, 0) is TransactionError.PRODUCER_FENCED


def test_a_new_producer_has_what_was_open_aborted_first() -> None:
    fenced = init(ongoing())
    assert (fenced.state, fenced.epoch) == (State.PREPARE_ABORT, 1)
    assert init(fenced) is TransactionError.CONCURRENT_TRANSACTIONS
    assert end(fenced, 0, commit=False, bumps=True) is TransactionError.PRODUCER_FENCED
    second = init(fenced.on_written(START_MS + 3))
    assert (second.state, second.epoch) == (State.EMPTY, 2)


def test_a_producer_may_ask_for_the_next_epoch_and_ask_again() -> None:
    second = init(empty(), Claim(OWNER, 0))
    assert (second.epoch, second.last_epoch) == (1, 0)
    assert init(second, Claim(OWNER, 0)) is second
    assert init(second, Claim(OWNER, 1)).epoch == 2
    # A new one came in between.
    assert init(init(second), Claim(OWNER, 1)) is TransactionError.PRODUCER_FENCED


def test_a_claim_in_an_open_transaction_aborts_it_and_holds() -> None:
    fenced = init(ongoing(), Claim(OWNER, 0))
    assert fenced.state is State.PREPARE_ABORT
    renewed = init(fenced.on_written(START_MS + 3), Claim(OWNER, 0))
    assert (renewed.state, renewed.epoch) == (State.EMPTY, 1)


@pytest.mark.parametrize("claim", [Claim(OWNER, 3), Claim(OWNER, 9), Claim(OWNER + 1, 4)])
def test_an_outdated_claim_does_not_touch_what_is_open(claim: Claim) -> None:
    assert init(ongoing(epoch=4), claim) is TransactionError.PRODUCER_FENCED
    late = ongoing(epoch=4, last_epoch=3)
    assert init(late, Claim(OWNER, 3)) is TransactionError.PRODUCER_FENCED


def test_time_aborts_what_nobody_ends() -> None:
    begun = ongoing()
    assert begun.deadline_ms == START_MS + 1 + TIMEOUT_MS
    fenced = begun.on_abort(START_MS + 1 + TIMEOUT_MS)
    assert isinstance(fenced, Transaction)
    assert (fenced.state, fenced.epoch) == (State.PREPARE_ABORT, 1)
    assert end(fenced, 0) is TransactionError.PRODUCER_FENCED
    written = fenced.on_written(START_MS + 2 + TIMEOUT_MS)
    for commit, bumps in itertools.product((True, False), (True, False)):
        refused = end(written, 0, commit=commit, bumps=bumps)
        assert refused is TransactionError.PRODUCER_FENCED


def test_an_operator_ends_only_what_is_open() -> None:
    fenced = ongoing().on_abort(9_000)
    assert isinstance(fenced, Transaction)
    assert (fenced.state, fenced.epoch) == (State.PREPARE_ABORT, 1)
    assert empty().on_abort(9_000) is TransactionError.INVALID_TXN_STATE


def test_another_producers_id_is_no_answer_to_whose_it_is() -> None:
    mapping = TransactionError.INVALID_PRODUCER_ID_MAPPING
    begun = ongoing()
    assert begun.on_add(8, 0, {A}, 9_000) is mapping
    assert end(begun, producer_id=8) is mapping
    assert begun.check_write(8, 0, A) is mapping


def test_a_write_belongs_to_what_is_open_or_is_refused() -> None:
    begun = empty().on_add(OWNER, 0, {A}, 9_000)
    assert isinstance(begun, Transaction)
    assert begun.check_write(OWNER, 0, A) is TransactionError.NONE
    assert begun.check_write(OWNER, 0, B) is TransactionError.TRANSACTION_ABORTABLE
    decided = end(begun)
    assert decided.check_write(OWNER, 0, A) is TransactionError.CONCURRENT_TRANSACTIONS
    assert decided.on_add(OWNER, 0, {B}, 9_000) is TransactionError.CONCURRENT_TRANSACTIONS
    written = decided.on_written(9_001)
    assert written.check_write(OWNER, 0, A) is TransactionError.TRANSACTION_ABORTABLE


def test_a_transaction_has_only_so_many_partitions() -> None:
    places = {(TOPIC, index) for index in range(TRANSACTION_PARTITIONS_MAX + 1)}
    assert empty().on_add(OWNER, 0, places, 9_000) is TransactionError.POLICY_VIOLATION
    assert isinstance(empty().on_add(OWNER, 0, places - {A}, 9_000), Transaction)


def test_only_an_idle_id_is_ever_unused() -> None:
    assert not empty().is_unused(START_MS + 9, 10)
    assert empty().is_unused(START_MS + 10, 10)
    assert not ongoing().is_unused(START_MS + 10_000, 10)
    assert not end(ongoing()).is_unused(START_MS + 10_000, 10)
    assert ended(commit=True, bumps=False).is_unused(START_MS + 10_000, 10)
