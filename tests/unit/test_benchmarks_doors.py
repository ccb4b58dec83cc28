"""The doors are measured, and a server that is not there is said to be missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PROJECT = Path(__file__).parent.parent.parent


def test_a_door_is_measured_and_a_missing_server_is_said_not_to_be_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.doors", "--quick", "--rows", "publish-many",
            "work-one", "--systems", "HTTP", "always", "--output", str(tmp_path),
        ],
        cwd=PROJECT,
        # No server of others is found there.
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "doors.json").read_text())
    found = {(each["row"], each["system"]): each for each in document["rows"]}
    assert set(found) == {
        (row, system)
        for row in ("publish-many", "work-one")
        for system in ("headrace HTTP", "Redis always")
    }
    for (_, system), each in found.items():
        if system == "headrace HTTP":
            [run] = each["runs"]
            assert run["messages"] >= run["calls"] > 0
            assert 0 < run["p50_ms"] <= run["p99_ms"]
            assert run["server_cpu"] >= 0 and run["client_cpu"] > 0
        else:
            assert (each["runs"], each["failure"]) == ([], "redis-server")
    assert done.stdout == (tmp_path / "doors.md").read_text()
    assert "| Redis always | not run: redis-server |" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["doors.json", "doors.md"]
