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

from collections.abc import Set

from headrace.engine.cursor import Cursors
from headrace.engine.partition import Partition

# Positions that are forgotten at a time: each is an append, and others wait for their
# turn meanwhile.
FORGOTTEN_AT_ONCE = 1_000


class CursorExpiry:
    def __init__(self, cursors: Cursors, retention_ms: int) -> None:
        self._cursors = cursors
        self.retention_ms = retention_ms
        # When a group was first seen without members.
        self._idle_since_ms: dict[str, int] = {}

    def on_clock_set(self, by_ms: int) -> None:
        self._idle_since_ms = {name: at + by_ms for name, at in self._idle_since_ms.items()}

    def tick(self, now_ms: int, active: Set[str]) -> tuple[Partition, int] | None:
        """To be called now and then, with the groups that have members elsewhere. What
        has to be synced, if anything was written: until then nothing is forgotten."""
        cursors = self._cursors
        if cursors.is_away:
            return None
        idle = sorted(
            name for name in cursors.groups() if name not in active and not cursors.members(name)
        )
        self._idle_since_ms = {name: self._idle_since_ms.get(name, now_ms) for name in idle}
        changing = cursors.changing()
        written, left = None, FORGOTTEN_AT_ONCE
        for name, since_ms in self._idle_since_ms.items():
            if now_ms - since_ms < self.retention_ms:
                continue
            old = [
                place
                for place, cursor in cursors.of(name).items()
                if now_ms - cursor.at_ms >= self.retention_ms
                # A newer one is on its way, or that it is forgotten.
                and (name, place) not in changing
            ][:left]
            if old:
                written = cursors.commit(name, dict.fromkeys(old), now_ms)
                left -= len(old)
                if not left:
                    break
        return written
