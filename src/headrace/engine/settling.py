"""Settling: what consumers say about what they hold.

Receipts are checked in runs, since consumers mostly settle what they were given in
one piece, and settled a partition at a time: one call on one partition is one batch
of the state log. A stale receipt is an outcome, not an
error: a correct consumer sometimes loses to the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from headrace.core.errors import HeadraceError, InvalidReceipt
from headrace.core.values import Receipt
from headrace.engine import state as events
from headrace.engine.catalog import Group
from headrace.engine.commit import Commit
from headrace.engine.fate import Fates
from headrace.engine.grant import Grant
from headrace.engine.groups import Groups
from headrace.engine.held_acks import hold_acks
from headrace.engine.latency import on_acked
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import Runs, merged, offsets_of
from headrace.engine.topics import Topics

Outcome = HeadraceError | None
Change = tuple[QueueView, events.MessageEvent]

_start_of = attrgetter("start")


class Held(NamedTuple):
    """A run of messages under one grant, all at the same delivery."""

    start: int
    end: int
    attempt: int
    grant: Grant


class Settling:
    def __init__(self, topics: Topics, groups: Groups, fates: Fates) -> None:
        self._topics = topics
        self._groups = groups
        self._fates = fates

    def ack(
        self, group: Group, receipts: Sequence[Receipt], now_ms: int, commit: Commit
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            on_acked(view, held, now_ms)
            changes: list[Change] = [
                (view, events.Acked(view.group_id, owner, now_ms, _runs(own)))
                for owner, own in _by_owner(held)
            ]
            commit.state.append((partition, partition.write_all(changes, now_ms, wait=True)))

        return self._settle(group, receipts, now_ms, settle)

    def check(self, group: Group, receipts: Sequence[Receipt], now_ms: int) -> list[Outcome]:
        """What settling would answer now; nothing is changed."""
        return self._settle(group, receipts, now_ms, lambda partition, view, held: None)

    def ack_in_transaction(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        """Acked if the producer's transaction is committed. Whoever calls has made
        sure that it is open, and that the partitions are part of it."""

        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            for who, own in _by_owner(held):
                view.held_acks.keep_since(view.next_grant, own)
                end = hold_acks(
                    partition, view, _runs(own), who, producer_id, producer_epoch, now_ms
                )
                commit.state.append((partition, end))

        return self._settle(group, receipts, now_ms, settle)

    def nack(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        delay_ms: int | None,
        error: str | None,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            by_owner = _by_owner(held)
            plans = [plan_retries(view, own, delay_ms, error, now_ms) for _, own in by_owner]
            changes = [change for retried, _ in plans for change in retried]
            if changes:
                commit.state.append((partition, partition.write_all(changes, now_ms, wait=True)))
            for (owner, _), (_, spent) in zip(by_owner, plans, strict=True):
                if spent:
                    self._fates.give_up(
                        partition, view, spent, "max-attempts", now_ms,
                        who=owner, error=error, commit=commit,
                    )  # fmt: skip

        return self._settle(group, receipts, now_ms, settle)

    def reject(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        reason: str | None,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            for owner, own in _by_owner(held):
                self._fates.give_up(
                    partition, view, list(offsets_of(_runs(own))), "rejected", now_ms,
                    who=owner, error=reason, commit=commit,
                )  # fmt: skip

        return self._settle(group, receipts, now_ms, settle)

    def extend(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        visibility_ms: int | None,
        now_ms: int,
        commit: Commit,
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            until = now_ms + (visibility_ms or view.settings.visibility_ms)
            by_grant: dict[tuple[str, int], list[Held]] = {}
            for run in held:
                by_grant.setdefault((run.grant.owner, run.grant.nonce), []).append(run)
            for (owner, nonce), same in by_grant.items():
                event = events.Extended(
                    view.group_id, view.next_grant, owner, nonce, now_ms, until,
                    _runs(same),
                )  # fmt: skip
                view.next_grant += 1
                commit.state.append((partition, partition.write(view, event, now_ms, wait=False)))

        return self._settle(group, receipts, now_ms, settle)

    def release(self, group: Group, receipts: Sequence[Receipt], now_ms: int) -> list[Outcome]:
        """Back to the queue as if it had not been leased. Not waited for: when
        it is lost, the lease simply ends."""

        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            changes: list[Change] = [
                (view, events.Released(view.group_id, owner, now_ms, _runs(own)))
                for owner, own in _by_owner(held)
            ]
            partition.write_all(changes, now_ms, wait=False)

        return self._settle(group, receipts, now_ms, settle)

    def _settle(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        now_ms: int,
        settle: Callable[[Partition, QueueView, Sequence[Held]], None],
    ) -> list[Outcome]:
        """Check the receipts and settle the good ones, a partition at a time."""
        alike = list(_alike(receipts))
        if len(alike) > 1:
            # What was leased by priority makes longer runs by offset.
            order = sorted(range(len(receipts)), key=receipts.__getitem__)
            if order != list(range(len(receipts))):
                ordered = [receipts[number] for number in order]
                found = self._settle(group, ordered, now_ms, settle)
                by_number = dict(zip(order, found, strict=True))
                return [by_number[number] for number in range(len(receipts))]
        outcomes: list[Outcome] = [None] * len(receipts)
        places: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
        for first, last in alike:
            place = (receipts[first].topic_id, receipts[first].partition)
            places.setdefault(place, []).append((first, last))
        for (topic_id, index), wanted in places.items():
            partition = self._topics.find(topic_id, index)
            view = None if partition is None else partition.views.get(group.id)
            if partition is None or view is None or partition.is_led_elsewhere:
                wrong: HeadraceError = InvalidReceipt(
                    "the receipt is of a topic that is gone or that this group does not read"
                )
                if partition is not None and partition.queues_stopped is not None:
                    wrong = partition.queues_stopped
                if partition is not None and partition.is_led_elsewhere:
                    wrong = partition.not_led()
                for first, last in wanted:
                    outcomes[first:last] = [wrong] * (last - first)
                continue
            self._fates.tick_for([(partition, view)], now_ms)
            held: list[Held] = []
            for first, last in wanted:
                held += self._check(group, view, receipts, first, last, outcomes)
            if held:
                settle(partition, view, _each_once(held))
        return outcomes

    @staticmethod
    def _check(
        group: Group,
        view: QueueView,
        receipts: Sequence[Receipt],
        first: int,
        last: int,
        outcomes: list[Outcome],
    ) -> list[Held]:
        """What is held of a run of receipts that are alike; what is wrong with
        the others goes into the outcomes."""
        _, _, group_id, offset, attempt, nonce = receipts[first]
        if group_id != group.id:
            wrong = InvalidReceipt(f"the receipt is not of group {group.name!r}")
            outcomes[first:last] = [wrong] * (last - first)
            return []
        grant = view.is_held(offset, offset + last - first, nonce, attempt)
        if grant is not None:
            return [Held(offset, offset + last - first, attempt, grant)]
        held: list[Held] = []
        for number in range(first, last):
            found = view.check(receipts[number])
            if isinstance(found, HeadraceError):
                outcomes[number] = found
                view.stale_receipts += 1
            else:
                offset = receipts[number].offset
                held.append(Held(offset, offset + 1, attempt, found))
        return held

    # Consumers.

    def held(self, group: Group, consumer: str) -> dict[tuple[str, int, int], Receipt]:
        return {
            (partition.topic.name, partition.index, offset): Receipt(
                partition.topic.id,
                partition.index,
                group.id,
                offset,
                view.window.attempts_at(offset),
                grant.nonce,
            )
            for partition, view in self._groups.views(group)
            for offset, grant in view.leased_by(consumer).items()
        }

    def leave(self, group: Group, consumer: str, now_ms: int) -> None:
        """Give back everything that a consumer holds."""
        self._groups.serving(group).consumers.leave(consumer)
        self._groups.readers.note(group.name, now_ms)
        self.release(group, list(self.held(group, consumer).values()), now_ms)


def _by_owner(held: Sequence[Held]) -> list[tuple[str, list[Held]]]:
    """What each consumer holds of it: receipts travel, and one call may settle those of
    several. Mostly it is one consumer's."""
    owners: dict[str, list[Held]] = {}
    for run in held:
        owners.setdefault(run.grant.owner, []).append(run)
    return list(owners.items())


