"""A timer for each group, at its next deadline.

Sessions run on the loop's own clock. The wall clock can be set forward, and then
every member of every group would look as if it had been silent for long.

Rejected: one timer for all groups. Finding its time would mean asking every group
after every heartbeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.engine.coordinator.registry import CoordinatedGroup


class GroupTimers:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_due: Callable[[CoordinatedGroup], None]
    ) -> None:
        self._loop = loop
        self._on_due = on_due
        # By group: when its timer goes off, and the timer.
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}

    def arm(self, group: CoordinatedGroup) -> None:
        """Have the group's timer go off no later than its next deadline."""
        deadline_ms = group.next_deadline_ms()
        if deadline_ms is None:
            return
        armed = self._timers.get(group.name)
        if armed is not None:
            if armed[0] <= deadline_ms:
                return
            armed[1].cancel()
        timer = self._loop.call_at(deadline_ms / 1000, self._go_off, group)
        self._timers[group.name] = (deadline_ms, timer)

    def cancel(self, name: str) -> None:
        if name in self._timers:
            self._timers.pop(name)[1].cancel()

    def close(self) -> None:
        for name in list(self._timers):
            self.cancel(name)

    def _go_off(self, group: CoordinatedGroup) -> None:
        del self._timers[group.name]
        self._on_due(group)
