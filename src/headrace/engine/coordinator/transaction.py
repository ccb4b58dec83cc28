"""One transactional id: whose it is, and what became of its last transaction.

    Empty ----------- add --------> Ongoing
    Complete* ------- add --------> Ongoing
    Ongoing --------- add --------> Ongoing            more partitions
    Ongoing --------- end --------> PrepareCommit or PrepareAbort
    Ongoing --------- init -------> PrepareAbort       a newer producer: epoch + 1
    Ongoing --------- timeout ----> PrepareAbort       nobody's any more: epoch + 1
    Prepare* -------- written ----> Complete*          the marker is in every partition
    Empty, Complete*  init -------> Empty              epoch + 1
    Empty, Complete*  unused -----> Dead               forgotten

The inputs never change a transaction: they return the next one, the same one when
there is nothing to change, or why not. Whoever drives it writes the next one down
before acting on it: what is in Prepare* will be ended that way, whatever crashes, so
that must be on disk before the first marker is.

Two protocols end a transaction. In the older one the epoch stays, so a request of a
transaction that is over can be mistaken for one of the next. In the newer one
(KIP-890, `bumps`) every end brings the next epoch, and whatever comes late is fenced.
A producer whose answer was lost may say the end again with its old epoch.

An epoch is 16 bits. The last one is never given to a client, so there is always one
left for fencing it; behind it comes a new producer id with epoch 0.

Rejected: Kafka's way of letting a claim with an outdated epoch abort what a newer
producer has open. The claim is looked at first here.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from headrace.core.limits import TRANSACTION_PARTITIONS_MAX

# A topic by its id, and one partition of it.
Place = tuple[bytes, int]

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
NEVER_MS: Final = -1
EPOCH_MAX: Final = 2**15 - 1
# From here on a producer gets another id instead of another epoch.
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1


class State(StrEnum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


class TransactionError(IntEnum):
    """Kafka's own numbers; see `coordinator/values.py` for why they are here."""

    NONE = 0
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    PRODUCER_FENCED = 90
    TRANSACTION_ABORTABLE = 120


class Claim(NamedTuple):
    """What a producer believes to be, when it asks for another epoch."""

    producer_id: int
    epoch: int


