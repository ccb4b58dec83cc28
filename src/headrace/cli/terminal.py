"""A terminal of our own for a while: a screen, keys, and the size as it changes.

    with Terminal() as terminal:
        terminal.draw(lines)
        keys = terminal.wait(2.0)

The alternate screen keeps what was there before, and gives it back at the end, however
the end comes; also while the program is stopped by Ctrl-Z. Only lines that differ from
what is on the screen are written, all of them in one piece, so nothing flickers.

Rejected: curses. It owns the screen as a whole, knows no NO_COLOR, and lines that are
made by one function can be tested without it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType, TracebackType

# Alternate screen, no cursor, no wrapping; and all of it back again.
BEGIN = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
END = "\x1b[?7h\x1b[?25h\x1b[?1049l"
# What is between these two appears at once, where the terminal knows them.
UPDATE_BEGIN, UPDATE_END = "\x1b[?2026h", "\x1b[?2026l"

_SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "OA": "up",
    "OB": "down",
    "[5~": "page-up",
    "[6~": "page-down",
    "[H": "home",
    "[F": "end",
    "[1~": "home",
    "[4~": "end",
    "[Z": "back-tab",
}
_NAMED = {"\t": "tab", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace"}


class Terminal:
    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._shown: list[str] = []
        self._size = (0, 0)
        # Written to by whoever wants the waiting to end.
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(self._input)
        self._handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGWINCH, self._on_resized),
                (signal.SIGTSTP, self._on_stopped),
                (signal.SIGCONT, self._on_continued),
            )
        }
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._end()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _begin(self) -> None:
        tty.setcbreak(self._input)
        self._shown = []
        self._write(BEGIN)

    def _end(self) -> None:
        self._write(END)
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    # Waking.

    def wake(self) -> None:
        """Ends a `wait`; from any thread, and from a signal."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")

    def _on_resized(self, number: int, frame: FrameType | None) -> None:
        self._shown = []
        self.wake()

    def _on_stopped(self, number: int, frame: FrameType | None) -> None:
        self._end()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)

    def _on_continued(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTSTP, self._on_stopped)
        self._begin()
        self.wake()

    # What goes out.

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            columns, lines = os.get_terminal_size(self._output)
        except OSError:
            columns, lines = shutil.get_terminal_size()
        return max(1, columns), max(1, lines)

    def draw(self, lines: Sequence[str]) -> None:
        """Each line as wide as the terminal: nothing behind it is erased, since that
        would take the last character of a full line along."""
        size = self.size
        if size != self._size:
            self._size, self._shown = size, []
        written = [] if self._shown else ["\x1b[2J"]
        for number in range(size[1]):
            line = lines[number] if number < len(lines) else " " * size[0]
            if number >= len(self._shown) or self._shown[number] != line:
                written.append(f"\x1b[{number + 1};1H{line}")
        self._shown = [*lines[: size[1]], *[" " * size[0]] * (size[1] - len(lines))]
        if written:
            self._write("".join((UPDATE_BEGIN, *written, UPDATE_END)))

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._output, data) :]

    # What comes in.

    def wait(self, seconds: float) -> list[str]:
        """Keys that were pressed, as soon as there is one; none when the time is over,
        somebody woke us, or the size has changed."""
        ready, _, _ = select.select([self._input, self._wake_read], [], [], max(0.0, seconds))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._input not in ready:
            return []
        data = os.read(self._input, 1024)
        # The terminal is gone.
        return ["q"] if not data else keys_of(data.decode(errors="replace"))


def keys_of(text: str) -> list[str]:
    """What the bytes of a terminal mean: characters, or names of other keys."""
    keys: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\x1b":
            keys.append(_NAMED.get(text[at], text[at]))
            at += 1
            continue
        rest = text[at + 1 :]
        found = next((each for each in _SEQUENCES if rest.startswith(each)), None)
        if found is not None:
            keys.append(_SEQUENCES[found])
            at += 1 + len(found)
        elif rest[:1] in ("[", "O"):
            # One that we do not know, up to the letter that ends it.
            at += 2
            while at < len(text) and not text[at].isalpha() and text[at] != "~":
                at += 1
            at += 1
        else:
            keys.append("escape")
            at += 1
    return keys
