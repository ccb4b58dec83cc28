"""The node at a glance."""

from __future__ import annotations

from headrace.calls.served import Served
from headrace.core.overview_values import Overview
from headrace.core.steps import run_to_end
from headrace.engine.overview import overlook


class OverviewCalls(Served):
    def overview(self) -> Overview:
        """Totals of all topics and groups, in one go: where others wait, `overlook` is
        gone through in slices instead."""
        with self._looking(lambda: list(self._broker.topics)) as now_ms:
            return run_to_end(overlook(self._broker, now_ms))
