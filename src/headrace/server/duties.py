"""Duties that live: what time asks of the node, driven by a timer and by maintenance.

    a timer at the next deadline ──> what is open for too long is aborted
    after each maintenance round ──> what nobody has used for long is forgotten

Whichever doors are open: see `engine.duties`. A table that is told of a new deadline
has the timer set; nobody who begins a transaction has to think of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError
from headrace.core.event_log import log_event

if TYPE_CHECKING:
    from headrace.server.service import Service

# An end that the disk would not take is tried again after this long.
RETRY_MS = 1_000


class LiveDuties:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._duties = service.broker.duties
        self._timer: tuple[int, asyncio.TimerHandle] | None = None
        self._is_closed = False
        service.broker.transactions.on_deadline = self.arm
        self._arm_next()

    def arm(self, deadline_ms: int) -> None:
        """Look again no later than then."""
        if self._is_closed:
            return
        if self._timer is not None:
            if self._timer[0] <= deadline_ms:
                return
            self._timer[1].cancel()
        seconds = max(deadline_ms - self._service.clock.now_ms(), 1) / 1000
        self._timer = deadline_ms, self._service.loop.call_later(seconds, self._on_timer)

    def on_clock_set(self, by_ms: int) -> None:
        """The timer goes by the loop's own clock, which nobody sets."""
        if self._timer is not None:
            self._timer = self._timer[0] + by_ms, self._timer[1]

    def retry_soon(self) -> None:
        self.arm(self._service.clock.now_ms() + RETRY_MS)

    def _arm_next(self) -> None:
        deadline_ms = self._duties.next_deadline_ms()
        if deadline_ms is not None:
            self.arm(deadline_ms)

    def _on_timer(self) -> None:
        self._timer = None
        self._end_late()
        self._arm_next()

    def _end_late(self) -> None:
        service = self._service
        commit = service.commit()
        try:
            for name in self._duties.end_late(service.clock.now_ms(), commit):
                log_event(
                    service.logger, logging.WARNING, "transaction timed out", transactional_id=name
                )
        except (HeadraceError, OSError):
            # What was decided goes on; the rest is decided when there is room.
            service.logger.exception("a transaction cannot be ended")
            self.retry_soon()
        if any(ending.is_blocked for ending in service.broker.transactions.pending()):
            self.retry_soon()
        service.finish_later(commit)

    def see_to_all(self) -> None:
        """Whatever is due now."""
        service = self._service
        self._end_late()
        commit = service.commit()
        try:
            self._duties.forget(service.clock.now_ms(), commit, service.groups_at_doors())
        except (HeadraceError, OSError):
            # Nothing depends on it being done now; the next time it may work.
            service.logger.exception("housekeeping failed")
        service.finish_later(commit)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer[1].cancel()
