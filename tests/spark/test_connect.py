"""Through Spark Connect: a batch read, and the project that `headrace pipeline init`
begins, which Spark's own pipelines run by Connect too."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.spark.conftest import Topic
from tests.spark.daemons import free_port, running, spark_home, wait_until_listening
from tests.spark.session import SETTINGS, environment
from tests.spark.test_batch_read import numbers

from headrace.cli.main import cli

RUN_SECONDS = 600

# As heavy as a session of its own; it does not run beside it.
pytestmark = pytest.mark.timeout(900)

READING = """
import sys
from pyspark.sql import SparkSession

remote, servers, topic = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
frame = spark.read.format("headrace").options(servers=servers, subscribe=topic).load()
print(frame.filter("offset >= 10").count(), sum(len(row.value) for row in frame.collect()))
spark.stop()
"""


class Server(NamedTuple):
    remote: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("connect")
    port = free_port()
    settings = {
        **SETTINGS,
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command: list[str | Path] = [
        spark_home() / "sbin" / "start-connect-server.sh", "--master", "local[2]",
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
    ]  # fmt: skip
    log = folder / "connect.log"
    with running(command, log, SPARK_NO_DAEMONIZE="1", SPARK_LOG_DIR=str(folder)) as process:
        wait_until_listening(process, port, log)
        yield Server(f"sc://127.0.0.1:{port}")


def run(command: list[str | Path], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment(), "SPARK_HOME": str(spark_home())},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_a_batch_is_read_through_spark_connect(
    server: Server, topic: Topic, tmp_path: Path
) -> None:
    topic.publish(numbers(0, 100), partition=0)
    command: list[str | Path] = [sys.executable, "-c", READING]
    found = run([*command, server.remote, topic.node.bootstrap, topic.name], tmp_path)
    assert found.split() == ["90", "600"]


def test_a_project_of_declarative_pipelines_reads_what_has_come_since_its_last_run(
    topic: Topic, tmp_path: Path
) -> None:
    topic.publish(numbers(0, 30))
    project = tmp_path / "shop"
    command = ["pipeline", "init", str(project), "--topic", topic.name]
    result = CliRunner().invoke(cli, [*command, "--server", topic.node.bootstrap])
    assert result.exit_code == 0, result.output
    # As its README says: each run is a Spark of its own, which ends with it.
    command = [str(spark_home() / "bin" / "spark-pipelines"), "--properties-file", "spark.conf"]
    for rows in (30, 37):
        run([*command, "run"], project)
        assert pq.read_table(project / "tables" / "events").num_rows == rows
        by_key = pq.read_table(project / "tables" / "by_key").select(["key", "records"])
        assert by_key.to_pylist() == [{"key": None, "records": rows}]
        topic.publish(numbers(30, 37))
