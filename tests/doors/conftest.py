"""A real node with its HTTP door open, and clients that know nothing of us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.doors.metrics_workload import World

_START = "from headrace.cli.main import main; main()"


class DoorsProcess:
    """One node, and where its doors are."""

    def __init__(self, data: Path, *flags: str, logs: IO[str] | None = None) -> None:
        """`logs` is where its stderr goes, if not to ours."""
        self.data = data
        self.process = subprocess.Popen(
            [
                sys.executable, "-c", _START, "serve", "--data", str(data),
                "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                "--log-level", "warning", *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=logs,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready: "), ready
        self.ready = ready.rstrip()
        self.doors = dict(
            part.split(" on ") for part in ready.removeprefix("ready: ").split(", ")[:-1]
        )

    @property
    def http(self) -> str:
        return f"http://{self.doors['http']}"

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorsProcess]:
    """One for all tests, which keep to topics and groups of their own."""
    process = DoorsProcess(tmp_path_factory.mktemp("doors") / "data")
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node behind a known workload, and what it says of it. One worker has all tests
    of it; see tests/scheduling.py."""
    from tests.doors.metrics_workload import World, carry_out, open_socket

    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_METRICS_CACHE_MS", "0")
        patch.setenv("HEADRACE_METRICS_PARTITIONS", "true")
        doors = DoorsProcess(tmp_path_factory.mktemp("metrics") / "data")
        stack.callback(doors.stop)
        world = World(doors, stack)
        carry_out(world)
        with open_socket(world):
            world.scrape()
            yield world


@pytest.fixture
def http(doors: DoorsProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=doors.http, timeout=60) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(http: httpx.Client, name: str) -> str:
    done(http.post("/topics", json={"name": name, "partitions": 1}), 201)
    return name


def done(answer: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that has to have this status."""
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """What a problem says to do; its other fields are checked here."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == code, problem
    assert problem["status"] == status
    assert problem["type"] == f"urn:headrace:error:{code}"
    assert problem["request_id"] == answer.headers["x-request-id"]
    detail: str = problem["detail"]
    return detail
