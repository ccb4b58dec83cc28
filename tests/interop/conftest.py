"""A real node as a process of its own, for clients that know nothing of us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.wire_client import TOPIC, WireClient, make, publish

_START = "from headrace.cli.main import main; main()"


class NodeProcess:
    """One node and its directory, which outlives it: `restart` opens it again, on
    the same port, so that clients find it where it was."""

    def __init__(self, data: Path, *flags: str, open_files: int | None = None) -> None:
        """`open_files` is what the system is told to allow it at most."""
        self.data = data
        self._flags = flags
        self._shell: tuple[str, ...] = ()
        if open_files is not None:
            self._shell = ("sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh")
        self.bootstrap = "127.0.0.1:0"
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [
                *self._shell, sys.executable, "-c", _START, "serve", "--data", str(self.data),
                "--kafka", self.bootstrap, "--http", "", "--grpc", "",
                "--log-level", "warning", *self._flags,
            ],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        if not ready.startswith("ready: kafka on "):
            self.kill()
            raise AssertionError(f"the node did not start: {ready!r}")
        self.bootstrap = ready.removeprefix("ready: kafka on ").split(",")[0]

    def stop(self) -> None:
        """As an operator stops it: what is under way is finished."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            self.stop()
        self._start()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path / "data")
    yield process
    process.stop()


@pytest.fixture(scope="module")
def admin_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One for all tests of a module, which keep to topics of their own; two
    partitions to a topic, and a topic with records in the first of them."""
    process = NodeProcess(tmp_path_factory.mktemp("admin") / "data", "--partitions", "2")
    try:
        with WireClient(process.bootstrap) as connected:
            make(connected, TOPIC)
            publish(connected, TOPIC)
        yield process
    finally:
        process.stop()


@pytest.fixture
def client(admin_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(admin_node.bootstrap) as connected:
        yield connected
