"""Delayed messages: what waits in a topic for its moment, in that order."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.client.connection import Connection
from headrace.client.settling import message_id_of
from headrace.client.views import DelayedView
from headrace.core.values import DelayedTotals, check_name

PAGE_ITEMS = 500


class Delayed:
    def __init__(self, connection: Connection, topic: str) -> None:
        self.topic = check_name("topic", topic)
        self._connection = connection

    def __iter__(self) -> Iterator[DelayedView]:
        """The next one first. Pages lie underneath, so a message that comes or
        goes while the loop runs may or may not be seen."""
        after: tuple[int, int, int] | None = None
        while True:
            page = self._connection.reach().delayed(self.topic, after=after, limit=PAGE_ITEMS)
            for each in page:
                yield DelayedView(each)
            if len(page) < PAGE_ITEMS:
                return
            last = page[-1]
            after = (last.deliver_at_ms, last.partition, last.offset)

    def count(self) -> int:
        return sum(1 for _ in self)

    __len__ = count

    def totals(self) -> DelayedTotals:
        """What became of those before, since the node was started."""
        [totals] = self._connection.reach().delayed_totals([self.topic])
        return totals

    def cancel(self, id: object) -> bool:
        """Whether it is cancelled now; False when it is not delayed any more."""
        return self._connection.reach().cancel(message_id_of(id))

    def __bool__(self) -> bool:
        # Without this, truth would mean a count through all pages.
        return next(iter(self), None) is not None

    def __repr__(self) -> str:
        return f"<Delayed {self.topic}>"
