"""A stream's membership in its group: who reads which partition.

    join, change, leave       the group shares its partitions anew
    generation                counts how often it did

All members are in this process, since one process at a time has the directory. So
a member that joins asks the others to commit first, and nobody reads twice what
somebody has handled; and it tells them afterwards, so that nobody gives out what
was read ahead of a partition that is now another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from headrace.client.backend import Backend
from headrace.client.connection import Connection
from headrace.client.progress import Offsets
from headrace.core.settings import OffsetReset
from headrace.core.values import CursorMove


@runtime_checkable
class Fellow(Protocol):
    """What one member of a group needs from another."""

    group: str | None

    def on_rebalance_ahead(self) -> None: ...

    def on_rebalanced(self) -> None: ...


class Membership:
    def __init__(self, connection: Connection, owner: Fellow, group: str, member: str) -> None:
        self.is_rebalanced = True
        self._connection = connection
        self._owner = owner
        self._group = group
        self._member = member
        self._generation = -1

    def join(self, backend: Backend, topics: Sequence[str], reset: OffsetReset) -> None:
        for other in self._others():
            other.on_rebalance_ahead()
        backend.join_stream(self._group, topics, self._member, reset)
        self._tell_others()

    def change(self, backend: Backend, topics: Sequence[str]) -> None:
        backend.change_stream(self._group, self._member, topics)
        self._tell_others()

    def leave(self, backend: Backend) -> None:
        backend.leave_stream(self._group, self._member)
        self._tell_others()

    def new_cursors(self, backend: Backend) -> Offsets | None:
        """The cursors of all partitions that are ours now; None when nothing
        has changed since the last time."""
        self.is_rebalanced = False
        generation, cursors = backend.assignment(self._group, self._member)
        if generation == self._generation:
            return None
        self._generation = generation
        return cursors

    def commit(self, backend: Backend, positions: Offsets) -> None:
        backend.commit(self._group, positions, member=self._member, generation=self._generation)

    def move_to(self, positions: Offsets) -> CursorMove:
        """The same as part of a transaction."""
        moved = [(topic, index, offset) for (topic, index), offset in positions.items()]
        return CursorMove(self._group, moved, self._member, self._generation)

    def _others(self) -> list[Fellow]:
        return [
            other
            for other in self._connection.opened()
            if isinstance(other, Fellow) and other.group == self._group and other is not self._owner
        ]

    def _tell_others(self) -> None:
        for other in self._others():
            other.on_rebalanced()
