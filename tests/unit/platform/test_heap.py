"""Freed memory goes back to the system when it is much, and is not looked for in vain."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from platform import libc_ver

import pytest

from headrace.core import limits
from headrace.platform import heap
from headrace.platform.heap import Heap, keep_small

MUCH = limits.SPARE_BYTES_MAX


class Process:
    """So much is held, of which so much is spare, also after it was given back."""

    def __init__(self) -> None:
        self.used, self.spare, self.returned = 10 * MUCH, 0, 0
        self.given = 0

    def make(self) -> Heap:
        return Heap(lambda: self.spare, lambda: self.used + self.spare - self.returned, self.give)

    def give(self) -> None:
        self.returned = self.spare
        self.given += 1


def test_what_is_spare_is_given_back_once() -> None:
    process = Process()
    found = process.make()
    assert not found.look()
    process.spare = MUCH - 1
    assert not found.look()
    process.spare = MUCH
    assert [found.look() for _ in range(3)] == [True, False, False]
    # Used again, and freed again.
    process.returned = 0
    assert [found.look() for _ in range(3)] == [True, False, False]
    assert process.given == 2


def test_more_that_is_in_use_is_none_that_can_be_given_back() -> None:
    process = Process()
    found = process.make()
    found.look()
    process.used *= 10
    assert not found.look()


def test_it_is_looked_at_for_as_long_as_the_process_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "LOOK_SECONDS", 0)
    process = Process()
    process.spare = MUCH

    async def play() -> None:
        task = asyncio.create_task(keep_small(process.make()))
        for process.returned in (0, 0, 0):
            wanted = process.given + 1
            while process.given < wanted:
                await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(play())
    assert process.given == 3


@pytest.mark.process
@pytest.mark.skipif(libc_ver()[0] != "glibc", reason="other libraries have their own ways")
def test_pieces_between_others_that_are_used_go_back_too() -> None:
    """In a process of its own: nobody else uses memory there."""
    script = """
from headrace.core import limits
from headrace.platform.heap import Heap, give_back, spare_bytes
from headrace.platform.process import held_bytes
found = Heap()
pieces = [bytes(20_000) for _ in range(10_000)]
full = held_bytes()
del pieces[1::2]
assert spare_bytes() >= limits.SPARE_BYTES_MAX, spare_bytes()
assert held_bytes() > full - 20_000_000, (full, held_bytes())
assert found.look()
assert held_bytes() < full - 60_000_000, (full, held_bytes())
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
