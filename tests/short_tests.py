"""Which tests are short: those that `make check` runs, and which start no process.

What makes a test slow is the node, the Java, the Spark or the Python that it starts. So in
the folders of SHORT a test that starts a program says so,

    @pytest.mark.process            of one test
    pytestmark = pytest.mark.process    of a module

and `make check` leaves it out. One that does not say so gets an error in place of the process.
A line for the shell is free: it starts in no time.

Rejected: folders for such tests. A few tests of many modules would move away from those that
they belong to, and nothing would keep the next one from being forgotten.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

SHORT = ("tests/test_tidy.py", "tests/unit/", "tests/property/")

_SHELL = "/bin/sh"
# The test that runs now and may not start a process.
_bound: str | None = None


@contextmanager
def no_process_in(item: pytest.Item) -> Iterator[None]:
    """While a short test runs, with its fixtures: starting a process raises."""
    global _bound
    before = _bound
    is_short = item.nodeid.startswith(SHORT) and item.get_closest_marker("process") is None
    _bound = item.nodeid if is_short else None
    try:
        yield
    finally:
        _bound = before


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and _bound is not None and arguments[0] != _SHELL:
        raise AssertionError(f"{_bound} starts a process: mark it with pytest.mark.process")


sys.addaudithook(_watch)