def plan_retries(
    view: QueueView, held: Sequence[Held], delay_ms: int | None, error: str | None, now_ms: int
) -> tuple[list[tuple[QueueView, events.MessageEvent]], list[int]]:
    """Events that let messages rest before their next delivery, and the offsets
    of those that had their last."""
    by_due: dict[int, Runs] = {}
    spent: list[int] = []
    for start, end, attempt, grant in held:
        rest_ms = view.settings.backoff_after_ms(attempt) if delay_ms is None else delay_ms
        if not grant.max_attempts:
            if attempt >= view.settings.max_attempts:
                spent.extend(range(start, end))
            else:
                by_due.setdefault(now_ms + rest_ms, []).extend((start, end))
            continue
        for offset in range(start, end):
            if attempt >= view.max_attempts_of(offset, grant):
                spent.append(offset)
            else:
                by_due.setdefault(now_ms + rest_ms, []).extend((offset, offset + 1))
    owner = held[0].grant.owner
    changes: list[tuple[QueueView, events.MessageEvent]] = [
        (view, events.Retried(view.group_id, owner, now_ms, due_ms, error, merged(runs)))
        for due_ms, runs in by_due.items()
    ]
    return changes, spent


def _alike(receipts: Sequence[Receipt]) -> Iterator[tuple[int, int]]:
    """Where runs of receipts begin and end that differ in nothing but their
    offsets, which follow one another: mostly what one lease handed out."""
    first = 0
    kind: tuple[bytes, int, int, int, int] | None = None
    next_offset = -1
    for number, (topic_id, partition, group_id, offset, attempt, nonce) in enumerate(receipts):
        if offset != next_offset or kind != (
            topic_id,
            partition,
            group_id,
            attempt,
            nonce,
        ):
            if number:
                yield first, number
            first = number
            kind = (topic_id, partition, group_id, attempt, nonce)
        next_offset = offset + 1
    if receipts:
        yield first, len(receipts)


def _each_once(held: list[Held]) -> list[Held]:
    """In order of offset. A receipt that was given twice counts once."""
    held.sort(key=_start_of)
    reached = -1
    once: list[Held] = []
    for run in held:
        if run.end > reached:
            once.append(run if run.start >= reached else run._replace(start=reached))
            reached = run.end
    return once


def _runs(held: Sequence[Held]) -> Runs:
    runs: Runs = []
    for start, end, _, _ in held:
        runs += (start, end)
    return merged(runs)
