"""How long the positions of a group last that nobody reads as any more.

    members gone          looked at            forgotten
    |---------------------|-------- retention --------|
                          or the commit itself, if that was later

A group with members keeps everything. When the members went is not written down, so
after a restart the time begins anew: rather too late than while they are on their way
back. A position without a group's members, as tools commit it, lasts as long.

Rejected: forgetting what an active group does not subscribe to any more, as Kafka
does. It saves a few bytes, and who adds the topic again expects to go on.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.cursor import Cursors


class CursorExpiry:
    def __init__(self, cursors: Cursors, retention_ms: int) -> None:
        self._cursors = cursors
        self._retention_ms = retention_ms
        # When a group was first seen without members.
        self._idle_since_ms: dict[str, int] = {}

    def tick(self, now_ms: int, has_members: Callable[[str], bool]) -> None:
        """To be called now and then. What it writes lasts with the next commit."""
        idle = {name for name in self._cursors.groups() if not has_members(name)}
        self._idle_since_ms = {name: self._idle_since_ms.get(name, now_ms) for name in sorted(idle)}
        for name, since_ms in self._idle_since_ms.items():
            if now_ms - since_ms >= self._retention_ms and not self._cursors.members(name):
                old = [
                    place
                    for place, cursor in self._cursors.of(name).items()
                    if now_ms - cursor.at_ms >= self._retention_ms
                    # A transaction is about to commit a newer one.
                    and self._cursors.is_stable(name, place)
                ]
                if old:
                    self._cursors.commit(name, dict.fromkeys(old), now_ms)
