"""Spark's own processes, for tests: a master with workers, or a Connect server.

    master ─┬─ worker 1 ── executors
            └─ worker 2 ── executors

All of them come from the pip package, speak on the loopback and end with their test.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.spark.session import environment

START_SECONDS = 120
_EXECUTOR = b"CoarseGrainedExecutorBackend"
# What Spark's Python workers are called; the first of them forks the others.
_PYTHON_WORKER = b"pyspark.daemon"


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str | Path], log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of Spark, ended with everything that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=log.parent,
            env={**os.environ, **environment(), "SPARK_HOME": str(spark_home()), **more},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(START_SECONDS * 10):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"it does not listen: {log.read_text()[-2_000:]}")


class Cluster(NamedTuple):
    master: str
    folder: Path
    workers: list[subprocess.Popen[bytes]]

    def executors(self) -> list[int]:
        """The processes that tasks run in."""
        return [
            pid
            for worker in self.workers
            for pid in descendants(worker.pid)
            if _EXECUTOR in command_line(pid)
        ]

    def python_workers(self) -> list[int]:
        """The processes that run the Python of a task now or next."""
        return [
            pid
            for executor in self.executors()
            for daemon in children(executor)
            for pid in children(daemon)
            if _PYTHON_WORKER in command_line(pid)
        ]

    def has_used_every_worker(self) -> bool:
        """Whether an executor has run at each of them."""
        folders = [self.folder / f"worker-{number}" for number in range(len(self.workers))]
        return all(list(folder.glob("app-*/*")) for folder in folders)


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Cluster]:
    classes = spark_home() / "bin" / "spark-class"
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    command: list[str | Path] = [
        classes, "org.apache.spark.deploy.master.Master",
        "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()),
    ]  # fmt: skip
    with ExitStack() as stack:
        log = folder / "master.log"
        wait_until_listening(stack.enter_context(running(command, log)), port, log)
        started = []
        for number in range(workers):
            command = [
                classes, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
                "-c", "1", "-m", "1g", "-d", folder / f"worker-{number}",
                "--webui-port", str(free_port()), master,
            ]  # fmt: skip
            started.append(stack.enter_context(running(command, folder / f"worker-{number}.log")))
        yield Cluster(master, folder, started)


# What runs below a process. Whatever ends while we look is not there.


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    return [each for child in children(pid) for each in (child, *descendants(child))]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
