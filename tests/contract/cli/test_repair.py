"""`headrace repair`, and a node on a directory in which a state log is damaged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.cli.main import cli
from headrace.inspect import read_catalog
from headrace.platform.clock import SystemClock

PLACES = ["directory"]
PROGRAM = "from headrace.cli.main import main; main()"


@pytest.fixture
def damaged(data: Path) -> Path:
    """Of one topic the state log has rotted; another is sound."""
    with headrace.open(data) as handle:
        for topic in ("orders", "sound"):
            handle.create_topic(topic, 1)
            for number in range(10):
                handle.publish(topic, number)
            with handle.queue(topic, group="billing") as queue:
                queue.ack(queue.lease(4))
    folder = read_catalog(str(data), SystemClock().now_ms()).topics["orders"].folder
    log = next((data / folder / "0" / "state").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    return data


def test_the_doctor_says_what_to_do_and_a_repair_does_it(
    damaged: Path, run: Callable[..., Result]
) -> None:
    report = run("doctor", "--json", code=2)
    checks = {check["name"]: check["findings"] for check in json.loads(report.stdout)["checks"]}
    for name in ("segments", "queues"):
        assert any("headrace repair" in finding["do"] for finding in checks[name]), name
    plan = json.loads(run("repair", "--json", code=1).stdout)
    assert plan["repaired"] is False
    assert [each["topic"] for each in plan["partitions"]] == ["orders"]
    assert "do it with --yes" in run("repair", code=1).stderr
    done = run("repair", "--yes")
    assert "state.damaged-1" in done.stdout and "may have been done already" in done.stdout
    assert "nothing to repair" in run("repair").stderr
    run("log", "verify")
    report = CliRunner().invoke(cli, ["--data", str(damaged), "doctor", "--json"])
    checks = {check["name"]: check["findings"] for check in json.loads(report.stdout)["checks"]}
    assert not checks["queues"] and not checks["segments"]


def test_a_directory_that_somebody_has_open_is_not_repaired(
    damaged: Path, run: Callable[..., Result]
) -> None:
    with headrace.open(damaged):
        assert "open" in run("repair", "--yes", code=1).stderr


@pytest.fixture
def node(damaged: Path) -> Iterator[dict[str, str]]:
    process = subprocess.Popen(
        [
            sys.executable, "-c", PROGRAM, "serve", "--data", str(damaged), "--kafka",
            "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "", "--log-level", "warning",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        ready = process.stdout.readline()
        doors = dict(re.findall(r"(\w+) on (?:http://)?([\w.:]+)", ready))
        yield {**doors, "log": process.stderr.readline()}
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_node_serves_everything_but_the_queues_that_are_damaged_and_says_so(
    node: dict[str, str], damaged: Path
) -> None:
    assert "orders:0 are stopped" in node["log"] and "headrace repair" in node["log"]
    with urllib.request.urlopen(f"http://{node['http']}/health/ready") as answer:
        (problem,) = json.load(answer)["problems"]
    assert "orders:0 are stopped" in problem
    with urllib.request.urlopen(f"http://{node['http']}/metrics") as answer:
        assert b"\nheadrace_partitions_stopped 1.0" in answer.read()
    report = CliRunner().invoke(cli, ["doctor", "--server", node["kafka"], "--json"])
    checks = {check["name"]: check["findings"] for check in json.loads(report.stdout)["checks"]}
    assert [finding["about"] for finding in checks["partitions"]] == ["orders"]
    # Whoever opens the directory is told of the node, also when its lock file is gone.
    with pytest.raises(headrace.InUse, match=f"pid \\d+ .*--server {node['kafka']}"):
        headrace.open(damaged)
    (damaged / "lock").unlink()
    with pytest.raises(headrace.InUse, match=r"pid \d+"):
        headrace.open(damaged)
    with headrace.connect(node["kafka"]) as handle:
        handle.publish("orders", "still taken")
        with handle.queue("sound", group="billing") as queue:
            assert len(queue.lease(10)) == 6
        with handle.queue("orders", group="billing") as queue:
            assert queue.lease(10) == []
        with handle.stream("orders") as stream:
            assert len(stream.poll()) == 11


def test_the_doctor_names_the_partition_whose_messages_are_damaged(
    data: Path, run: Callable[..., Result]
) -> None:
    with headrace.open(data) as handle:
        handle.create_topic("orders", 1)
        handle.publish("orders", "gone")
    folder = read_catalog(str(data), SystemClock().now_ms()).topics["orders"].folder
    [log] = (data / folder / "0").glob("*.log")
    log.unlink()
    report = run("doctor", "--json", code=2)
    checks = {check["name"]: check["findings"] for check in json.loads(report.stdout)["checks"]}
    [finding] = checks["messages"]
    assert finding["about"] == "orders:0" and str(log.name) in finding["what"]
    assert "put the file back" in finding["do"] and not checks["queues"]
    assert "nothing to repair" in run("repair").stderr
