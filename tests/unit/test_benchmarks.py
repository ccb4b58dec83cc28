"""The benchmarks run, each row of them, at sizes that say nothing about speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROJECT = Path(__file__).parent.parent.parent
PEERS = ("huey", "litequeue", "persistqueue")

THROUGHPUT = {"headrace", "persist-queue", "litequeue", "huey", "sqlite by hand"}
SYSTEMS = {
    "fdatasync": {"this disk"},
    "publish-one": THROUGHPUT,
    "publish-many": THROUGHPUT,
    "work-many": THROUGHPUT,
    "work-one": THROUGHPUT,
    "tracing": {"tracing off", "tracing default", "tracing everything"},
    "priorities": {"one priority", "five in turn", "1 in 20 critical"},
    "compressing": {"as it came", "gzip", "snappy", "lz4", "zstd"},
    "memory": {"headrace"},
    "reopen": {"headrace"},
    "lateness": {"headrace"},
    "idle": {"headrace"},
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_row_is_measured_for_every_system(tmp_path: Path) -> None:
    for peer in PEERS:
        pytest.importorskip(peer)
    done = run("--quick", "--directory", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    measured = {
        row["row"]: {result["system"] for result in row["results"]} for row in document["rows"]
    }
    assert measured == SYSTEMS
    for row in document["rows"]:
        for result in row["results"]:
            assert len(result["runs"]) == 1
            # Tiny sizes are never held against the targets of the full ones.
            assert result["targets"] == []
    assert {"commit", "command", "processor", "system"} <= set(document["machine"])
    assert (tmp_path / "results.md").read_text() == done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.json", "results.md"]


def test_a_row_can_be_measured_alone(tmp_path: Path) -> None:
    done = run("fdatasync", "--quick", "--directory", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert [row["row"] for row in document["rows"]] == ["fdatasync"]


def test_a_row_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = run("speed", "--quick", "--directory", str(tmp_path))
    assert done.returncode == 2
    assert "publish-many" in done.stderr
