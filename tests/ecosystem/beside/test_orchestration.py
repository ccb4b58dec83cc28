"""The examples for Airflow and Dagster, each run by the scheduler it was written for: a run
archives what came, and a run whose audit finds a record missing fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from tests.ecosystem.environments import NoEnvironment, python_of
from tests.ecosystem.tools import BROKERS

PROJECT = Path(__file__).parent.parent.parent.parent
EXAMPLES = PROJECT / "examples" / "orchestration"
HEADRACE = Path(sys.executable).with_name("headrace")

# How one run of each is asked for, as its guide has it for trying things out.
RUNS = {
    "airflow": ("-m", "airflow", "dags", "test", "orders_to_lake"),
    "dagster": (
        "-m", "dagster", "asset", "materialize", "--select", "orders", "-f", "dagster_assets.py",
    ),
}  # fmt: skip


class Scheduler:
    def __init__(self, name: str, servers: str, folder: Path) -> None:
        try:
            self._python = python_of(name)
        except NoEnvironment as error:
            pytest.skip(str(error))
        self._words = RUNS[name]
        self.lake = folder / "lake"
        for pipeline in ("archive", "audit"):
            text = (EXAMPLES.parent / "pipelines" / f"{pipeline}.toml").read_text()
            for before, after in (
                ("127.0.0.1:9092", servers),
                ("lake/orders", str(self.lake)),
                ("audit.html", str(folder / "audit.html")),
            ):
                text = text.replace(before, after)
            (folder / f"{pipeline}.toml").write_text(text + '\nmaster = "local[2]"\n')
        home = folder / "home"
        home.mkdir()
        self._environment = {
            "PATH": f"{Path(self._python).parent}:/usr/bin:/bin",
            "HOME": str(home),
            "HEADRACE": str(HEADRACE),
            "PIPELINES": str(folder),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }
        if name == "airflow":
            self._call("-m", "airflow", "db", "migrate").check_returncode()

    def run(self) -> subprocess.CompletedProcess[str]:
        return self._call(*self._words)

    def rows(self) -> int:
        table: Any = DeltaTable(str(self.lake / "raw")).to_pyarrow_table(columns=["offset"])
        return int(table.num_rows)

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._python, *words], cwd=EXAMPLES, env=self._environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip


def publish(servers: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in numbers:
        order = {"id": number, "customer": f"customer {number % 7}", "total": number / 4}
        producer.produce("orders", json.dumps(order))
    assert producer.flush(60) == 0


@pytest.mark.parametrize("name", RUNS)
def test_a_scheduler_archives_and_notices_what_is_missing(name: str, tmp_path: Path) -> None:
    node = BROKERS["headrace"](tmp_path / "broker")
    node.start()
    try:
        node.make_topics(node.admin(), {"orders": 2}, {})
        scheduler = Scheduler(name, node.bootstrap, tmp_path)
        for numbers in (range(100), range(100, 150)):
            publish(node.bootstrap, numbers)
            done = scheduler.run()
            assert done.returncode == 0, done.stdout
            assert scheduler.rows() == numbers.stop
        DeltaTable(str(scheduler.lake / "raw")).delete("offset = 3")
        done = scheduler.run()
        assert done.returncode != 0 and "148 rows arrived, 2 missing" in done.stdout, done.stdout
    finally:
        node.stop()
