"""What a group finds when it begins to read a topic in the order of keys, in steps.

    steps      batch . batch . batch . ...      nobody sees the view
    open       the rest, and the view is one of the partition's

Only keys that are in the log itself make the order, so all of it is gone through for
every group that comes. What is prepared is of use while the log has only grown and
nothing else was changed that a view is told of; else the partition begins anew.
"""

from __future__ import annotations

from headrace.core.steps import Steps
from headrace.engine.catalog import Group
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView


def new_view(partition: Partition, group: Group, start: int) -> QueueView:
    ordering = partition.topic.settings.ordering
    return QueueView(group.id, group.name, group.settings, ordering, start)


class ViewOpening:
    def __init__(self, partition: Partition, group: Group, start: int) -> None:
        self._partition = partition
        self._scanner = partition.open_scanner()
        self._start = start
        self._known = self._changing()
        self._view = new_view(partition, group, start)

    def _changing(self) -> tuple[object, ...]:
        """What views of the partition would be told of."""
        log = self._partition.log
        cancelled = frozenset(self._scanner.cancelled)
        return log.start_offset, log.segment_list.changes, cancelled

    def _is_good(self) -> bool:
        return self._partition.scanner is self._scanner and self._known == self._changing()

    def steps(self, now_ms: int) -> Steps[None]:
        # What is undecided is for later: not every group sees it.
        end = self._partition.last_stable_offset
        steps = self._scanner.catching_up([self._view], end, now_ms)
        while self._is_good():
            try:
                next(steps)
            except StopIteration:
                return
            yield

    def result(self, group: Group, start: int) -> QueueView | None:
        """The view, if it is that of this group as it is now."""
        is_same = (self._view.settings, self._start) == (group.settings, start)
        return self._view if is_same and self._is_good() else None
