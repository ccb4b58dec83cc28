"""Which messages a search may be looking for, going by their states alone.

States are in memory, and histories have to be read. So of what a search goes over only
the messages that are in the right state are traced: a search for an outcome that no
message has reads no history at all.

What is below a group's start looks like what it acked. Where groups began is written
in their histories, so it is known (`starts`) once a first one was read: until then such
messages may be wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from operator import or_
from typing import Final

from headrace.core.trace_values import TraceQuery, TraceState
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.standing import state_in_queue
from headrace.engine.window import ACKED, STATE_MASK

_ALL_STATES: Final = range(STATE_MASK + 1)


class StateFilter:
    def __init__(self, broker: Broker, partition: Partition, query: TraceQuery) -> None:
        self._broker = broker
        self._partition = partition
        self._group = query.group
        self._outcome: TraceState | None = query.outcome
        # Where groups began to read, by number; None while that is not known.
        self.starts: dict[int, int] | None = None

    def keep(self, offsets: Sequence[int]) -> list[int]:
        """Those of these ascending offsets that may be wanted."""
        if not offsets or (self._group is None and self._outcome is None):
            return list(offsets)
        wanted: Iterator[bool] | list[bool] = self._in_streams(offsets)
        for view in self._partition.views.values():
            if self._group in (None, view.name):
                wanted = map(or_, list(wanted), self._in_queue(view, offsets))
        return list(compress(offsets, wanted))

    def _in_queue(self, view: QueueView, offsets: Sequence[int]) -> list[bool]:
        fits = [self._fits(state_in_queue(view, state)) for state in _ALL_STATES]
        was_skipped = self._fits("skipped")
        begin = 0
        if self.starts is not None:
            begin = self.starts.get(view.group_id, 0)
        elif was_skipped:
            fits[ACKED] = True
        seen = [offset for offset in offsets if offset < view.window.end]
        states = view.window.states_at(seen)
        found = [
            fits[state] if offset >= begin else was_skipped
            for offset, state in zip(seen, states, strict=True)
        ]
        return found + [False] * (len(offsets) - len(seen))

    def _in_streams(self, offsets: Sequence[int]) -> list[bool]:
        if self._outcome not in (None, "read", "unread"):
            return [False] * len(offsets)
        cursors = self._broker.cursors
        place = (self._partition.topic.id, self._partition.index)
        names = cursors.groups() if self._group is None else (self._group,)
        ends = [found.offset for name in names if (found := cursors.find(name, place)) is not None]
        if not ends or self._outcome is None:
            return [bool(ends)] * len(offsets)
        if self._outcome == "read":
            last = max(ends)
            return [offset < last for offset in offsets]
        first = min(ends)
        return [offset >= first for offset in offsets]

    def _fits(self, state: TraceState) -> bool:
        return state == self._outcome if self._outcome else state != "skipped"
