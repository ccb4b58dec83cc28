"""Where a command works: on a directory or on a node, and never on both."""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from tests.contract.cli.conftest import PROGRAM
from tests.interop.conftest import NodeProcess

from headrace.cli.main import cli

Start = Callable[..., "subprocess.Popen[bytes]"]
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("places") / "data")
    yield process
    process.stop()


@pytest.fixture
def start_on() -> Iterator[Start]:
    """Starts a command on a node, in a process of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start_command(
        node: NodeProcess, *words: str, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "--server", node.bootstrap, *words],
            stdout=subprocess.PIPE,
            cwd=cwd,
        )
        started.append(process)
        return process

    yield start_command
    for process in started:
        process.terminate()
        process.communicate(timeout=WAIT_SECONDS)


def invoke(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == code, (words, result.stdout, result.stderr)
    return result


def topics_at(*place: str) -> list[str]:
    return [one["name"] for one in json.loads(invoke(*place, "topic", "list", "--json").stdout)]


def test_the_node_is_named_before_or_behind_the_command(node: NodeProcess) -> None:
    invoke("--server", node.bootstrap, "topic", "create", "before")
    invoke("topic", "create", "behind", "--server", node.bootstrap)
    assert {"before", "behind"} <= set(topics_at("--server", node.bootstrap))


def test_the_node_may_come_from_the_environment_unless_a_directory_is_typed(
    node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name of before, and the one that the SDK has too, which goes first.
    monkeypatch.setenv("HEADRACE_SERVER", node.bootstrap)
    assert "on-the-node" not in topics_at()
    monkeypatch.setenv("HEADRACE_SERVER", "127.0.0.1:1")
    monkeypatch.setenv("HEADRACE_URL", node.bootstrap)
    invoke("topic", "create", "on-the-node")
    assert "on-the-node" in topics_at()
    data = str(tmp_path / "data")
    invoke("--data", data, "topic", "create", "in-the-directory")
    assert topics_at("--data", data) == ["in-the-directory"]
    # Files are files, wherever the other commands go.
    invoke("log", "verify", "--data", data)


def test_a_node_that_is_typed_is_before_a_directory_of_the_environment(
    node: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(tmp_path / "absent"))
    assert topics_at("--server", node.bootstrap) is not None
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--data", "d", "--server", "127.0.0.1:1", "topic", "list"],
        ["--data", "d", "topic", "list", "--server", "127.0.0.1:1"],
        ["topic", "list", "--data", "d", "--server", "127.0.0.1:1"],
    ],
)
def test_a_directory_and_a_node_at_once_are_refused(words: list[str]) -> None:
    assert "--data and --server are both given" in invoke(*words, code=2).stderr


def test_both_in_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA", "d")
    monkeypatch.setenv("HEADRACE_SERVER", "127.0.0.1:1")
    refused = invoke("topic", "list", code=2)
    assert "HEADRACE_DATA and HEADRACE_URL are both given" in refused.stderr


@pytest.mark.parametrize("words", [["log", "verify"], ["log", "dump", "t", "0"], ["serve"]])
def test_a_command_on_files_says_that_it_needs_them(words: list[str]) -> None:
    assert "with --data DIR" in invoke(*words, "--server", "127.0.0.1:1", code=2).stderr


def test_a_node_that_is_not_there_is_one_line_and_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = invoke("topic", "list", "--server", f"127.0.0.1:{port}", code=1)
    assert refused.stderr.startswith("error: no node answers at 127.0.0.1:")
    assert refused.stderr.endswith("[unreachable]\n")


def test_following_a_topic_on_a_node_shows_what_comes(node: NodeProcess, start_on: Start) -> None:
    invoke("--server", node.bootstrap, "topic", "create", "followed")
    invoke("--server", node.bootstrap, "publish", "followed", "one")
    following = start_on(node, "consume", "followed", "--follow", "--count", "2")
    assert following.stdout is not None
    assert following.stdout.readline() == b"one\n"
    invoke("--server", node.bootstrap, "publish", "followed", "two")
    assert following.stdout.readline() == b"two\n"
    assert following.wait(WAIT_SECONDS) == 0


def test_a_worker_that_is_killed_leaves_its_message_to_the_next(
    node: NodeProcess, start_on: Start
) -> None:
    server = ("--server", node.bootstrap)
    invoke(*server, "topic", "create", "jobs")
    invoke(*server, "publish", "jobs", "one")
    # It holds the first while it waits for a second.
    worker = start_on(node, "work", "jobs", "--visibility", "6h", "--peek", "--count", "2")
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"one\n"
    worker.kill()
    worker.wait(WAIT_SECONDS)
    next_one = invoke(*server, "work", "jobs", "--count", "1", "--wait", "60s", "--json")
    done = json.loads(next_one.stdout)
    assert (done["value"], done["attempt"]) == ("one", 2)


SHOP = """
import os
import headrace

