"""Queues: leasing messages and settling them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.calls.served import Served
from headrace.core import limits
from headrace.core.errors import GroupKindMismatch, HeadraceError, InvalidArgument
from headrace.core.settings import GroupSettings
from headrace.core.steps import Steps, run_to_end
from headrace.core.values import Delivery, Receipt
from headrace.engine.commit import Commit
from headrace.engine.leasing import Wishes, check_lease
from headrace.engine.prescan import Prescan

Outcomes = list[HeadraceError | None]


class QueueCalls(Served):
    def open_queue(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        run_to_end(self.queue_opening(group, topics, consumer, settings))

    def prescans(self, topics: Sequence[str]) -> list[Prescan]:
        """What has to be read before a queue group can read these topics: of partitions
        that none has read before."""
        with self._reading():
            known = self._broker.topics
            found = [known.catalog.topics.get(name) for name in dict.fromkeys(topics)]
            return [
                Prescan(partition)
                for topic in found
                if topic is not None and not topic.is_internal
                for partition in known.partitions(topic)
                if partition.scanner is None and partition.log.end_offset > 0
                if not partition.is_stopped
            ]

    def queue_opening(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str | None,
        settings: Mapping[str, Any] | None = None,
    ) -> Steps[None]:
        """The same in steps of one partition. Without a consumer nobody stays: leases are
        had call by call."""
        with self._writing() as (now_ms, commit):
            if group in self._broker.cursors.groups():
                raise GroupKindMismatch(f"group {group!r} reads as a stream; choose another name")
            if settings:
                # A misspelt setting is told of before a missing topic.
                GroupSettings.from_mapping(settings)
            found = self._topics_named(topics)
            opened = yield from self._broker.groups.opening(
                group, found, settings or {}, now_ms, commit
            )
            self._broker.readers.note(group, now_ms)
            if consumer is not None:
                self._broker.groups.serving(opened).consumers.stay(consumer)

    def next_due_ms(self, group: str | None, topics: Sequence[str]) -> int | None:
        """When time alone may make something ready for this group."""
        with self._reading():
            found = self._broker.topics.catalog.groups.get(group) if group else None
            if found is None:
                return None
            return self._broker.groups.next_due_ms(found, self._topics_named(topics))

    def lease(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        count: int,
        *,
        visibility_ms: int | None = None,
        among: int = 1,
        nonce: int | None = None,
        tie: int | None = None,
    ) -> list[Delivery]:
        """What is ready now, up to `count`; never waits for more. `among` is how many wait
        for the same messages, us included: then it is our part of what is ready. With a
        `nonce` of its own a caller can give back what it never heard of. `tie` says what ends
        these leases before their time (`engine.grant`)."""
        check_lease(consumer, count, visibility_ms)
        wishes = Wishes(visibility_ms, among, nonce, tie)
        leased, moved = self._lease(group, topics, consumer, count, wishes)
        if not leased and moved:
            # What was just given up may have been what others waited for.
            self._catch_up()
            leased, _ = self._lease(group, topics, consumer, count, wishes)
        return leased

    def _lease(
        self,
        group: str,
        topics: Sequence[str],
        consumer: str,
        count: int,
        wishes: Wishes,
    ) -> tuple[list[Delivery], bool]:
        """The messages, and whether time sent others to the dead letters."""
        with self._writing() as (now_ms, _):
            found = self._topics_named(topics)
            leased = self._broker.leasing.lease(
                self._broker.groups.named(group), found, consumer, count, wishes, now_ms
            )
            moved = len(self._broker.moves) > 0
        return leased, moved

    def ack(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        def ack(now_ms: int, commit: Commit) -> tuple[Outcomes, bool]:
            found = self._broker.groups.named(group)
            outcomes = self._broker.settling.ack(found, receipts, now_ms, commit)
            return outcomes, self._broker.groups.is_ordered(found)

        outcomes, is_ordered = self._write(ack)
        if is_ordered:
            # Only where messages wait for each other does an ack set others free.
            self._notify_freed(group)
        return outcomes

    def nack(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        delay_ms: int | None = None,
        error: str | None = None,
        within_seconds: float | None = None,
    ) -> Outcomes:
        settling = self._broker.settling
        if delay_ms is not None and not 0 <= delay_ms <= limits.TIMESTAMP_MS_MAX:
            raise InvalidArgument(f"a delay is at least 0 ms, not {delay_ms}")
        with self._writing() as (now_ms, commit):
            found = self._broker.groups.named(group)
            outcomes = settling.nack(found, receipts, delay_ms, _short(error), now_ms, commit)
        self._notify_freed(group)
        return outcomes

    def reject(
        self, group: str, receipts: Sequence[Receipt], *, reason: str | None = None
    ) -> Outcomes:
        settling = self._broker.settling
        with self._writing() as (now_ms, commit):
            found = self._broker.groups.named(group)
            outcomes = settling.reject(found, receipts, _short(reason), now_ms, commit)
        self._notify_freed(group)
        return outcomes

    def extend(
        self,
        group: str,
        receipts: Sequence[Receipt],
        *,
        visibility_ms: int | None = None,
        within_seconds: float | None = None,
    ) -> Outcomes:
        settling = self._broker.settling
        check_lease("extend", 1, visibility_ms)
        with self._writing() as (now_ms, commit):
            return settling.extend(
                self._broker.groups.named(group), receipts, visibility_ms, now_ms, commit
            )

    def release(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        settling = self._broker.settling
        with self._writing() as (now_ms, _):
            outcomes = settling.release(self._broker.groups.named(group), receipts, now_ms)
        self._notify_freed(group)
        return outcomes

    def check_receipts(self, group: str, receipts: Sequence[Receipt]) -> Outcomes:
        """What settling them would answer now; nothing is settled."""
        with self._writing() as (now_ms, _):
            found = self._broker.groups.named(group)
            return self._broker.settling.check(found, receipts, now_ms)

    def held(self, group: str, consumer: str) -> dict[tuple[str, int, int], Receipt]:
        with self._reading():
            return self._broker.settling.held(self._broker.groups.named(group), consumer)

    def leave(self, group: str, consumer: str) -> None:
        with self._writing() as (now_ms, _):
            self._broker.settling.leave(self._broker.groups.named(group), consumer, now_ms)
        self._notify_freed(group)


def _short(text: str | None) -> str | None:
    return None if text is None else text[: limits.ERROR_CHARACTERS_MAX]