class Transaction(NamedTuple):
    state: State
    producer_id: int
    epoch: int
    timeout_ms: int
    changed_at_ms: int
    # The epoch before this one, while its owner may not have heard of this one.
    last_epoch: int = NO_EPOCH
    # The id before this one, and the one that comes when this one's end is written.
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    started_at_ms: int = NEVER_MS
    # Its last end came from a client that takes the next epoch with the answer.
    bumps: bool = False
    partitions: frozenset[Place] = frozenset()

    @property
    def is_ending(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def deadline_ms(self) -> int | None:
        """When it is aborted if nobody ends it."""
        return self.started_at_ms + self.timeout_ms if self.state is State.ONGOING else None

    # Inputs.

    def on_init(
        self, timeout_ms: int, claim: Claim | None, now_ms: int, new_producer_id: Callable[[], int]
    ) -> Transaction | TransactionError:
        """A producer begins, or goes on after an error with what it claims to be.
        In PrepareAbort it has to ask again once that is done."""
        if self.is_ending:
            return TransactionError.CONCURRENT_TRANSACTIONS
        if claim is not None and not self._is_ours(claim):
            return TransactionError.PRODUCER_FENCED
        # Who claims the epoch may not hear of the next one, and may claim it again.
        last_epoch = NO_EPOCH if claim is None else self.epoch
        if self.state is State.ONGOING:
            return self._fence(last_epoch, now_ms)
        empty = self._replace(
            state=State.EMPTY,
            timeout_ms=timeout_ms,
            changed_at_ms=now_ms,
            started_at_ms=NEVER_MS,
            bumps=False,
        )
        if claim is not None and claim.epoch != self.epoch:
            # It did claim it before, and the answer was lost.
            return self if self.state is State.EMPTY else empty
        empty = empty._replace(last_epoch=last_epoch)
        if self.epoch < EPOCH_EXHAUSTED:
            return empty._replace(epoch=self.epoch + 1)
        return empty._replace(
            producer_id=new_producer_id(), epoch=0, previous_producer_id=self.producer_id
        )

    def on_add(
        self, producer_id: int, epoch: int, places: Set[Place], now_ms: int
    ) -> Transaction | TransactionError:
        """The transaction is going to write there; the first time begins it."""
        refusal = self._refuse(producer_id, epoch)
        if refusal is not TransactionError.NONE:
            return refusal
        if self.is_ending:
            return TransactionError.CONCURRENT_TRANSACTIONS
        is_begun = self.state is State.ONGOING
        if is_begun and places <= self.partitions:
            return self
        partitions = self.partitions | places if is_begun else frozenset(places)
        if len(partitions) > TRANSACTION_PARTITIONS_MAX:
            return TransactionError.POLICY_VIOLATION
        return self._replace(
            state=State.ONGOING,
            partitions=partitions,
            changed_at_ms=now_ms,
            started_at_ms=self.started_at_ms if is_begun else now_ms,
        )

    def on_end(
        self,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        bumps: bool,
        now_ms: int,
        new_producer_id: Callable[[], int],
    ) -> Transaction | TransactionError:
        """The same transaction when it has been ended that way already;
        CONCURRENT_TRANSACTIONS while it is being ended that way."""
        if self._is_repeated(producer_id, epoch):
            return self._answer_again(commit)
        refusal = self._refuse(producer_id, epoch)
        if refusal is not TransactionError.NONE:
            return refusal
        if self.is_ending:
            # With its next epoch nobody has heard of it, so nobody says it again.
            fenced = TransactionError.PRODUCER_FENCED
            return fenced if self.bumps else self._answer_again(commit)
        if self.state is not State.ONGOING:
            if self.state is State.EMPTY or self.bumps or bumps:
                # Nothing was added, but a write that is under way might be: with
                # the next epoch it comes too late.
                return self._skip_epoch(now_ms, new_producer_id) if bumps and not commit else _WRONG
            return self._answer_again(commit)
        decided = self._replace(
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            changed_at_ms=now_ms,
            bumps=bumps,
        )
        if not bumps:
            return decided
        exhausted = self.epoch >= EPOCH_EXHAUSTED
        return decided._replace(
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            next_producer_id=new_producer_id() if exhausted else NO_PRODUCER,
        )

    def on_written(self, now_ms: int) -> Transaction:
        """The marker is in every partition."""
        assert self.is_ending
        done = self._replace(
            state=State.COMPLETE_COMMIT if self.is_commit else State.COMPLETE_ABORT,
            partitions=frozenset(),
            changed_at_ms=now_ms,
        )
        if self.next_producer_id == NO_PRODUCER:
            return done
        return done._replace(
            producer_id=self.next_producer_id,
            epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER,
        )

    def on_abort(self, now_ms: int) -> Transaction | TransactionError:
        """An operator ends it, or its time is over; the producer is fenced."""
        return self._fence(NO_EPOCH, now_ms) if self.state is State.ONGOING else _WRONG

    # Questions.

    def check_write(self, producer_id: int, epoch: int, place: Place) -> TransactionError:
        """Whether a batch of this producer belongs to what is open here."""
        refusal = self._refuse(producer_id, epoch)
        if refusal is not TransactionError.NONE:
            return refusal
        if self.is_ending:
            return TransactionError.CONCURRENT_TRANSACTIONS
        if self.state is not State.ONGOING or place not in self.partitions:
            return TransactionError.TRANSACTION_ABORTABLE
        return TransactionError.NONE

    def is_unused(self, now_ms: int, after_ms: int) -> bool:
        is_idle = self.state is not State.ONGOING and not self.is_ending
        return is_idle and now_ms - self.changed_at_ms >= after_ms

    # Parts of the rules.

    def _refuse(self, producer_id: int, epoch: int) -> TransactionError:
        if producer_id != self.producer_id:
            return TransactionError.INVALID_PRODUCER_ID_MAPPING
        return TransactionError.NONE if epoch == self.epoch else TransactionError.PRODUCER_FENCED

    def _is_ours(self, claim: Claim) -> bool:
        if claim.epoch == self.epoch and claim.producer_id == self.producer_id:
            return True
        if self.state is State.ONGOING or claim.epoch != self.last_epoch:
            return False
        if claim.producer_id == self.producer_id:
            return True
        return claim.producer_id == self.previous_producer_id and claim.epoch >= EPOCH_EXHAUSTED

    def _is_repeated(self, producer_id: int, epoch: int) -> bool:
        """An end that was said before, by a producer that did not hear of the
        epoch, or the id, that it brought."""
        if not self.bumps or self.state in (State.EMPTY, State.ONGOING):
            return False
        if producer_id == self.producer_id:
            return epoch == self.epoch - 1
        is_rotated = producer_id == self.previous_producer_id and self.epoch == 0
        return is_rotated and epoch == self.last_epoch

    def _answer_again(self, commit: bool) -> Transaction | TransactionError:
        if commit is not self.is_commit:
            return _WRONG
        return TransactionError.CONCURRENT_TRANSACTIONS if self.is_ending else self

    def _skip_epoch(self, now_ms: int, new_producer_id: Callable[[], int]) -> Transaction:
        skipped = self._replace(
            state=State.COMPLETE_ABORT,
            changed_at_ms=now_ms,
            started_at_ms=now_ms,
            last_epoch=self.epoch,
            bumps=True,
        )
        if self.epoch < EPOCH_EXHAUSTED:
            return skipped._replace(epoch=self.epoch + 1)
        return skipped._replace(
            producer_id=new_producer_id(), epoch=0, previous_producer_id=self.producer_id
        )

    def _fence(self, last_epoch: int, now_ms: int) -> Transaction:
        return self._replace(
            state=State.PREPARE_ABORT,
            epoch=self.epoch + 1,
            last_epoch=last_epoch,
            changed_at_ms=now_ms,
            bumps=False,
        )


_WRONG: Final = TransactionError.INVALID_TXN_STATE


def first_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """Of a transactional id that nobody has used, or that was forgotten."""
    return Transaction(State.EMPTY, producer_id, 0, timeout_ms, now_ms)
