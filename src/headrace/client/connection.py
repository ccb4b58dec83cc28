"""The way from every object of the SDK to what serves it, with its two guards.

A handle does not cross a fork: the child would share files, locks and offsets
with its parent, and both would write. And nothing is reached through a handle
that was closed. Both are checked on every call, which costs one `getpid`.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from headrace.client.backend import Backend, Returning
from headrace.client.keeping import LeaseKeeper
from headrace.core.errors import Closed, Forked


class Closable(Protocol):
    def close(self) -> None: ...


class Connection:
    def __init__(self, backend: Backend, place: str) -> None:
        self._backend = backend
        self._place = place
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()
        # Queues and streams hold leases and memberships that a closing handle
        # gives back. Those that nobody holds any more are not kept alive.
        self._opened: weakref.WeakSet[Closable] = weakref.WeakSet()
        # Of the queues: it has a thread as soon as it has something to do.
        self.keeper = LeaseKeeper(backend.clock)
        if isinstance(backend, Returning):
            backend.on_returned = self.keeper.hurry

    def reach(self) -> Backend:
        """What serves us, or Forked or Closed."""
        if os.getpid() != self._pid:
            raise Forked(
                f"this handle on {self._place} was opened before the process forked; "
                "open another one in the child"
            )
        if self._closed:
            raise Closed(f"this handle on {self._place} is closed; open it again")
        return self._backend

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def on_opened(self, opened: Closable) -> None:
        with self._lock:
            self._opened.add(opened)

    def on_closed(self, opened: Closable) -> None:
        with self._lock:
            self._opened.discard(opened)

    def opened(self) -> list[Closable]:
        with self._lock:
            return list(self._opened)

    def close(self) -> None:
        """Closes what was opened through here first, all of it, and raises the
        first error at the end. In a forked child it does nothing: everything
        belongs to the parent."""
        if self.is_forked or self._closed:
            return
        first: BaseException | None = None
        for each in self.opened():
            try:
                each.close()
            except BaseException as error:
                first = error if first is None else first
        self.keeper.close()
        # Whatever the disk says to giving leases back: the directory is free.
        self._closed = True
        try:
            self._backend.close()
        except BaseException as error:
            first = error if first is None else first
        if first is not None:
            raise first
