"""A crew: an app's workers at work, on one event loop. Each has its station
(`station.py`).

Stopping is in three steps: nothing more is leased, and what waits is given back; what runs
may end within the grace; what still runs then is cancelled and its messages are given back
at no cost. A thread cannot be cancelled, so its message is given back and the thread left
alone.

Functions that hang past their timeout leave a thread behind that nobody can end. When
there are more of them than half of the app's slots for such functions, the crew stops and
`run` raises WorkersHung: only a new process helps, and `headrace work` starts one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from headrace.client.app import App
from headrace.client.asynchronous import AsyncHeadrace
from headrace.client.station import Counts, Station
from headrace.client.times import Duration, duration_ms
from headrace.core.errors import InvalidArgument, WorkersHung
from headrace.core.event_log import log_event
from headrace.core.wording import counted

GRACE_SECONDS = 30.0
REPORT_SECONDS = 10.0

logger = logging.getLogger("headrace.work")


class Crew:
    """The workers of an app, on a handle that outlives it."""

    def __init__(self, app: App, handle: AsyncHeadrace) -> None:
        if not app.workers:
            raise InvalidArgument("this app has no workers; declare one with @app.worker(topic)")
        self._app = app
        self._handle = handle
        self._stopping = asyncio.Event()
        self._stations = [Station(worker, app, self._on_hung) for worker in app.workers]
        self._hung: WorkersHung | None = None

    def stop(self) -> None:
        """Lease nothing more; `run` returns when what runs has ended."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def counts(self) -> dict[str, Counts]:
        return {station.worker.name: station.counts for station in self._stations}

    async def run(self, *, grace: Duration = GRACE_SECONDS) -> None:
        """Work until `stop`. An error that is no message's fault ends it, and WorkersHung
        does when too many functions hang."""
        grace_seconds = duration_ms("grace", grace) / 1000
        async with AsyncExitStack() as stack:
            if self._app.lifespan is not None:
                await stack.enter_async_context(self._app.lifespan(self._app))
            for station in self._stations:
                await station.open(self._handle, stack)
            reporting = asyncio.create_task(self._report())
            try:
                await self._work(grace_seconds)
            finally:
                reporting.cancel()
        self._say("stopped")

    async def _work(self, grace_seconds: float) -> None:
        self._say("working")
        feeding = [asyncio.create_task(station.feed()) for station in self._stations]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopping, *feeding], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            for task in feeding:
                task.cancel()
            ended = await asyncio.gather(*feeding, return_exceptions=True)
            await asyncio.gather(*(each.finish(grace_seconds) for each in self._stations))
        for error in ended:
            if isinstance(error, Exception):
                raise error
        if self._hung is not None:
            raise self._hung

    def _on_hung(self) -> None:
        slots = sum(each.worker.concurrency for each in self._stations if not each.worker.is_async)
        hung = sum(each.hung for each in self._stations)
        if 2 * hung > slots and self._hung is None:
            self._hung = WorkersHung(
                f"{counted(hung, 'function')} did not end when the timeout was over, more than "
                f"half of {counted(slots, 'slot')}; their threads end with the process"
            )
            log_event(logger, logging.ERROR, f"stopping: {self._hung}")
            self.stop()

    async def drain(self, skip_to: Callable[[int], None], messages_max: int) -> None:
        """For tests: one message after the other, and where none is ready time is
        skipped to the next that will be; returns when none ever will."""
        async with AsyncExitStack() as stack:
            if self._app.lifespan is not None:
                await stack.enter_async_context(self._app.lifespan(self._app))
            for station in self._stations:
                await station.open(self._handle, stack)
            handled = 0
            while True:
                worked = 0
                for station in self._stations:
                    worked += await station.work_off()
                handled += worked
                if handled > messages_max:
                    raise InvalidArgument(
                        f"there was still work after {counted(messages_max, 'message')}; a "
                        "worker may feed "
                        "itself, otherwise give a larger messages_max"
                    )
                if worked:
                    continue
                dues = [await station.next_due_ms() for station in self._stations]
                due_ms = min((due for due in dues if due is not None), default=None)
                if due_ms is None:
                    return
                skip_to(due_ms)

    async def _report(self) -> None:
        before = ""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            now = repr(self.counts)
            if now != before:
                before = now
                self._say("progress")

    def _say(self, event: str) -> None:
        for station in self._stations:
            worker = station.worker
            log_event(
                logger,
                logging.INFO,
                event,
                worker=worker.name,
                topics=",".join(worker.topics),
                group=worker.group,
                **vars(station.counts),
                running=station.running,
            )
