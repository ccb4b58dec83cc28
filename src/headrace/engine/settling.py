"""Settling: what consumers say about what they hold.

Receipts are checked one by one and settled a partition at a time: one call on one
partition is one batch of the state log. A stale receipt is an outcome, not an
error: a correct consumer sometimes loses to the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.core.errors import HeadraceError, InvalidReceipt
from headrace.core.values import Receipt
from headrace.engine import state as events
from headrace.engine.catalog import Group
from headrace.engine.commit import Commit
from headrace.engine.fate import Fates
from headrace.engine.groups import Groups
from headrace.engine.partition import Partition
from headrace.engine.queue import Grant, QueueView
from headrace.engine.runs import runs_of
from headrace.engine.topics import Topics

Outcome = HeadraceError | None
Held = tuple[int, Receipt, Grant]


class Settling:
    def __init__(self, topics: Topics, groups: Groups, fates: Fates) -> None:
        self._topics = topics
        self._groups = groups
        self._fates = fates

    def ack(
        self, group: Group, receipts: Sequence[Receipt], now_ms: int, commit: Commit
    ) -> list[Outcome]:
        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            runs = runs_of(sorted(receipt.offset for _, receipt, _ in held))
            event = events.Acked(view.group_id, held[0][2].owner, now_ms, runs)
            commit.state.append((partition, partition.write(view, event, now_ms, wait=True)))

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
            by_due: dict[int, list[int]] = {}
            spent: list[int] = []
            owner = held[0][2].owner
            for _, receipt, grant in held:
                if receipt.attempt >= view.max_attempts_of(receipt.offset, grant):
                    spent.append(receipt.offset)
                    continue
                rest_ms = delay_ms
                if rest_ms is None:
                    rest_ms = view.settings.backoff_after_ms(receipt.attempt)
                by_due.setdefault(now_ms + rest_ms, []).append(receipt.offset)
            changes: list[tuple[QueueView, events.MessageEvent]] = [
                (
                    view,
                    events.Retried(
                        view.group_id, owner, now_ms, due_ms, error, runs_of(sorted(offsets))
                    ),
                )
                for due_ms, offsets in by_due.items()
            ]
            if changes:
                commit.state.append((partition, partition.write_all(changes, now_ms, wait=True)))
            if spent:
                self._fates.give_up(
                    partition, view, sorted(spent), "max-attempts", now_ms,
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
            self._fates.give_up(
                partition, view, sorted(receipt.offset for _, receipt, _ in held), "rejected",
                now_ms, who=held[0][2].owner, error=reason, commit=commit,
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
            by_grant: dict[tuple[str, int], list[int]] = {}
            for _, receipt, grant in held:
                by_grant.setdefault((grant.owner, grant.nonce), []).append(receipt.offset)
            for (owner, nonce), offsets in by_grant.items():
                event = events.Extended(
                    view.group_id, view.next_grant, owner, nonce, now_ms, until,
                    runs_of(sorted(offsets)),
                )  # fmt: skip
                view.next_grant += 1
                commit.state.append((partition, partition.write(view, event, now_ms, wait=False)))

        return self._settle(group, receipts, now_ms, settle)

    def release(self, group: Group, receipts: Sequence[Receipt], now_ms: int) -> list[Outcome]:
        """Back to the queue as if it had not been leased. Not waited for: when
        it is lost, the lease simply ends."""

        def settle(partition: Partition, view: QueueView, held: Sequence[Held]) -> None:
            runs = runs_of(sorted(receipt.offset for _, receipt, _ in held))
            event = events.Released(view.group_id, held[0][2].owner, now_ms, runs)
            partition.write(view, event, now_ms, wait=False)

        return self._settle(group, receipts, now_ms, settle)

    def _settle(
        self,
        group: Group,
        receipts: Sequence[Receipt],
        now_ms: int,
        settle: Callable[[Partition, QueueView, Sequence[Held]], None],
    ) -> list[Outcome]:
        """Check each receipt and settle the good ones, a partition at a time."""
        outcomes: list[Outcome] = [None] * len(receipts)
        places: dict[tuple[bytes, int], list[tuple[int, Receipt]]] = {}
        for number, receipt in enumerate(receipts):
            places.setdefault((receipt.topic_id, receipt.partition), []).append((number, receipt))
        for (topic_id, index), wanted in places.items():
            partition = self._topics.find(topic_id, index)
            view = None if partition is None else partition.views.get(group.id)
            if partition is None or view is None:
                for number, _ in wanted:
                    outcomes[number] = InvalidReceipt(
                        "the receipt is of a topic that is gone or that this group does not read"
                    )
                continue
            self._fates.tick([partition], now_ms)
            held: list[Held] = []
            seen: set[int] = set()
            for number, receipt in wanted:
                found = self._check(group, view, receipt)
                if isinstance(found, HeadraceError):
                    outcomes[number] = found
                elif receipt.offset not in seen:
                    seen.add(receipt.offset)
                    held.append((number, receipt, found))
            if held:
                settle(partition, view, held)
        return outcomes

    @staticmethod
    def _check(group: Group, view: QueueView, receipt: Receipt) -> HeadraceError | Grant:
        if receipt.group_id != group.id:
            return InvalidReceipt(f"the receipt is not of group {group.name!r}")
        return view.check(receipt)

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
        self._groups.serving(group).consumers.discard(consumer)
        self.release(group, list(self.held(group, consumer).values()), now_ms)
