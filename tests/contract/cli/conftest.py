"""Two ways to run `headrace` on a directory of its own: in this process, which is
fast, and in another, where signals, pipes and locks are real.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli

END_SECONDS = 60
PROGRAM = "from headrace.cli.main import main; main()"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def run(data: Path) -> Callable[..., Result]:
    """Runs a command here. A traceback, or another exit code, fails the test."""

    def run_command(*words: str, code: int = 0, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, ["--data", str(data), *words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    return run_command


@pytest.fixture
def start(data: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a command in a process of its own, with pipes to it."""
    started: list[subprocess.Popen[bytes]] = []

    def start_command(*words: str, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--data", str(data), *words],
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        started.append(process)
        return process

    yield start_command
    for process in started:
        # Not killed: it would leave behind what it runs.
        process.terminate()
        process.communicate(timeout=END_SECONDS)
