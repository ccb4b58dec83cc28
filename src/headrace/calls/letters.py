"""Delayed messages and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from headrace.calls.served import Served
from headrace.core.name_lists import distinct_topics
from headrace.core.steps import Steps, run_to_end
from headrace.core.values import (
    DeadLetter,
    DelayedMessage,
    DelayedTotals,
    MessageId,
    RedriveResult,
)
from headrace.engine.delayed import DelayedLooked, totals_of
from headrace.engine.letter_listing import LettersLooked
from headrace.engine.partition import Partition


class LetterCalls(Served):
    def delayed(
        self, topic: str, *, after: tuple[int, int, int] | None = None, limit: int = 100
    ) -> list[DelayedMessage]:
        """Up to `limit` behind `after`; fewer only when there are no more."""
        found: list[DelayedMessage] = []
        while True:
            looked = self.look_at_delayed(topic, after, limit - len(found))
            found += looked.items
            after = looked.next
            if after is None or len(found) >= limit:
                return found

    def look_at_delayed(
        self, topic: str, after: tuple[int, int, int] | None, limit: int
    ) -> DelayedLooked:
        """One look, at `limit` of them."""
        with self._reading() as now_ms:
            return self._broker.delayed(self._broker.topics.named(topic), after, limit, now_ms)

    def delayed_totals(self, topics: Sequence[str] | None = None) -> list[DelayedTotals]:
        """What became of the delayed messages of these topics; without names, of all
        topics where there were any."""
        known = self._broker.topics
        topics = None if topics is None else distinct_topics(topics)

        def find() -> list[Partition]:
            named = known if topics is None else chain(*map(self._partitions_named, topics))
            return [each for each in named if each.scanner and each.scanner.has_delays]

        with self._looking(find):
            if topics is not None:
                return [totals_of(name, known.partitions(known.named(name))) for name in topics]
            found = [
                totals_of(topic.name, known.partitions(topic))
                for topic in known.catalog.topics.values()
            ]
            return sorted(each for each in found if any(each[1:]))

    def cancel(self, id: MessageId) -> bool:
        """Call a delayed message off, for all groups. False when it is not
        delayed any more."""
        with self._writing() as (now_ms, commit):
            return self._broker.cancel(id, now_ms, commit)

    def dead_letters(
        self,
        topic: str,
        *,
        group: str | None = None,
        after: MessageId | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Up to `limit` behind `after`; fewer only when there are no more."""
        found: list[DeadLetter] = []
        while True:
            looked = self.look_at_letters(topic, group, after, limit - len(found))
            found += looked.items
            after = looked.next
            if after is None or len(found) >= limit:
                return found

    def look_at_letters(
        self, topic: str, group: str | None, after: MessageId | None, limit: int
    ) -> LettersLooked:
        """One look, at up to `limit` of them."""
        with self._looking(lambda: self._partitions_named(topic)):
            found = self._broker.topics.named(topic)
            return self._broker.dead_letters(found, group, after, limit)

    def dead_letter(self, id: MessageId) -> DeadLetter:
        with self._reading():
            return self._broker.dead_letter(id)

    def redrive(
        self, topic: str, ids: Sequence[MessageId], *, dry_run: bool = False, force: bool = False
    ) -> RedriveResult:
        return run_to_end(self.redriving(topic, ids, dry_run=dry_run, force=force))

    def redriving(
        self, topic: str, ids: Sequence[MessageId], *, dry_run: bool = False, force: bool = False
    ) -> Steps[RedriveResult]:
        """`redrive` in steps: letters may be large, and are gone through a piece at a time."""
        with self._writing() as (now_ms, commit):
            result = yield from self._broker.redrive(
                self._broker.topics.named(topic), ids, now_ms, commit,
                dry_run=dry_run, force=force,
            )  # fmt: skip
        self._notify_changed()
        return result

    def purge(self, topic: str, ids: Sequence[MessageId]) -> int:
        with self._writing() as (now_ms, commit):
            return self._broker.purge(self._broker.topics.named(topic), ids, now_ms, commit)
