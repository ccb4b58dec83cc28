"""Fates: what becomes of messages by time, or when they are given up.

A message is given up when it is out of attempts, rejected, or (where the topic asks for it)
when it expired or retention comes for it; one that was redriven in place also when it
expired. It then goes to the dead letters of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.engine import state as events
from headrace.engine.commit import Commit
from headrace.engine.delayed import on_expired
from headrace.engine.groups import Groups
from headrace.engine.move import Moves
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.runs import runs_of
from headrace.engine.topics import Topics
from headrace.engine.window import DEAD, EXPIRED, MOVING


class Fates:
    def __init__(self, topics: Topics, groups: Groups, moves: Moves) -> None:
        self._topics = topics
        self._groups = groups
        self._moves = moves

    def tick(
        self, partitions: Sequence[Partition], now_ms: int, commit: Commit | None = None
    ) -> None:
        """Whatever time alone brings: ends of delays, leases, lives. Where another node leads,
        it passes there."""
        for partition in partitions:
            if not partition.is_led_elsewhere:
                self._pass(partition, partition.views.values(), now_ms, commit)

    def tick_for(self, views: Iterable[tuple[Partition, QueueView]], now_ms: int) -> None:
        """As `tick`, for a group that is about to do something here. Thousands of others may
        read the same partition; their time passes when they are heard of."""
        for partition, view in views:
            self._pass(partition, (view,), now_ms, None)

    def _pass(
        self, partition: Partition, views: Iterable[QueueView], now_ms: int, commit: Commit | None
    ) -> None:
        partition.end_delays(now_ms)
        for view in views:
            overdue = view.tick(now_ms)
            if overdue is None:
                continue
            if overdue.ended:
                event = events.LeaseEnded(view.group_id, now_ms, overdue.ended)
                partition.write(view, event, now_ms, wait=False)
            if overdue.exhausted:
                self.give_up(
                    partition, view, overdue.exhausted, "max-attempts", now_ms, commit=commit
                )
        # Last, since a lease that just ended may have been of a message
        # that has outlived its TTL.
        for group_id, offsets in partition.expired().items():
            self.expire(partition, partition.views[group_id], offsets, now_ms)

    def show(self, partitions: Sequence[Partition], now_ms: int) -> None:
        """As `tick`, for whoever may only read: in memory it is as time has made it, and
        nothing is written. What would go to the dead letters is on its way there."""
        for partition in partitions:
            partition.end_delays(now_ms)
            is_letters = partition.topic.source_id is not None
            for view in partition.views.values():
                overdue = view.tick(now_ms)
                if overdue is not None:
                    view.apply(events.LeaseEnded(view.group_id, now_ms, overdue.ended))
                    spent = runs_of(overdue.exhausted)
                    if is_letters:
                        view.apply(events.Purged(view.group_id, "", now_ms, spent))
                    else:
                        view.reserve(spent, MOVING)
            for group_id, offsets in partition.expired().items():
                view = partition.views[group_id]
                on_expired(partition, view, offsets)
                kept, gone = _divide_expired(partition, view, offsets)
                view.reserve(runs_of(kept), MOVING)
                view.apply(events.Expired(group_id, now_ms, runs_of(gone)))

    def expire(
        self, partition: Partition, view: QueueView, offsets: list[int], now_ms: int
    ) -> None:
        on_expired(partition, view, offsets)
        kept, gone = _divide_expired(partition, view, offsets)
        if kept:
            self.give_up(partition, view, kept, "expired", now_ms, outcome=EXPIRED)
        if gone:
            event = events.Expired(view.group_id, now_ms, runs_of(gone))
            partition.write(view, event, now_ms, wait=False)

    def give_up(
        self,
        partition: Partition,
        view: QueueView,
        offsets: list[int],
        reason: str,
        now_ms: int,
        *,
        who: str = "",
        error: str | None = None,
        outcome: int = DEAD,
        commit: Commit | None = None,
    ) -> None:
        """To the dead letters. Messages of a dead-letter topic have nowhere to
        go: they end where they are."""
        planned = self.plan_to_give_up(
            partition, view, offsets, reason, now_ms, who=who, error=error, outcome=outcome
        )
        is_move = isinstance(planned[0], events.MoveIntended)
        changes = [(view, event) for event in planned]
        end = partition.write_all(changes, now_ms, wait=is_move or commit is not None)
        self.on_given_up(partition, view, planned, end, commit)

    def plan_to_give_up(
        self,
        partition: Partition,
        view: QueueView,
        offsets: list[int],
        reason: str,
        now_ms: int,
        *,
        who: str = "",
        error: str | None = None,
        outcome: int = DEAD,
    ) -> Sequence[events.Purged | events.MoveIntended]:
        """The events alone, for whoever writes them together with others and then
        calls `on_given_up`."""
        if partition.topic.source_id is not None:
            return [events.Purged(view.group_id, who, now_ms, runs_of(offsets))]
        letters = self._groups.dead_letters(partition.topic, now_ms)
        target = self._topics.partition(letters, partition.index % letters.partitions)
        return self._moves.intend(
            partition, view, offsets, target,
            who=who, reason=reason, error=error, now_ms=now_ms, outcome=outcome,
        )  # fmt: skip

    def on_given_up(
        self,
        partition: Partition,
        view: QueueView,
        planned: Sequence[events.Purged | events.MoveIntended],
        end: int,
        commit: Commit | None,
    ) -> None:
        """The events are written, and the state log ends at `end` behind them."""
        if commit is not None:
            commit.state.append((partition, end))
        for event in planned:
            if isinstance(event, events.MoveIntended):
                move = self._moves.begin(partition, view, event, end)
                if commit is not None:
                    commit.moves.append(move)


def _divide_expired(
    partition: Partition, view: QueueView, offsets: list[int]
) -> tuple[list[int], list[int]]:
    """Those that become dead letters, and those that are gone. What was redriven in place
    is a letter again: somebody wanted it done, and its life may have been almost over."""
    if partition.topic.source_id is not None:
        return [], offsets
    if partition.topic.settings.dead_letter_expired:
        return offsets, []
    kept = [offset for offset in offsets if offset in view.redrives]
    return kept, [offset for offset in offsets if offset not in view.redrives]
