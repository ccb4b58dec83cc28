"""Handles for tests: the real node on a disk and a clock of the test's choice."""

from __future__ import annotations

import os

from headrace.client.asynchronous import AsyncHeadrace
from headrace.client.handle import Headrace
from headrace.core.ports import Clock, Disk
from headrace.node import Node
from headrace.testing.manual_clock import ManualClock

MEMORY = ":memory:"


def open_in_memory(
    clock: Clock | None = None,
    *,
    path: str | os.PathLike[str] = MEMORY,
    disk: Disk | None = None,
    read_only: bool = False,
    auto_create: bool = False,
) -> Headrace:
    """A handle in memory, on a manual clock unless another one is given.

    Opened twice on one `disk`, the second handle finds what the first left there
    when it closed. A `path` puts it on the real disk.
    """
    place = os.fspath(path)
    node = Node.open(
        place,
        read_only=read_only,
        auto_create=auto_create,
        disk=disk,
        clock=ManualClock() if clock is None else clock,
    )
    return Headrace(node, place)


def open_async_in_memory(
    clock: Clock | None = None,
    *,
    path: str | os.PathLike[str] = MEMORY,
    disk: Disk | None = None,
    read_only: bool = False,
    auto_create: bool = False,
) -> AsyncHeadrace:
    """As `open_in_memory`, for asyncio. Open at once, so that it can be made
    before there is an event loop; use it by `async with` or `close_now()` it."""
    return AsyncHeadrace(
        open_in_memory(clock, path=path, disk=disk, read_only=read_only, auto_create=auto_create)
    )
