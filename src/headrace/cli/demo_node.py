"""The demo's node: a process of its own, and what it costs.

It is killed and started again in the course of a demo; its costs are those of all its
lives together.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from headrace.core.errors import HeadraceError

_PROGRAM = "from headrace.cli.main import main; main()"
STOP_SECONDS = 30.0
_READY = "ready: kafka on "


class Usage(NamedTuple):
    cpu_seconds: float
    memory_bytes: int


class DemoNode:
    def __init__(self, folder: str) -> None:
        self.data = os.path.join(folder, "data")
        self._log_path = os.path.join(folder, "node.log")
        self.address = "127.0.0.1:0"
        self.start_seconds = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._cpu_before = 0.0

    def start(self) -> None:
        """On a free port the first time, then on the same again."""
        began = time.perf_counter()
        with open(self._log_path, "a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, "serve",
                 "--data", self.data, "--kafka", self.address, "--http", "", "--grpc", ""],
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            self._end(signal.SIGKILL)
            raise HeadraceError(f"the node did not start; {self._log_path} says why")
        self.address = line.removeprefix(_READY).split(",")[0]
        self.start_seconds = time.perf_counter() - began

    def kill(self) -> None:
        """As a crash does it: nothing is finished."""
        usage = self.usage()
        self._cpu_before = 0.0 if usage is None else usage.cpu_seconds
        self._end(signal.SIGKILL)

    def usage(self) -> Usage | None:
        """CPU of the node up to now, and its memory; None where there is no /proc."""
        if self._process is None:
            return None
        try:
            with open(f"/proc/{self._process.pid}/stat", encoding="utf-8") as file:
                fields = file.read().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            pages = int(fields[21])
        except (OSError, IndexError, ValueError):
            return None
        cpu_seconds = self._cpu_before + ticks / os.sysconf("SC_CLK_TCK")
        return Usage(cpu_seconds, pages * os.sysconf("SC_PAGE_SIZE"))

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> DemoNode:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave it running.
        with contextlib.suppress(KeyboardInterrupt):
            self._end(signal.SIGTERM)
        self._end(signal.SIGKILL)
