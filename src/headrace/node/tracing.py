"""Traces in this process: steps without the lock, what lies between them under it."""

from __future__ import annotations

import contextlib
from typing import TypeVar

from headrace.calls.tracing import TraceCalls
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery
from headrace.engine.trace_links import Steps
from headrace.node.served import Embedded

T = TypeVar("T")

STEP_BYTES = 1024 * 1024


class Traced(Embedded, TraceCalls):
    def trace(self, what: str) -> MessageTrace:
        """Where a message is in every group, and what happened to it: by its id or
        by a receipt."""
        return self._carry_out(self.trace_steps(what))

    def traces(self, query: TraceQuery, *, after: str | None = None, limit: int = 100) -> TracePage:
        """A page of the messages that match."""
        return self._carry_out(self.search_steps(query, after=after, limit=limit))

    def _carry_out(self, steps: Steps[T]) -> T:
        done: int | None = None
        with contextlib.closing(steps):
            while True:
                with self._reading():
                    try:
                        step = steps.send(done)
                    except StopIteration as end:
                        result: T = end.value
                        return result
                done = step(STEP_BYTES)
