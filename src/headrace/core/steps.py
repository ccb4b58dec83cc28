"""Work in steps, gone through at once: a generator that yields where others may have
their turn, where nobody else waits for one."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
# Yields where others may have their turn, and returns what it made.
Steps = Generator[None, None, T]


def run_to_end(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
