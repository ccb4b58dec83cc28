"""The project that `headrace pipeline init` begins runs as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topic

SCRIPTS = Path(sys.executable).parent


@pytest.mark.timeout(600)
def test_a_project_of_declarative_pipelines_reads_a_topic(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.publish([b"%d" % number for number in range(30)])
    folder = tmp_path / "shop"
    command = ["pipeline", "init", str(folder), "--topic", topic.name]
    result = CliRunner().invoke(cli, [*command, "--server", topic.node.bootstrap])
    assert result.exit_code == 0, result.output
    run = subprocess.run(
        [str(SCRIPTS / "spark-pipelines"), "run"],
        cwd=folder,
        env=os.environ | {"PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    # Where Spark's own catalog keeps tables of the project.
    warehouse = folder / "spark-warehouse"
    assert spark.read.parquet(str(warehouse / "events")).count() == 30
    [row] = spark.read.parquet(str(warehouse / "by_key")).collect()
    assert (row.key, row.records) == (None, 30)
