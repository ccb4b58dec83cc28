"""What users' tests need: memory instead of a disk, and a clock that they move.

    from headrace import testing

    with testing.open() as handle:      in memory, on a manual clock
        ...

Names are imported when they are first used: pytest loads this package in every
run, also where nobody uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.platform.memory_disk import MemoryDisk
    from headrace.testing.drain import drain, drain_async
    from headrace.testing.fault_disk import FaultDisk
    from headrace.testing.handles import open_async_in_memory as open_async
    from headrace.testing.handles import open_in_memory as open
    from headrace.testing.manual_clock import ManualClock

__all__ = ["open", "open_async", "drain", "drain_async", "ManualClock", "MemoryDisk", "FaultDisk"]

_HOMES = {
    "open": ("headrace.testing.handles", "open_in_memory"),
    "open_async": ("headrace.testing.handles", "open_async_in_memory"),
    "drain": ("headrace.testing.drain", "drain"),
    "drain_async": ("headrace.testing.drain", "drain_async"),
    "ManualClock": ("headrace.testing.manual_clock", "ManualClock"),
    "MemoryDisk": ("headrace.platform.memory_disk", "MemoryDisk"),
    "FaultDisk": ("headrace.testing.fault_disk", "FaultDisk"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace.testing' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
