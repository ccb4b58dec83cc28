"""The node at a glance."""

from __future__ import annotations

from itertools import islice

from headrace.calls.served import Served
from headrace.core.overview_values import Overview, UnreadableBatch
from headrace.core.steps import run_to_end
from headrace.engine.overview import overlook

# Of those that are named; all are counted by a metric.
UNREADABLE_MAX = 1_000


class OverviewCalls(Served):
    def overview(self) -> Overview:
        """Totals of all topics and groups, in one go: where others wait, `overlook` is
        gone through in slices instead."""
        with self._looking(lambda: list(self._broker.topics)) as now_ms:
            return run_to_end(overlook(self._broker, now_ms))

    def unreadable_batches(self) -> list[UnreadableBatch]:
        """The first of those that were met so far and are still there."""
        with self._reading():
            found = (
                UnreadableBatch(partition.topic.name, partition.index, *noted)
                for partition in self._broker.topics
                if partition.records.unreadable.count
                for noted in partition.records.unreadable.known()
                if noted.end > partition.log.start_offset
            )
            return list(islice(found, UNREADABLE_MAX))
