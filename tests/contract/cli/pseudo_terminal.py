"""A real pseudo-terminal with a program in it, and what is on its screen.

The screen understands what `headrace top` writes and nothing else: a sequence that it
does not know fails the test.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

from tests.contract.cli.conftest import PROGRAM

WAIT_SECONDS = 60
_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    def __init__(self, columns: int, lines: int) -> None:
        self.colours: set[str] = set()
        self.modes: dict[str, bool] = {}
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        self.columns = columns
        self._cells = [[" "] * columns for _ in range(lines)]
        self._row = self._column = 0

    @property
    def text(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def feed(self, text: str) -> str:
        """What is left: the beginning of a sequence whose end has not come."""
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                self._put(text[at])
                at += 1
                continue
            found = _SEQUENCE.match(text, at)
            if found is None:
                assert len(text) - at < 16, f"unknown sequence {text[at : at + 16]!r}"
                return text[at:]
            self._obey(found[1], found[2], found[3])
            at = found.end()
        return ""

    def _obey(self, private: str, numbers: str, command: str) -> None:
        if private:
            self.modes[numbers] = command == "h"
        elif command == "H":
            row, column = (int(number) for number in numbers.split(";"))
            self._row, self._column = row - 1, column - 1
        elif command == "J":
            self._cells = [[" "] * len(row) for row in self._cells]
        elif command == "m":
            self.colours.add(numbers)
        else:
            raise AssertionError(f"unknown sequence CSI {numbers} {command}")

    def _put(self, character: str) -> None:
        if character.isprintable() and self._row < len(self._cells) and self.modes.get("1049"):
            # Wrapping is off: the last cell takes what is too much.
            self._cells[self._row][min(self._column, self.columns - 1)] = character
            self._column += 1


class Session:
    """A `headrace` command in a terminal of its own."""

    def __init__(
        self, *words: str, columns: int = 80, lines: int = 24, environment: dict[str, str]
    ) -> None:
        self.screen = Screen(columns, lines)
        self._master, self._slave = pty.openpty()
        self._set_size(columns, lines)
        self._before: Any = termios.tcgetattr(self._slave)
        self._rest = ""
        self.raw = ""
        kept = {name: os.environ[name] for name in os.environ if name != "NO_COLOR"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=kept | {"TERM": "xterm-256color"} | environment,
            start_new_session=True,
            # Whoever runs the tests in the background may have it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(columns, lines)
        self._set_size(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_until(self, is_there: Callable[[list[str]], bool]) -> list[str]:
        """The lines of the screen as soon as it is so."""
        end = time.monotonic() + WAIT_SECONDS
        while not is_there(self.screen.text):
            assert self.process.poll() is None, self.raw
            assert time.monotonic() < end, "\n".join(self.screen.text)
            self._read(1.0)
        return self.screen.text

    def wait_for(self, text: str) -> list[str]:
        return self.wait_until(lambda lines: any(text in line for line in lines))

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        new = os.read(self._master, 65536).decode(errors="replace")
        self.raw += new
        self._rest = self.screen.feed(self._rest + new)
        return True

    def end(self) -> int:
        """The exit code, once it has ended; the terminal must be as it was before."""
        end = time.monotonic() + WAIT_SECONDS
        while self.process.poll() is None:
            # It may wait for somebody to take what it writes.
            self._read(0.1)
            assert time.monotonic() < end
        while self._read(0):
            continue
        assert termios.tcgetattr(self._slave) == self._before
        assert not self.screen.modes.get("1049") and self.screen.modes.get("25", True)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)
