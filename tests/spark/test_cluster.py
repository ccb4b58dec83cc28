"""More than one process: a standalone cluster, and Spark Connect."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.interop.conftest import NodeProcess
from tests.spark.conftest import Topic
from tests.spark.session import SETTINGS, environment
from tests.spark.test_batch_read import numbers
from tests.spark.test_write import values

PROJECT = Path(__file__).parent.parent.parent
START_SECONDS = 120
RUN_SECONDS = 280

# As heavy as a session of its own each; they do not run beside it.
pytestmark = pytest.mark.xdist_group("spark")

READING = """
import sys
from pyspark.sql import SparkSession

remote, servers, topic = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
frame = spark.read.format("headrace").options(servers=servers, subscribe=topic).load()
print(frame.filter("offset >= 10").count(), sum(len(row.value) for row in frame.collect()))
spark.stop()
"""


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


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """The address of a master with so many workers."""
    classes = spark_home() / "bin" / "spark-class"
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    command: list[str | Path] = [
        classes, "org.apache.spark.deploy.master.Master",
        "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()),
    ]  # fmt: skip
    with running(command, folder / "master.log") as process:
        wait_until_listening(process, port, folder / "master.log")
        with _workers(folder, classes, master, workers):
            yield master


@contextmanager
def _workers(folder: Path, classes: Path, master: str, count: int) -> Iterator[None]:
    if not count:
        yield
        return
    command: list[str | Path] = [
        classes, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
        "-c", "1", "-m", "1g", "-d", folder / f"worker-{count}", "--webui-port", str(free_port()),
        master,
    ]  # fmt: skip
    with (
        running(command, folder / f"worker-{count}.log"),
        _workers(folder, classes, master, count - 1),
    ):
        yield


def test_a_cluster_copies_a_topic_exactly_once(node: NodeProcess, tmp_path: Path) -> None:
    source, target = Topic(node, "cluster-source"), Topic(node, "cluster-target")
    source.create(2)
    target.create(3)
    source.publish(numbers(0, 4_000))
    with cluster(tmp_path, 2) as master:
        subprocess.run(
            [
                sys.executable, "-m", "tests.spark.copying", node.bootstrap, source.name,
                target.name, str(tmp_path / "checkpoint"), "2000", master,
            ],
            cwd=PROJECT,
            env={**os.environ, **environment()},
            check=True,
            capture_output=True,
            timeout=RUN_SECONDS,
        )  # fmt: skip
    assert values(target.consume(4_000)) == numbers(0, 4_000)
    # An executor has run at each of the workers.
    assert all(list((tmp_path / f"worker-{number}").glob("app-*/*")) for number in (1, 2))


def test_a_batch_is_read_through_spark_connect(node: NodeProcess, tmp_path: Path) -> None:
    topic = Topic(node, "connect-source")
    topic.create(1)
    topic.publish(numbers(0, 100))
    port = free_port()
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(tmp_path),
    }
    command: list[str | Path] = [
        spark_home() / "sbin" / "start-connect-server.sh", "--master", "local[2]",
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
    ]  # fmt: skip
    log = tmp_path / "connect.log"
    with running(command, log, SPARK_NO_DAEMONIZE="1", SPARK_LOG_DIR=str(tmp_path)) as process:
        wait_until_listening(process, port, log)
        done = subprocess.run(
            [
                sys.executable, "-c", READING, f"sc://127.0.0.1:{port}", node.bootstrap, topic.name,
            ],
            env={**os.environ, **environment()},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )  # fmt: skip
    assert done.stdout.split() == ["90", "600"], done.stderr[-2_000:]
