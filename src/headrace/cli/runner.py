"""The runner: one shell command for each message, and what its exit code means.

    message --lease--> command, the value on its stdin
                          |
       exit 0   ack       |  while it runs, the lease is extended: a slow command
       exit 100 reject    |  keeps its message, and when we die another worker has
       other    nack      |  it soon; when the lease is lost, the command is ended

A command and what it starts are one process group, so that ending it ends all of
it. stdout is passed through; so is stderr, whose last line becomes the error.

Rejected: feeding stdin through a pipe. A command that does not read its input
would block us or die of SIGPIPE; a file does neither.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from headrace.cli.output import say
from headrace.core.errors import Closed, Disconnected, HeadraceError, StaleReceipt, Unreachable
from headrace.core.limits import ERROR_CHARACTERS_MAX
from headrace.core.values import Delivery

if TYPE_CHECKING:
    from headrace.client.message import Message

EXIT_REJECTS = 100
# How long an ended command may take to go before it is killed, and how long
# stderr may stay open after it.
GRACE_SECONDS = 5.0


class Runner:
    """Runs the command for messages, any number at once, and can end them all."""

    def __init__(self, shell_command: str, *, endures: bool = False) -> None:
        """`endures`: a node that is away when a command has ended is waited for."""
        self._command = shell_command
        self._endures = endures
        self._running: set[subprocess.Popen[bytes]] = set()
        # Deliveries whose command was started and that are not settled.
        self._unsettled = 0
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._stopping = False

    def run(self, message: Message[Any]) -> None:
        """The whole life of one delivery, from lease to settlement."""
        with tempfile.TemporaryFile() as value:
            value.write(message.raw or b"")
            value.seek(0)
            process = self._start(message, value)
        if process is None:
            return
        try:
            self._run_to_its_end(message, process)
        finally:
            with self._lock:
                self._unsettled -= 1
                self._news.notify_all()

    def unsettled(self) -> int:
        """How many commands were started whose messages are not settled."""
        with self._lock:
            return self._unsettled

    def wait_all_settled(self, seconds: float) -> bool:
        """False when the time was over before."""
        with self._lock:
            return self._news.wait_for(lambda: not self._unsettled, seconds)

    def _run_to_its_end(self, message: Message[Any], process: subprocess.Popen[bytes]) -> None:
        last_line = _LastLine(process)
        message.keep(partial(_on_lost, process))
        try:
            process.wait()
        finally:
            message.drop()
            with self._lock:
                self._running.discard(process)
        error = last_line.join()
        if self._stopping or message.lost:
            # It was ended by us, so its exit code says nothing.
            return
        try:
            self._settle_when_there(message, process.returncode, error)
        except StaleReceipt:
            say(f"{message.id}: the lease was over before the command was; it will run again")
        except (Unreachable, Disconnected, Closed) as unsettled:
            say(f"{message.id}: could not be settled, so its command may run again: {unsettled}")

    def _settle_when_there(self, message: Message[Any], exit_code: int, error: str) -> None:
        while True:
            try:
                return _settle(message, exit_code, error)
            except Unreachable:
                # Nothing was sent. The call itself has paused between its attempts.
                if not self._endures or self._stopping:
                    raise

    def stop(self) -> None:
        """End every command and start no other."""
        with self._lock:
            self._stopping = True
            running = list(self._running)
        for process in running:
            _send(process, signal.SIGTERM)
        for process in running:
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                _send(process, signal.SIGKILL)

    def _start(self, message: Message[Any], value: IO[bytes]) -> subprocess.Popen[bytes] | None:
        """None when we are stopping. Under the lock, so that `stop` and `unsettled` miss none."""
        with self._lock:
            if self._stopping:
                return None
            process = subprocess.Popen(
                self._command,
                shell=True,
                stdin=value,
                stderr=subprocess.PIPE,
                env=os.environ | _environment(message),
                process_group=0,
            )
            self._running.add(process)
            self._unsettled += 1
            return process


def _on_lost(process: subprocess.Popen[bytes], delivery: Delivery, error: HeadraceError) -> None:
    place = f"{delivery.topic}:{delivery.partition}:{delivery.offset}"
    say(f"{place}: its lease was lost, so its command is ended and will run again: {error}")
    _send(process, signal.SIGTERM)


def _settle(message: Message[Any], exit_code: int, last_line: str) -> None:
    if exit_code == 0:
        message.ack()
        return
    ended = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    error = f"{ended}: {last_line}" if last_line else ended
    if exit_code == EXIT_REJECTS:
        message.reject(error=error[:ERROR_CHARACTERS_MAX])
    else:
        message.nack(error=error[:ERROR_CHARACTERS_MAX])
    say(f"{message.id}: {error}")


def _send(process: subprocess.Popen[bytes], signal_number: signal.Signals) -> None:
    # The group's number is that of its first process, which we have not waited
    # for yet, so it cannot be somebody else's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal_number)


def _environment(message: Message[Any]) -> dict[str, str]:
    environment = {
        "HEADRACE_ID": str(message.id),
        "HEADRACE_TOPIC": message.topic,
        "HEADRACE_ATTEMPT": str(message.attempt),
        "HEADRACE_MAX_ATTEMPTS": str(message.max_attempts),
        "HEADRACE_PRIORITY": message.priority,
    }
    if message.key is not None:
        environment["HEADRACE_KEY"] = message.key.decode(errors="replace").replace("\0", "")
    return environment


class _LastLine:
    """Passes a command's stderr on as it comes, and remembers its last line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self._source = process.stderr
        self._line = b""
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._source:
            for line in self._source:
                self._line = line.strip() or self._line
                sys.stderr.write(line.decode(errors="replace"))

    def join(self) -> str:
        # Something left behind by the command may hold stderr open for ever.
        self._thread.join(GRACE_SECONDS)
        return self._line.decode(errors="replace")
