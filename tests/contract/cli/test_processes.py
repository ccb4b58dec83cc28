"""The command line among other processes: a held directory, signals, closed pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]

# These are about processes that share a directory.
PLACES = ["directory"]
Start = Callable[..., "subprocess.Popen[bytes]"]

WAIT_SECONDS = 60
WORK = ("work", "orders", "--group", "billing")


LOOKING = [
    ["topic", "list"],
    ["topic", "describe", "orders"],
    ["consume", "orders"],
    ["queue", "list"],
    ["queue", "stats", "billing"],
    ["group", "list"],
    ["group", "describe", "billing"],
    ["dlq", "list", "orders"],
    ["dlq", "show", "orders.dlq:0:0"],
    ["dlq", "export", "orders"],
    ["delayed", "list", "orders"],
    ["status", "orders:0:1", "--group", "billing"],
    ["log", "verify", "--json"],
    ["log", "dump", "orders", "0"],
    ["log", "export", "orders"],
]


@pytest.fixture
def orders(run: Run) -> Run:
    run("topic", "create", "orders", "--partitions", "1")
    run("publish", "orders", "one", "two", "three")
    run("publish", "orders", "later", "--delay", "1h")
    run("work", "orders", "--group", "billing", "--count", "1", "--reject")
    return run


def begun(process: subprocess.Popen[bytes]) -> bytes:
    """Wait until the process has written its first line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=WAIT_SECONDS)
    return line


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    out, err = process.communicate(timeout=WAIT_SECONDS)
    return process.returncode, out, err


def state_of(run: Run, message_id: str) -> dict[str, Any]:
    answer = run("status", message_id, "--group", "billing", "--json")
    document: dict[str, Any] = json.loads(answer.stdout)
    return document


def test_commands_that_look_work_on_a_directory_in_use(orders: Run, start: Start) -> None:
    holder = start(*WORK, "--grace", "0s", "--exec", "echo begun; cat; sleep 60")
    begun(holder)
    for words in LOOKING:
        assert orders(*words).stdout, words
    assert "as it was written" in orders("log", "verify").stderr
    assert holder.poll() is None


def test_a_follower_of_statistics_measures_rates_between_looks(orders: Run, start: Start) -> None:
    follower = start("queue", "stats", "billing", "--follow", "--every", "1ms", "--json")
    first, second = json.loads(begun(follower)), json.loads(begun(follower))
    assert first["queues"][0]["rate_in"] is None
    assert second["queues"][0]["rate_in"] == 0
    follower.send_signal(signal.SIGINT)
    assert ended(follower)[0] == 130


def test_a_second_writer_learns_who_holds_the_directory(orders: Run, start: Start) -> None:
    holder = start(*WORK, "--grace", "0s", "--exec", "echo begun; sleep 60")
    begun(holder)
    refused = orders("publish", "orders", "x", code=1)
    assert refused.stderr.endswith("[in-use]\n")
    assert str(holder.pid) in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "terminate"])
def test_a_signal_ends_the_work_quietly_and_gives_the_lease_back(
    orders: Run, start: Start, number: signal.Signals
) -> None:
    worker = start(*WORK, "--grace", "0s", "--exec", "echo begun; sleep 60")
    begun(worker)
    worker.send_signal(number)
    assert ended(worker) == (0, b"", b"")
    status = state_of(orders, "orders:0:1")
    assert (status["state"], status["attempts"]) == ("pending", 0)


