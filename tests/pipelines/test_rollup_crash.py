"""The driver is killed with SIGKILL in the middle of batches; every row counts once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.conftest import NOON_MS, metric
from tests.spark.session import SETTINGS

from headrace.pipelines.registry import pipeline_named
from headrace.pipelines.rollup.job import RollupSettings
from headrace.pipelines.rollup.reading import reconcile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.conftest import Topic

ROWS = 200
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
        "compact_every": 2,
    }
    config = tmp_path / "rollup.toml"
    config.write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        + "[spark]\n"
        + "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in SETTINGS.items())
    )
    chance = random.Random(11)
    for _ in range(max(1, kills // 10)):
        _run_and_kill(config, tmp_path / "lake", commits=chance.randint(1, 4))
    chosen = RollupSettings.from_mapping(settings)
    said: list[str] = []
    assert pipeline_named("rollup").run(chosen, master=None, say=said.append) == 0
    found = reconcile(spark, chosen)
    assert found.adds_up, found
    assert (found.rows_in, found.rows_bad) == (ROWS, ROWS // 100)


def _run_and_kill(config: Path, lake: Path, *, commits: int) -> None:
    """One life: it is killed when so many commits to its tables were begun, which is
    in the middle of a batch; a batch has a handful."""
    command = [sys.executable, "-c", PROGRAM, "pipeline", "run", "rollup", "--config", str(config)]
    process = subprocess.Popen(
        [*command, "--master", "local[2]", "--once", "--set", "compact_every=2"],
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    enough = _commits(lake) + commits
    while process.poll() is None and _commits(lake) < enough:
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
    # The whole group: a JVM without its Python would go away by itself, later.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _commits(lake: Path) -> int:
    return len(list(lake.glob("*/_delta_log/*.json")))