app = headrace.App()

@app.worker("errands", group="runners")
def run(value: bytes) -> None:
    print(value.decode(), os.environ["WHO"], flush=True)
"""


def test_apps_in_two_processes_share_the_work_of_a_node(
    node: NodeProcess, start_on: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ("--server", node.bootstrap)
    invoke(*server, "topic", "create", "errands", "--partitions", "1")
    (tmp_path / "shop.py").write_text(SHOP)
    workers = []
    for who in ("first", "second"):
        monkeypatch.setenv("WHO", who)
        workers.append(start_on(node, "work", "shop:app", cwd=tmp_path))
    # One of them takes it, and when that one is gone the other does.
    for number in range(2):
        invoke(*server, "publish", "errands", f"errand-{number}")
        outputs = [each.stdout for each in workers if each.stdout is not None]
        ready, _, _ = select.select(outputs, [], [], WAIT_SECONDS)
        line = ready[0].readline().decode().split()
        assert line[0] == f"errand-{number}"
        taker = next(each for each in workers if each.stdout is ready[0])
        taker.terminate()
        assert taker.wait(WAIT_SECONDS) == 0
        workers.remove(taker)
    info = json.loads(invoke(*server, "queue", "stats", "runners", "--json").stdout)
    assert (info["acked"], info["depth"]) == (2, 0)
    assert (info["to_lease"]["count"], info["to_ack"]["count"]) == (2, 2)
    assert info["to_ack"]["p50_ms"] <= info["to_ack"]["p99_ms"]
    shown = invoke(*server, "queue", "stats", "runners").stdout
    assert re.search(r"publish to ack: +p50 \S+, p95 \S+, p99 \S+", shown)


def test_a_node_says_what_became_of_delayed_messages(node: NodeProcess, tmp_path: Path) -> None:
    server = ("--server", node.bootstrap)
    invoke(*server, "topic", "create", "reminders")
    invoke(*server, "publish", "reminders", "later", "--delay", "1h")
    [waiting] = json.loads(invoke(*server, "delayed", "list", "reminders", "--json").stdout)
    invoke(*server, "delayed", "cancel", waiting["id"])
    ended = {"topic": "reminders", "delivered": 0, "cancelled": 1, "expired": 0}
    shown = invoke(*server, "delayed", "stats", "reminders", "--json").stdout
    assert json.loads(shown) == [ended]
    assert re.search(r"reminders +0 +1 +0", invoke(*server, "delayed", "stats").stdout)
    refused = invoke("--data", str(tmp_path), "delayed", "stats", code=2)
    assert "name a node by --server" in refused.stderr


def test_a_shell_completes_what_is_on_the_node(node: NodeProcess) -> None:
    invoke("--server", node.bootstrap, "topic", "create", "completed")
    shell = ShellComplete(cli, {}, "headrace", "_HEADRACE_COMPLETE")
    found = shell.get_completions(["consume", "--server", node.bootstrap], "compl")
    assert [item.value for item in found] == ["completed"]
