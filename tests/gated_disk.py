"""A memory disk whose syncs of message data stop at a gate."""

from __future__ import annotations

import threading
from typing import Any

from headrace.core.ports import File
from headrace.platform.memory_disk import MemoryDisk

TIMEOUT_SECONDS = 30


class Gate:
    """Stops syncs of message data while it is closed, lets one fail, and counts them."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self._is_open.set()
        # Released by each sync that stops here.
        self.reached = threading.Semaphore(0)
        # What the next sync raises that passes.
        self.error: BaseException | None = None
        self.syncs = 0

    def close(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    def wait_until_reached(self) -> None:
        assert self.reached.acquire(timeout=TIMEOUT_SECONDS), "nothing was synced"

    def pass_through(self) -> None:
        self.syncs += 1
        if not self._is_open.is_set():
            self.reached.release()
            assert self._is_open.wait(TIMEOUT_SECONDS), "the gate stayed closed"
        error, self.error = self.error, None
        if error is not None:
            raise error


class GatedFile:
    def __init__(self, file: File, gate: Gate) -> None:
        self._file = file
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._gate.pass_through()
        self._file.sync()


class GatedDisk(MemoryDisk):
    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> Any:
        file = super().open(path, create=create, read_only=read_only, note=note)
        return GatedFile(file, self._gate) if path.startswith("topics/") else file
