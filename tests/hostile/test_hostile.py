"""A node that is attacked in every way we know of: its memory stays within a stated figure,
its other clients get exactly what they were promised, and it ends as it should.

`make hostile` runs this for two hours (HEADRACE_HOSTILE_SECONDS), and says every minute
what the node holds; then it also holds how long the others wait. Shown in any case
(pytest -s).
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.doors.conftest import DoorsProcess
from tests.hostile.neighbours import Latencies, Neighbours

SECONDS = float(os.environ.get("HEADRACE_HOSTILE_SECONDS", "15"))
IS_LONG = SECONDS >= 600
QUIET_SECONDS = 120 if IS_LONG else 2
PROGRESS_SECONDS = 60
# What docs/node.md promises.
MEMORY_MEGABYTES_MAX = 1_536
P99_FACTOR_MAX = 10
Seen = dict[str, Latencies]


class Memory:
    """What the node holds itself, looked at ten times a second; pages of the log that it
    looks at are the system's."""

    def __init__(self, node: DoorsProcess) -> None:
        self._status = Path(f"/proc/{node.process.pid}/status")
        self._is_over = threading.Event()
        self.megabytes_max = 0.0

    def look(self) -> float:
        text = self._status.read_text()
        [line] = [line for line in text.splitlines() if line.startswith("RssAnon:")]
        megabytes = int(line.split()[1]) / 1024
        self.megabytes_max = max(self.megabytes_max, megabytes)
        return megabytes

    @contextmanager
    def watched(self) -> Iterator[None]:
        watcher = threading.Thread(target=self._watch)
        watcher.start()
        try:
            yield
        finally:
            self._is_over.set()
            watcher.join()

    def _watch(self) -> None:
        began = shown = time.monotonic()
        while not self._is_over.wait(0.1):
            megabytes, now = self.look(), time.monotonic()
            if now - shown >= PROGRESS_SECONDS:
                shown = now
                print(
                    f"{(now - began) / 60:4.0f} min: {megabytes:.0f} MB, "
                    f"{self.megabytes_max:.0f} at most",
                    flush=True,
                )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DoorsProcess]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    process = DoorsProcess(tmp_path / "data", "--log-level", "error")
    yield process
    process.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def attacked(node: DoorsProcess) -> Iterator[dict[str, dict[str, int]]]:
    """Under attack meanwhile; afterwards, what became of each attack."""
    doors = (node.doors[name] for name in ("kafka", "http", "grpc"))
    chosen = os.environ.get("HEADRACE_HOSTILE_ATTACKS", "").split()
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.client", *doors, *chosen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    outcomes: dict[str, dict[str, int]] = {}
    with client:
        assert client.stdout is not None
        assert client.stdin is not None
        try:
            assert client.stdout.readline() == "attacking\n"
            yield outcomes
            client.stdin.close()
            outcomes.update(json.loads(client.stdout.readline()))
        finally:
            client.kill()


async def live_beside(node: DoorsProcess) -> tuple[Neighbours, Seen, Seen]:
    """The neighbours before the attack, during it and after it."""
    neighbours = Neighbours(node.doors["kafka"], node.doors["http"], node.doors["grpc"])
    async with neighbours.connected():
        before = await neighbours.live(QUIET_SECONDS)
        with attacked(node) as outcomes:
            during = await neighbours.live(SECONDS)
        after = await neighbours.live(QUIET_SECONDS)
    show(before, during, after)
    for name, outcome in outcomes.items():
        print(f"{name:34}", *(f"{what} {count}" for what, count in outcome.items()), sep="  ")
    return neighbours, before, during


def show(*phases: Seen) -> None:
    for phase, seen in zip(("before", "during", "after"), phases, strict=True):
        for name, latencies in seen.items():
            halves, p99s = latencies.quantile(0.5), latencies.quantile(0.99)
            print(
                f"{phase:7} {name:6} publish p50 {halves[0]:7.1f} ms  p99 {p99s[0]:7.1f} ms   "
                f"take p50 {halves[1]:7.1f} ms  p99 {p99s[1]:7.1f} ms  of {len(latencies[0])}"
            )


def test_a_hostile_client_costs_memory_within_its_bound_and_no_message(node: DoorsProcess) -> None:
    memory = Memory(node)
    quiet = memory.look()
    with memory.watched():
        neighbours, before, during = asyncio.run(live_beside(node))
    print(
        f"memory: {quiet:.0f} MB before, {memory.megabytes_max:.0f} MB at most, "
        f"{memory.look():.0f} MB after; longest silence {neighbours.silence_seconds_max:.2f} s"
    )
    assert memory.megabytes_max < MEMORY_MEGABYTES_MAX
    assert node.stop() == 0
    if IS_LONG:
        for name, calm in before.items():
            for quiet_ms, busy_ms in zip(
                calm.quantile(0.99), during[name].quantile(0.99), strict=True
            ):
                assert busy_ms < P99_FACTOR_MAX * quiet_ms, (name, quiet_ms, busy_ms)
