"""`headrace serve` as an operator meets it: start, logs, errors, stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, make

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import produce_request as produce

START = [sys.executable, "-c", "from headrace.cli.main import main; main()"]
RESIDENT_KILOBYTES_MAX = 80 * 1024


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **more}


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*START, *words], capture_output=True, text=True, env=environment(**more), timeout=60
    )


def test_a_directory_in_use_is_refused_with_who_holds_it(node: NodeProcess) -> None:
    result = run("serve", "--data", str(node.data), "--kafka", "127.0.0.1:0")
    assert result.returncode == 1
    assert f"pid {node.process.pid}" in result.stderr
    assert "[in-use]" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_address_in_use_is_refused_with_what_to_do(node: NodeProcess, tmp_path: Path) -> None:
    result = run("serve", "--data", str(tmp_path / "other"), "--kafka", node.bootstrap)
    assert result.returncode == 1
    assert f"cannot listen on {node.bootstrap}" in result.stderr
    assert "--kafka" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kafka", "0.0.0.0:0"], "--insecure"),
        (["--kafka", "nonsense"], "must look like"),
        (["--partitions", "0"], "partitions must be"),
        (["--config", "/nowhere/headrace.toml"], "cannot read /nowhere/headrace.toml"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    result = run("serve", "--data", str(tmp_path / "data"), *words)
    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean_and_the_directory_free_again(
    node: NodeProcess, number: signal.Signals
) -> None:
    with WireClient(node.bootstrap) as client:
        made = make(client, "orders", 1)
        # A long poll and a connection that says nothing must not hold the stop up.
        wanted = fetch.FetchTopic("orders", made.topic_id, (fetch.FetchPartition(0, -1, 0),))
        asked = fetch.FetchRequest(max_wait_ms=60_000, session_epoch=-1, topics=(wanted,))
        client.send("Fetch", 11, asked)
        node.process.send_signal(number)
        assert client.receive("Fetch", 11).error_code == 0
        assert node.process.wait(20) == 0
    node.restart()
    with WireClient(node.bootstrap) as client:
        assert len(client._socket.getpeername()) == 2


def test_what_was_sent_before_the_stop_is_answered_and_kept(node: NodeProcess) -> None:
    count = 200
    batch = bytes(build_batch([NewRecord(None, b"x" * 100, (), 1)]))
    data = produce.TopicProduceData(
        "orders", partition_data=(produce.PartitionProduceData(0, batch),)
    )
    with WireClient(node.bootstrap) as client:
        make(client, "orders", 1)
        for _ in range(count):
            client.send("Produce", 9, produce.ProduceRequest(None, -1, 1_000, (data,)))
        last = client._correlation_id
        answered = 0
        client._correlation_id = last - count + 1
        client.receive("Produce", 9)
        answered += 1
        node.process.send_signal(signal.SIGTERM)
        try:
            while answered < count:
                client._correlation_id += 1
                offset = client.receive("Produce", 9).responses[0].partition_responses[0]
                assert offset.base_offset == answered
                answered += 1
        except ConnectionError:
            pass
    assert node.process.wait(20) == 0
    node.restart()
    with WireClient(node.bootstrap) as client:
        wanted = fetch.FetchTopic("orders", partitions=(fetch.FetchPartition(0, -1, 0),))
        asked = fetch.FetchRequest(max_wait_ms=0, session_epoch=-1, topics=(wanted,))
        found = client.call("Fetch", 11, asked).responses[0].partitions[0]
        assert found.high_watermark >= answered


def test_a_node_that_has_just_started_is_small(node: NodeProcess) -> None:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < RESIDENT_KILOBYTES_MAX


def test_logs_are_one_json_object_a_line(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *START,
            "serve",
            "--kafka",
            "127.0.0.1:0",
            "--http",
            "",
            "--grpc",
            "",
            "--log-format",
            "json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(HEADRACE_DATA=str(tmp_path / "data")),
    )
    assert process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("ready: kafka on 127.0.0.1:")
    assert str(tmp_path / "data") in ready
    host, _, port = ready.split(",")[0].rpartition(" ")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert peer.recv(1) == b""
    process.send_signal(signal.SIGTERM)
    _, logs = process.communicate(timeout=20)
    assert process.returncode == 0
    events = [json.loads(line) for line in logs.splitlines()]
    assert [each["event"] for each in events] == ["ready", "connection closed", "stopping"]
    assert events[1]["level"] == "warning"
    assert "frame" in events[1]["reason"]


def test_config_show_prints_what_serve_would_run_with(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('partitions = 7\nlog_format = "json"\n')
    words = ("config", "show", "--config", str(file), "--data", "/srv/queue")
    shown = run(*words, HEADRACE_CONNECTIONS_MAX="99")
    assert shown.returncode == 0
    lines = {line.split(" = ")[0]: line for line in shown.stdout.splitlines()}
    assert lines["partitions"].endswith(f"# {file}")
    assert lines["connections_max"].endswith("# HEADRACE_CONNECTIONS_MAX")
    assert lines["data"].endswith("# --data")
    assert lines["kafka"].endswith("# default")
    # What it prints is a file that it reads.
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    values = json.loads(run("config", "show", "--config", str(again), "--json").stdout)
    assert values["partitions"] == {"value": 7, "source": str(again)}
    assert values["data"] == {"value": "/srv/queue", "source": str(again)}
