"""One browser for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.browser.chromium import PROGRAM, Browser
from tests.doors.conftest import DoorsProcess, doors, http, name, topic

__all__ = ["DoorsProcess", "browser", "doors", "full", "http", "name", "topic"]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("chromium is not installed")
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorsProcess]:
    """A node whose dashboard may change things."""
    process = DoorsProcess(tmp_path_factory.mktemp("full") / "data", "--dashboard", "full")
    yield process
    assert process.stop() == 0
