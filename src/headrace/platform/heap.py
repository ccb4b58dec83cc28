"""Memory that was freed and that the C library keeps: given back to the system now and then.

The library keeps it for the next who wants some. After a burst of large requests that may be
hundreds of megabytes in small pieces, which it does not give back by itself. Only where the
library is glibc; others (macOS, musl, Windows) go by their own ways, and nothing is done.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from headrace.core import limits
from headrace.platform.process import held_bytes

LOOK_SECONDS = 30.0


class _Figures(ctypes.Structure):
    """`struct mallinfo2` of malloc.h."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


def spare_bytes() -> int:
    """How much is kept that nobody uses; also that which was given back, until it is used."""
    found = _function("mallinfo2")
    if found is None:
        return 0
    found.restype = _Figures
    return int(found().fordblks)


def give_back() -> None:
    """It may take a tenth of a second, in which other threads wait for memory."""
    found = _function("malloc_trim")
    if found is not None:
        found(0)


class Heap:
    """Of this process, looked at again and again."""

    def __init__(
        self,
        spare: Callable[[], int] = spare_bytes,
        held: Callable[[], int | None] = held_bytes,
        give: Callable[[], None] = give_back,
    ) -> None:
        self._spare, self._held, self._give = spare, held, give
        # What the process held when there was nothing to be given back.
        self._least_bytes = 0

    def look(self) -> bool:
        """Give back what is worth it; whether that was so."""
        held = self._held() or 0
        self._least_bytes = min(self._least_bytes, held)
        worth = min(self._spare(), held - self._least_bytes)
        if worth < limits.SPARE_BYTES_MAX:
            return False
        self._give()
        self._least_bytes = self._held() or 0
        return True


async def keep_small(heap: Heap) -> None:
    """For as long as the process serves."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await loop.run_in_executor(None, heap.look)


@cache
def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):
        # Windows has no library of that name.
        return None
