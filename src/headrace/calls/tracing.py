"""Tracing: one message by its id or its receipt, and searches for many.

A call begins with what is due, and gives back steps: most of the work is reading, which
needs neither the lock nor the loop. `Node` and the doors carry them out each in their
own way.
"""

from __future__ import annotations

from headrace.calls.served import Served
from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.trace_values import MessageTrace, TracePage, TraceQuery, parse_traced
from headrace.core.values import MessageId, Receipt
from headrace.engine.partition import Partition
from headrace.engine.trace_links import Steps
from headrace.engine.trace_search import search
from headrace.engine.tracing import id_of_receipt, trace_one


class TraceCalls(Served):
    def trace_steps(self, what: str) -> Steps[MessageTrace]:
        """Of the message with this id, or that this receipt was for."""
        with self._reading():
            given = parse_traced(what)
            id = id_of_receipt(self._broker, given) if isinstance(given, Receipt) else given

        def find() -> list[Partition]:
            topic = self._broker.topics.named(id.topic)
            return [self._broker.topics.partition(topic, id.partition)]

        with self._looking(find):
            return trace_one(self._broker, id)

    def search_steps(
        self, query: TraceQuery, *, after: str | None = None, limit: int = 100
    ) -> Steps[TracePage]:
        """`after` is the `next` of the page before. UnknownTopic, UnknownGroup."""
        if not 1 <= limit <= limits.PAGE_ITEMS_MAX:
            raise InvalidArgument(f"a page has 1 to {limits.PAGE_ITEMS_MAX} items, not {limit}")
        place = None if after is None else MessageId.parse(after)
        topic = query.topic
        with self._looking(lambda: [] if topic is None else self._partitions_named(topic)):
            if query.group is not None:
                self._check_group(query.group)
            return search(self._broker, query, place, limit)
