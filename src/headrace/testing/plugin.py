"""The pytest plugin: handles as fixtures, found by pytest without any set-up.

    headrace_clock            a ManualClock
    headrace_memory           a handle in memory on that clock
    headrace_memory_async     the same for asyncio, with any runner of async tests
    headrace_directory        a handle on tmp_path, on the real clock
    headrace_topics           topics for Spark, on a node that is started once a session

Handles make a topic when it is first used. Importing this module imports nothing
of the product: pytest does that in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.client.asynchronous import AsyncHeadrace
    from headrace.client.handle import Headrace
    from headrace.testing.manual_clock import ManualClock
    from headrace.testing.spark_topics import SparkTopics


@pytest.fixture
def headrace_clock() -> ManualClock:
    """A clock that moves by skip(), and by itself where a wait would block."""
    from headrace.testing.manual_clock import ManualClock

    return ManualClock()


@pytest.fixture
def headrace_memory(headrace_clock: ManualClock) -> Iterator[Headrace]:
    """A handle in memory, on headrace_clock."""
    from headrace.testing.handles import open_in_memory

    with open_in_memory(headrace_clock, auto_create=True) as handle:
        yield handle


@pytest.fixture
def headrace_memory_async(headrace_clock: ManualClock) -> Iterator[AsyncHeadrace]:
    """A handle for asyncio in memory, on headrace_clock."""
    from headrace.testing.handles import open_async_in_memory

    handle = open_async_in_memory(headrace_clock, auto_create=True)
    yield handle
    handle.close_now()


@pytest.fixture
def headrace_directory(tmp_path: Path) -> Iterator[Headrace]:
    """A handle on a directory under tmp_path, on the real clock."""
    from headrace.client.handle import open_handle

    with open_handle(tmp_path / "headrace", auto_create=True) as handle:
        yield handle


@pytest.fixture(scope="session")
def headrace_topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTopics]:
    """Makes topics that Spark reads and writes: `headrace_topics("orders")`."""
    from headrace.testing.spark_topics import SparkTopics

    topics = SparkTopics(tmp_path_factory.mktemp("headrace-node"))
    yield topics
    topics.close()
