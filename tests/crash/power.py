"""Losing power at every step of a script, on a disk that forgets.

    script ---- op 1 ---- op 2 ---- op 3 ----          one run, on a FaultDisk
                 |         |         |
               crash     crash     crash                a copy of the disk, as it may be
                 |         |         |                  found when the power is back
               check     check     check                a copy of the ledger

The script itself is never disturbed: what the disk could look like is copied
before each operation, opened, checked, used, and thrown away. Some trials lose
their power again while they recover.

Rejected: running the script anew for each step. It is the same, in quadratic time.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.crash.ledger import Ledger

from headrace import Headrace
from headrace.node import Node
from headrace.testing import FaultDisk, ManualClock, MemoryDisk
from headrace.testing.fault_disk import PowerLoss, keep_nothing

LONG = os.environ.get("HEADRACE_LONG") == "1"
SEED = int(os.environ.get("HEADRACE_SEED", "1"))
# The one operation to lose power at, to repeat a failure.
ONLY_AT = int(os.environ["HEADRACE_OPERATION"]) if "HEADRACE_OPERATION" in os.environ else None

Check = Callable[[FaultDisk, Ledger, ManualClock, random.Random], None]


class InlinePool:
    """A pool without threads, so that operations come in the same order each
    time and a seed repeats a failure."""

    def __init__(self, *ignored: object) -> None:
        pass

    def submit(self, act: Callable[..., None], *given: Any) -> Future[None]:
        future: Future[None] = Future()
        try:
            act(*given)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def shutdown(self) -> None:
        pass


def make_rare_things_common(patch: pytest.MonkeyPatch) -> None:
    """Snapshots, saved indexes and sidecars after a few messages already, and
    snapshots of several batches."""
    patch.setattr("headrace.platform.group_commit.ThreadPoolExecutor", InlinePool)
    patch.setattr("headrace.engine.state_log.SNAPSHOT_BYTES_MIN", 1_200)
    patch.setattr("headrace.engine.state_log.SNAPSHOT_FACTOR", 1)
    patch.setattr("headrace.engine.state_log.BATCH_BYTES", 128)
    patch.setattr("headrace.engine.metadata.SNAPSHOT_BYTES", 2_000)
    patch.setattr("headrace.engine.sidecar.BUFFERED_ROWS_MAX", 4)
    patch.setattr("headrace.engine.producer_note.NOTE_BYTES", 2_000)
    patch.setattr("headrace.log.log._SAVE_INDEX_BYTES", 1_000)


def clock_at(now_ms: int) -> ManualClock:
    return ManualClock(datetime.fromtimestamp(now_ms / 1000, UTC), autoskip=False)


class SeededEntropy:
    """Ids that are the same in each run, and others for each opening, since a
    disk never has the same content twice."""

    def __init__(self, disk: MemoryDisk) -> None:
        written = sum(len(content.data) for content in disk.names.values())
        self._chance = random.Random(f"{getattr(disk, 'operations', 0)}/{written}")

    def random_bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)


def open_on(disk: MemoryDisk, clock: ManualClock) -> Headrace:
    node = Node.open("", disk=disk, clock=clock, entropy=SeededEntropy(disk))
    return Headrace(node, "")


@contextmanager
def opened(disk: FaultDisk, clock: ManualClock) -> Iterator[Headrace]:
    """A handle that is left as it is: what follows is a crash."""
    yield open_on(disk, clock)


class PowerCuts:
    """Tries what a loss of power would do before each operation of a disk."""

    def __init__(
        self, ledger: Ledger, clock: ManualClock, check: Check, *, stride: int, subsets: int
    ) -> None:
        self.trials = 0
        self.operations = 0
        self._ledger = ledger
        self._clock = clock
        self._check = check
        self._stride = stride
        self._subsets = subsets

    def watch(self, disk: FaultDisk) -> None:
        self._disk = disk
        disk.on_operation = self._before

    def _before(self, count: int, name: str, path: str) -> None:
        self.operations += 1
        # A stride that is not always the same, so that it does not fall in step
        # with the script.
        chosen = random.Random(f"{SEED}/{self.operations}").randrange(self._stride) == 0
        if not chosen if ONLY_AT is None else self.operations != ONLY_AT:
            return
        for subset in range(self._subsets):
            try:
                self._try(random.Random(f"{SEED}/{self.operations}/{subset}"))
            except BaseException as error:
                error.add_note(
                    f"power lost before operation {self.operations}, {name} {path}; repeat with: "
                    f"HEADRACE_SEED={SEED} HEADRACE_OPERATION={self.operations} make power-loss"
                )
                raise
            self.trials += 1

    def _try(self, chance: random.Random) -> None:
        ledger = copy.deepcopy(self._ledger)
        # As if nothing unsynced had survived is the plainest case, and as if all
        # had, is that of a killed process.
        choices: list[Any] = [chance, chance, chance, keep_nothing, lambda count: count - 1]
        after = self._disk.crash(chance.choice(choices))
        clock = clock_at(self._clock.now_ms())
        if chance.random() < 0.4:
            after.stop_at = chance.randrange(1, 40)
            try:
                open_on(after, clock)
            except PowerLoss:
                pass
            after = after.crash(chance)
        self._check(after, ledger, clock, chance)
