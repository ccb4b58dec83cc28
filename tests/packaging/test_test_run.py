"""The rules of tests/conftest.py, seen from outside: runs of small test files.

Each case is a pytest of its own in an empty folder that holds a copy of our
conftest, because a rule about a whole run cannot be seen from within it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent.parent / "conftest.py"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_pytest(
        body: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "tests"
        folder.mkdir()
        (folder / "conftest.py").write_text(CONFTEST.read_text())
        (folder / "test_case.py").write_text(body)
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("HEADRACE_", "PYTEST_"))}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, folder],
            cwd=tmp_path,
            env=ours | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run_pytest


SKIPPING = """
import pytest

def test_one():
    pytest.skip("the moon is not full")

def test_two():
    pass
"""

SKIPPING_MODULE = """
import pytest

pytest.importorskip("a_module_that_nobody_has")

def test_one():
    pass
"""


def test_skips_are_listed_with_their_reason_at_the_end(run: Run) -> None:
    result = run(SKIPPING)
    assert result.returncode == 0, result.stdout
    assert "the moon is not full" in result.stdout
    assert "skipped: 1" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "workers"])
def test_a_skip_fails_the_run_where_skips_are_forbidden(
    run: Run, arguments: tuple[str, ...]
) -> None:
    result = run(SKIPPING, *arguments, HEADRACE_NO_SKIPS="1")
    assert result.returncode == 1, result.stdout
    assert "the moon is not full" in result.stdout


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "workers"])
def test_a_skipped_module_fails_the_run_where_skips_are_forbidden(
    run: Run, arguments: tuple[str, ...]
) -> None:
    result = run(SKIPPING_MODULE, *arguments, HEADRACE_NO_SKIPS="1")
    assert result.returncode == 1, result.stdout
    assert "a_module_that_nobody_has" in result.stdout


def test_a_run_without_skips_passes_where_skips_are_forbidden(run: Run) -> None:
    result = run("def test_one():\n    pass\n", HEADRACE_NO_SKIPS="1")
    assert result.returncode == 0, result.stdout


def test_a_test_that_leaves_a_process_running_is_failed(run: Run) -> None:
    result = run(
        """
import subprocess, sys

kept = []

def test_one():
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))

def test_two():
    kept.pop().communicate(b"", 30)
"""
    )
    assert result.returncode == 1, result.stdout
    assert "the test left running: process" in result.stdout
    assert "2 passed, 1 error" in result.stdout


def test_a_test_that_leaves_a_thread_running_is_failed(run: Run) -> None:
    result = run(
        """
import threading

end = threading.Event()

def test_one():
    threading.Thread(target=end.wait, name="forgotten").start()

def test_two():
    end.set()
"""
    )
    assert result.returncode == 1, result.stdout
    assert "the test left running: thread 'forgotten'" in result.stdout


def test_what_has_ended_or_is_a_daemon_is_not_a_leftover(run: Run) -> None:
    result = run(
        """
import subprocess, sys, threading
from hypothesis import given, strategies

end = threading.Event()

def test_one():
    subprocess.Popen([sys.executable, "-c", "pass"]).wait(30)
    threading.Thread(target=end.wait, daemon=True).start()

@given(strategies.integers())
def test_two(number):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""
    )
    assert result.returncode == 0, result.stdout


def test_the_plugin_is_found_without_any_set_up(run: Run) -> None:
    result = run("", "--fixtures")
    assert "headrace_memory" in result.stdout


def test_a_long_run_tries_more_examples(run: Run) -> None:
    body = """
from hypothesis import given, settings, strategies

def test_one():
    print("examples:", settings.default.max_examples)
"""
    result = run(body, "-s", HEADRACE_LONG="1")
    assert "examples: 2000" in result.stdout
