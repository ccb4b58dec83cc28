"""What `headrace work --exec` says and waits for when it is told to end."""

from __future__ import annotations

import io
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from headrace.cli import work
from headrace.cli.runner import Runner

WAITING = "waiting up to 30s for 1 command to end; the next signal ends them now"
WAIT_SECONDS = 30


class Command:
    """A process that ends when it may, or is told to."""

    def __init__(self) -> None:
        self.stderr = io.BytesIO()
        self.returncode = 0
        self.has_ended = threading.Event()

    def wait(self, timeout: float | None = None) -> int:
        assert self.has_ended.wait(WAIT_SECONDS)
        return self.returncode

    def poll(self) -> int:
        self.has_ended.set()
        return self.returncode


class Message:
    id, topic, attempt, max_attempts, priority = "orders:0:0", "orders", 1, 3, "normal"
    raw, key, lost = b"one", None, False

    def __init__(self) -> None:
        self.is_acked = False

    def keep(self, on_lost: Any) -> None:
        pass

    def drop(self) -> None:
        pass

    def ack(self) -> None:
        self.is_acked = True


class Queue:
    """Has one message."""

    def __init__(self) -> None:
        self.message = Message()

    def receive(self, **_: Any) -> list[Message]:
        return [self.message]


class Commands:
    """Those that were started."""

    def __init__(self) -> None:
        self.all: list[Command] = []
        self._started = threading.Semaphore(0)

    def start(self, *_: Any, **__: Any) -> Command:
        self.all.append(Command())
        self._started.release()
        return self.all[-1]

    def wait_one_more(self) -> None:
        assert self._started.acquire(timeout=WAIT_SECONDS)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    started = Commands()
    monkeypatch.setattr("headrace.cli.runner.subprocess.Popen", started.start)
    return started


@pytest.fixture
def grace(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(work._Grace, "_give_up_after", lambda self, seconds: None)
    return work._Grace(handle=None, seconds=30)  # type: ignore[arg-type]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, commands: Commands) -> list[str]:
    """What is said; every command ends when something is."""
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        for each in commands.all:
            each.has_ended.set()

    monkeypatch.setattr(work, "say", say)
    return lines


def begin(runner: Runner, commands: Commands) -> threading.Thread:
    """Run the command for a message; returns when it was started."""
    thread = threading.Thread(target=runner.run, args=(Message(),))
    thread.start()
    commands.wait_one_more()
    return thread


def test_nothing_is_said_where_every_command_has_ended(
    grace: Any, commands: Commands, said: list[str]
) -> None:
    runner = Runner("bill")
    for _ in range(3):
        thread = begin(runner, commands)
        commands.all[-1].has_ended.set()
        thread.join(WAIT_SECONDS)
    grace.wait(runner)
    assert said == []


def test_only_commands_that_run_are_counted(
    grace: Any, commands: Commands, said: list[str]
) -> None:
    runner = Runner("bill")
    ended = begin(runner, commands)
    commands.all[-1].has_ended.set()
    ended.join(WAIT_SECONDS)
    running = begin(runner, commands)
    grace.wait(runner)
    assert said == [WAITING]
    running.join(WAIT_SECONDS)


def test_a_command_that_was_only_just_started_has_its_grace(
    grace: Any, commands: Commands, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(ThreadPoolExecutor):
        """A signal comes as soon as the command runs, before there is a future of it."""

        def submit(self, *words: Any, **options: Any) -> Future[Any]:
            super().submit(*words, **options)
            commands.wait_one_more()
            raise SystemExit(143)

    monkeypatch.setattr(work, "ThreadPoolExecutor", Told)
    queue: Any = Queue()
    with pytest.raises(SystemExit):
        work._run_commands(queue, Runner("bill"), grace, None, None, 1, False)
    assert said == [WAITING]
    assert queue.message.is_acked
