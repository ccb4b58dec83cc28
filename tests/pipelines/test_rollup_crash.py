"""The driver is killed with SIGKILL in the middle of batches; every row counts once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import NOON_MS, metric

from headrace.pipelines.registry import pipeline_named
from headrace.pipelines.rollup.job import RollupSettings
from headrace.pipelines.rollup.reading import reconcile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topic

ROWS = 400
PER_BATCH = 100
PROGRAM = "from headrace.cli.main import main; main()"


@pytest.mark.timeout(0)
def test_a_rollup_whose_driver_is_killed_counts_every_row_once(
    spark: SparkSession, topic: Topic, tmp_path: Path, kills: int
) -> None:
    values = [metric("cpu", NOON_MS + n * 10_000, float(n)) for n in range(ROWS)]
    # Every 50th comes half an hour late, every 100th is no metric.
    values[49::50] = [metric("cpu", NOON_MS - 1_800_000, 1.0)] * len(values[49::50])
    values[99::100] = [b"broken"] * len(values[99::100])
    topic.publish(values)
    settings = {
        "pipeline": "rollup",
        "servers": topic.node.bootstrap,
        "topic": topic.name,
        "lake": str(tmp_path / "lake"),
        "trigger": "once",
        "rows_per_batch_max": PER_BATCH,
        "watermark": "1m",
        "compact_every": 3,
    }
    config = tmp_path / "rollup.toml"
    config.write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    )
    chance = random.Random(11)
    for _ in range(max(1, kills // 10)):
        _run_and_kill(config, after_batches=chance.randrange(2))
    chosen = RollupSettings.from_mapping(settings)
    said: list[str] = []
    assert pipeline_named("rollup").run(chosen, master=None, say=said.append) == 0
    found = reconcile(spark, chosen)
    assert found.adds_up, found
    assert (found.rows_in, found.rows_bad) == (ROWS, ROWS // 100)


def _run_and_kill(config: Path, *, after_batches: int) -> None:
    """One life: it is killed when it has begun the batch after so many."""
    command = [sys.executable, "-c", PROGRAM, "pipeline", "run", "rollup", "--config", str(config)]
    process = subprocess.Popen(
        [*command, "--master", "local[2]"], stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stderr is not None
    seen = 0
    for line in process.stderr:
        if line.startswith("batch "):
            seen += 1
        if seen > after_batches:
            break
    # The whole group: a JVM without its Python would go away by itself, later.
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
