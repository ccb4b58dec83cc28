"""A node that is attacked in every way we know of: its memory stays within a stated figure,
its other clients get exactly what they were promised, and it ends as it should.

`make hostile` runs this for two hours (HEADRACE_HOSTILE_SECONDS), and says every minute
what the node holds; then it also holds how long the others wait. Shown in any case
(pytest -s).

The hostile client runs on the same machine as all others, and takes its processors from
them whatever it attacks. So the others' waiting is compared with how long they wait while
another node beside theirs, the decoy, is attacked in the same way; in turns, since machines
are not equally busy for hours.
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
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.doors.conftest import DoorsProcess
from tests.hostile.neighbours import Neighbours, Seen

SECONDS = float(os.environ.get("HEADRACE_HOSTILE_SECONDS", "15"))
IS_LONG = SECONDS >= 600
TURNS = 6 if IS_LONG else 1
QUIET_SECONDS = 30 if IS_LONG else 2
DECOY_SECONDS = 30 if IS_LONG else 2
PROGRESS_SECONDS = 60
# What docs/node.md promises.
MEMORY_MEGABYTES_MAX = 1_536
P99_FACTOR_MAX = 10


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
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def running(data: Path) -> Iterator[DoorsProcess]:
    """A node that logs errors alone, beside its directory."""
    with log_of(data).open("w") as logs:
        node = DoorsProcess(data, "--log-level", "error", logs=logs)
        try:
            yield node
        finally:
            node.stop()


def log_of(data: Path) -> Path:
    return data.with_suffix(".log")


Outcomes = defaultdict[str, Counter[str]]


@contextmanager
def attacked(node: DoorsProcess, outcomes: Outcomes) -> Iterator[None]:
    """Under attack meanwhile; afterwards, what became of each attack is added."""
    doors = (node.doors[name] for name in ("kafka", "http", "grpc"))
    chosen = os.environ.get("HEADRACE_HOSTILE_ATTACKS", "").split()
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.hostile.client", *doors, *chosen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with client:
        assert client.stdout is not None
        assert client.stdin is not None
        try:
            assert client.stdout.readline() == "attacking\n"
            yield
            client.stdin.close()
            for name, outcome in json.loads(client.stdout.readline()).items():
                outcomes[name].update(outcome)
        finally:
            client.kill()


async def live_beside(node: DoorsProcess, decoys: Path) -> tuple[Neighbours, Seen, Seen]:
    """What the neighbours see while a decoy is attacked, and while their node is."""
    neighbours = Neighbours(node.doors["kafka"], node.doors["http"], node.doors["grpc"])
    before, beside, during, after = (Seen() for _ in range(4))
    outcomes = Outcomes(Counter)
    with running(decoys) as decoy:
        await neighbours.make_topics()
        await neighbours.live(QUIET_SECONDS, before)
        for turn in range(1, TURNS + 1):
            with attacked(decoy, Outcomes(Counter)):
                await neighbours.live(DECOY_SECONDS, beside)
            with attacked(node, outcomes):
                await neighbours.live(SECONDS / TURNS, during)
            print(f"turn {turn} of {TURNS}: {waits(neighbours)}")
            show({"decoy": beside, "during": during})
        await neighbours.live(QUIET_SECONDS, after)
    show({"before": before, "decoy": beside, "during": during, "after": after})
    for name, outcome in outcomes.items():
        print(f"{name:34}", *(f"{what} {count}" for what, count in outcome.items()), sep="  ")
    return neighbours, beside, during


def waits(neighbours: Neighbours) -> str:
    newcomers = sorted(neighbours.newcomers_seconds)
    return (
        f"longest silence {neighbours.silence_seconds_max:.2f} s; new connections waited for "
        f"{newcomers[len(newcomers) // 2]:.2f} s (p50), {newcomers[-1]:.2f} s at most"
    )


def show(phases: dict[str, Seen]) -> None:
    for phase, seen in phases.items():
        for name, latencies in seen.items():
            halves, p99s = latencies.quantile(0.5), latencies.quantile(0.99)
            print(
                f"{phase:7} {name:6} publish p50 {halves[0]:7.1f} ms  p99 {p99s[0]:7.1f} ms   "
                f"take p50 {halves[1]:7.1f} ms  p99 {p99s[1]:7.1f} ms  of {len(latencies[0])}",
                flush=True,
            )


@pytest.mark.usefixtures("many_files")
def test_a_hostile_client_costs_memory_within_its_bound_and_no_message(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        memory = Memory(node)
        quiet = memory.look()
        with memory.watched():
            neighbours, beside, during = asyncio.run(live_beside(node, tmp_path / "decoy"))
        print(
            f"memory: {quiet:.0f} MB before, {memory.megabytes_max:.0f} MB at most, "
            f"{memory.look():.0f} MB after; {waits(neighbours)}"
        )
        assert memory.megabytes_max < MEMORY_MEGABYTES_MAX
        assert node.stop() == 0
    # Nothing that comes from a network is an error of the node's.
    assert log_of(node.data).read_text() == ""
    if IS_LONG:
        for name, calm in beside.items():
            for calm_ms, busy_ms in zip(
                calm.quantile(0.99), during[name].quantile(0.99), strict=True
            ):
                assert busy_ms < P99_FACTOR_MAX * calm_ms, (name, calm_ms, busy_ms)
