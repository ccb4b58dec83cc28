"""Two ways to run `headrace` on a directory of its own: in this process, which is
fast, and in another, where signals, pipes and locks are real.

In this process every test is run a second time on a node (`--server`) in place of a
directory: commands do the same on both. A module whose tests are about files says so
by `PLACES = ["directory"]`, and a single test by `@on_files`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.contract.loop_node import SETTINGS, LoopNode

import headrace
from headrace.cli.main import cli
from headrace.platform.clock import SystemClock
from headrace.platform.directory import claim
from headrace.platform.disk import RealDisk
from headrace.platform.entropy import SystemEntropy

END_SECONDS = 60
# For a test that has no counterpart on a node.
on_files = pytest.mark.parametrize("run", ["directory"], indirect=True)
PROGRAM = "from headrace.cli.main import main; main()"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "run" in metafunc.fixturenames and "run" not in chosen:
        places = getattr(metafunc.module, "PLACES", ["directory", "server"])
        metafunc.parametrize("run", places, indirect=True)


@pytest.fixture
def run(request: pytest.FixtureRequest, data: Path) -> Iterator[Callable[..., Result]]:
    """Runs a command here. A traceback, or another exit code, fails the test."""
    place = ["--data", str(data)]
    node: LoopNode | None = None
    if request.param == "server":
        disk, entropy = RealDisk(str(data)), SystemEntropy()
        claim(disk, entropy).release()
        # Like a directory, it makes no topics by itself.
        settings = replace(SETTINGS, auto_create_topics=False)
        node = LoopNode(disk, SystemClock(), settings=settings)
        place = ["--server", str(node.address)]

    def run_command(*words: str, code: int = 0, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, [*place, *words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    yield run_command
    if node is not None:
        node.close()


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


# All defaults: a lease lasts 30 seconds, and the second job waits for 20.
LONG_SHOP = """
import time
import headrace

app = headrace.App()

@app.worker("jobs", group="long")
def job(message: headrace.Message) -> None:
    print("begun", message.offset, message.attempt, flush=True)
    time.sleep(20)
    print("ended", message.offset, flush=True)
"""


@pytest.fixture(scope="session")
def long_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """Two functions of 20 seconds, for real. They run beside the other tests of
    this folder, and its last module looks at them."""
    folder = tmp_path_factory.mktemp("long")
    (folder / "long_shop.py").write_text(LONG_SHOP)
    with headrace.open(folder / "data") as handle:
        handle.create_topic("jobs", 1)
        handle.publish_many("jobs", [b"x"] * 2)
    words = ["--data", str(folder / "data"), "work", "long_shop:app"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield process
    process.terminate()
    process.communicate(timeout=END_SECONDS)
