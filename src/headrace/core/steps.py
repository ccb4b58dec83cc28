"""Work in steps, gone through at once: a generator that yields where others may have
their turn, where nobody else waits for one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
# Yields where others may have their turn, and returns what it made. Most often it yields None;
# otherwise a commit (engine/commit.py), of which more should not be begun before it is safe.
Steps = Generator[Any, None, T]


def run_to_end(steps: Steps[T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