# A command that is told to end while Python clears something away, and then goes on.
CLEARING_AWAY = """
import os, signal
from headrace.cli import main

class Closing:
    def __del__(self):
        os.kill(os.getpid(), %d)

@main.cli.command("follow")
def follow():
    Closing()
    while True:
        signal.pause()

main.main()
"""


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143)],
    ids=["interrupt", "terminate"],
)
def test_a_signal_that_comes_while_something_is_cleared_away_is_not_forgotten(
    number: signal.Signals, code: int
) -> None:
    command = [sys.executable, "-c", CLEARING_AWAY % number, "follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert ended(process) == (code, b"", b"")
        finally:
            process.kill()


def test_a_signal_ends_what_the_command_started_too(orders: Run, start: Start) -> None:
    nested = "sh -c 'echo $$; sleep 60' & wait"
    worker = start(*WORK, "--grace", "0s", "--exec", nested)
    pid = int(begun(worker))
    worker.send_signal(signal.SIGINT)
    assert ended(worker)[0] == 0
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


@pytest.fixture
def patient(orders: Run, start: Start, tmp_path: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A worker that was told to end while its command runs, and a pipe that ends that."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    worker = start(*WORK, "--exec", f"echo begun; cat {quote(str(pipe))}")
    begun(worker)
    worker.send_signal(signal.SIGTERM)
    assert worker.stderr is not None
    assert b"waiting up to 30s for 1 command to end" in worker.stderr.readline()
    return worker, pipe


def test_what_runs_may_end_within_the_grace_and_is_settled(
    orders: Run, patient: tuple[subprocess.Popen[bytes], Path]
) -> None:
    worker, pipe = patient
    pipe.write_text("ended\n")
    assert ended(worker) == (0, b"ended\n", b"")
    assert state_of(orders, "orders:0:1")["state"] == "acked"
    # Nothing more was leased.
    assert state_of(orders, "orders:0:2")["attempts"] == 0


def test_a_second_signal_does_not_wait_for_the_grace(
    orders: Run, patient: tuple[subprocess.Popen[bytes], Path]
) -> None:
    worker, _ = patient
    worker.send_signal(signal.SIGINT)
    assert ended(worker) == (0, b"", b"")
    status = state_of(orders, "orders:0:1")
    assert (status["state"], status["attempts"]) == ("pending", 0)


def test_an_interrupt_ends_waiting_for_work(orders: Run, start: Start) -> None:
    worker = start("work", "orders", "--group", "billing")
    begun(worker)
    worker.send_signal(signal.SIGINT)
    code, _, complaint = ended(worker)
    assert (code, complaint) == (130, b"")


def test_following_shows_what_others_publish_later(orders: Run, start: Start) -> None:
    follower = start("consume", "orders", "--follow")
    assert begun(follower) == b"one\n"
    orders("publish", "orders", "four")
    assert follower.stdout is not None
    assert [follower.stdout.readline() for _ in range(4)] == [
        b"two\n",
        b"three\n",
        b"later\n",
        b"four\n",
    ]
    follower.send_signal(signal.SIGINT)
    assert ended(follower) == (130, b"", b"")


def test_following_ends_by_itself_after_its_count(orders: Run, start: Start) -> None:
    follower = start("consume", "orders", "--follow", "--from", "4", "--count", "1")
    orders("publish", "orders", "four")
    assert ended(follower) == (0, b"four\n", b"")


def test_a_group_follows_and_is_not_asked_for_the_same_again(orders: Run, start: Start) -> None:
    follower = start("consume", "orders", "--group", "audit", "--follow")
    assert follower.stdout is not None
    for expected in (b"one\n", b"two\n", b"three\n", b"later\n"):
        assert follower.stdout.readline() == expected
    wait_until_committed(orders, "audit")
    follower.send_signal(signal.SIGINT)
    assert ended(follower)[0] == 130
    orders("consume", "orders", "--group", "audit", code=3)


@pytest.mark.parametrize(
    "words", [["consume", "orders"], ["log", "export", "orders"], ["log", "dump", "orders", "0"]]
)
def test_a_closed_pipe_ends_quietly(orders: Run, start: Start, words: list[str]) -> None:
    # More than a pipe can hold, so that the writer is still writing.
    orders("publish", "orders", "-", stdin=(b"z" * 99 + b"\n") * 5_000)
    options = ["--records"] if words[1] == "dump" else []
    writer = start(*words, *options)
    begun(writer)
    assert writer.stdout is not None
    writer.stdout.close()
    assert writer.wait(WAIT_SECONDS) == 0
    assert writer.stderr is not None
    assert writer.stderr.read() == b""


def test_a_pipe_of_lines_is_published_as_it_comes(orders: Run, start: Start) -> None:
    publisher = start("publish", "orders", "-", "--json", stdin=subprocess.PIPE)
    assert publisher.stdin is not None
    for _ in range(3):
        publisher.stdin.write(b"line\n")
        publisher.stdin.flush()
        assert json.loads(begun(publisher))["id"].startswith("orders:0:")
    code, _, _ = ended(publisher)
    assert code == 0


def test_a_killed_worker_costs_an_attempt_and_nothing_else(orders: Run, start: Start) -> None:
    worker = start(*WORK, "--exec", "echo $$; exec sleep 60")
    child = int(begun(worker))
    worker.kill()
    worker.wait(WAIT_SECONDS)
    os.kill(child, signal.SIGKILL)
    assert orders("log", "verify").stdout == ""
    [message, *_] = orders(
        *("work", "orders", "--group", "billing", "--count", "1", "--json"),
    ).stdout.splitlines()
    assert json.loads(message)["value"] == "two"
    assert json.loads(message)["attempt"] == 2


def test_a_shell_gets_its_completions(start: Start) -> None:
    asked = {
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": "headrace topi",
        "COMP_CWORD": "1",
    }
    # The shell passes no words; what was typed is in the environment.
    process = start(env=os.environ | asked)
    assert ended(process) == (0, b"plain,topic\n", b"")


def wait_until_committed(run: Run, group: str) -> None:
    """Look until the group has come to the end; each look takes a while itself."""
    for _ in range(500):
        described = run("group", "describe", group, "--json")
        if all(row["lag"] == 0 for row in json.loads(described.stdout)["partitions"]):
            return
    raise AssertionError(f"{group} never committed")


def test_an_argument_that_is_no_text_is_published_as_its_bytes(run: Run, start: Start) -> None:
    run("topic", "create", "orders")
    assert ended(start("publish", "orders", os.fsdecode(b"\xff\xfe")))[0] == 0
    assert ended(start("consume", "orders"))[1] == b"\xff\xfe\n"


def test_the_package_runs_as_the_script_does() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "headrace", "--version"],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert asked.stdout.startswith("headrace")
