"""The benchmark of the Kafka door builds its generator and measures a real node, at
sizes that say nothing about speed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parent.parent.parent

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="the load generator needs a C compiler"
)


def run(place: Path, *arguments: str, **environment: str) -> Any:
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.kafka", "--quick", "--no-kafka",
            "--output", str(place), *arguments,
        ],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((place / "kafka.json").read_text())


@needs_compiler
def test_a_node_is_measured_from_plain_sockets(tmp_path: Path) -> None:
    document = run(tmp_path, "--rows", "batches", "requests")
    assert [row["row"] for row in document["rows"]] == ["batches", "requests"]
    for row in document["rows"]:
        assert not row["failure"] and row["lines"], row
        for line in row["lines"]:
            assert all(value > 0 for value in line["ours"]) and line["ours"], line
            # Kafka was not asked for, and tiny sizes have no targets.
            assert line["peer"] == [] and line["target"] is None
    assert document["machine"]["peer"] == "not run: not asked for"
    left = {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    assert left == {"kafka.json", "kafka.md", "load"}


@needs_compiler
def test_a_node_of_another_checkout_is_measured_beside_ours(tmp_path: Path) -> None:
    document = run(tmp_path, "--rows", "batches", "--before", str(PROJECT))
    (row,) = document["rows"]
    assert not row["failure"], row
    for line in row["lines"]:
        assert len(line["peer"]) == len(line["ours"]) == 1 and line["peer"][0] > 0, line
    assert document["machine"]["peer"].startswith(f"a node of {PROJECT}, commit ")


@needs_compiler
def test_transactions_are_measured_beside_plain_writes_and_reads(tmp_path: Path) -> None:
    (row,) = run(tmp_path, "--rows", "transactions")["rows"]
    assert not row["failure"], row
    units = [line["unit"] for line in row["lines"]]
    assert units == ["transactions/s", "CPU-ms/transaction"] * 2 + ["x"] * 4
    assert all(value > 0 for line in row["lines"] for value in line["ours"]), row


def test_rows_say_that_they_were_not_run_without_a_compiler(tmp_path: Path) -> None:
    document = run(tmp_path, "--rows", "batches", PATH=str(tmp_path))
    (row,) = document["rows"]
    assert row["lines"] == []
    assert row["failure"] == "not run: no C compiler (cc) was found"
