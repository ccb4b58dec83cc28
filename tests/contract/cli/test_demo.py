"""The demo keeps its promises, with each Kafka client and without any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.cli.conftest import PROGRAM

from headrace.cli.demo_clients import CLIENTS

# Twice as many as fit into one poll, and one that cannot be worked among each thousand.
ORDERS = 2_000
DEMO = [sys.executable, "-c", PROGRAM, "demo", "--orders", str(ORDERS)]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_demo_runs_to_its_end_and_counts_what_it_did(client: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [*DEMO, "--no-spark", "--client", client],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    numbers = dict(
        line.rsplit(maxsplit=1) for line in run.stdout.splitlines() if line[-1:].isdigit()
    )
    assert numbers["given up, as dead letters"] == numbers["redriven"] == "2"
    assert numbers["acked in the end"] == str(ORDERS)
    # Twice each of those that are given up, and once each of those that fail once.
    assert numbers["tried again after a failure"] == str(2 * 2 + ORDERS // 100 - 2)
    assert "BROKEN" not in run.stdout
    assert ("skipped: Kafka clients" in run.stdout) == (client == "none")
    assert "memory of the node" in run.stdout


def test_the_demo_with_spark_accounts_for_every_metric(tmp_path: Path) -> None:
    run = subprocess.run(
        [*DEMO, "--client", "none"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    words = [line.split() for line in run.stdout.splitlines()]
    [counted] = [
        line for line in words if line[:6] == "metrics that the tables account for".split()
    ]
    assert counted[6:] == ["30000", "30000", "ok"], run.stdout
    assert "broken metrics found" in run.stdout and "BROKEN" not in run.stdout
    assert "ZeroDivisionError" in (tmp_path / ".demo" / "triage.html").read_text()
