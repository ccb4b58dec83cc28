"""The pytest plugin: handles as fixtures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import headrace
from headrace.testing import ManualClock


def test_the_memory_handle_runs_on_the_manual_clock(
    headrace_memory: headrace.Headrace, headrace_clock: ManualClock
) -> None:
    headrace_memory.publish("orders", b"x", delay=3600)
    begun_ms = headrace_clock.now_ms()
    with headrace_memory.queue("orders") as queue:
        assert [message.value for message in queue.receive()] == [b"x"]
    assert headrace_clock.now_ms() - begun_ms == 3_600_000


def test_the_async_handle_works_with_any_runner(
    headrace_memory_async: headrace.AsyncHeadrace,
) -> None:
    async def use() -> int:
        await headrace_memory_async.publish("orders", b"x")
        return await headrace_memory_async.depth("orders")

    assert asyncio.run(use()) == 1


def test_the_directory_handle_writes_under_the_tests_own_path(
    headrace_directory: headrace.Headrace, tmp_path: Path
) -> None:
    headrace_directory.publish("orders", b"x")
    assert headrace_directory.depth("orders") == 1
    assert any((tmp_path / "headrace").iterdir())


@pytest.mark.process
def test_the_plugin_imports_nothing_of_the_product() -> None:
    program = (
        "import sys, headrace.testing.plugin\n"
        "print([name for name in sys.modules if name.startswith('headrace')])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "['headrace', 'headrace.testing', 'headrace.testing.plugin']"
