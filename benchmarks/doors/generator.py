"""The load generator: one process for one system and one row, told what to do as JSON.

    python -m benchmarks.doors.generator '{"client": "http.Http", "address": ..., ...}'

It prints one line of JSON: calls, messages, seconds, latencies, and the processor time
that it used itself and that the server's processes used meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.doors.clients import Client
from benchmarks.samples import percentile

FILL_BATCH = 1_000
TICKS = os.sysconf("SC_CLK_TCK")


class Task(NamedTuple):
    """What one generator measures."""

    client: str
    address: str
    topic: str
    # "publish" or "work", with so many messages a call.
    act: str
    batch: int
    seconds: float
    # Whose processor time counts as the server's.
    pids: Sequence[int]
    # Messages that are there before work begins.
    fill: int


async def measure(task: Task) -> dict[str, Any]:
    module, name = task.client.rsplit(".", 1)
    made: type[Client] = getattr(importlib.import_module(f"benchmarks.doors.{module}"), name)
    client = made(task.address, task.topic)
    workers = client.workers_one if task.batch == 1 else client.workers_many
    await client.open(workers)
    try:
        await client.make()
        if task.act == "work":
            for _ in range(0, task.fill, FILL_BATCH):
                await client.publish(0, min(FILL_BATCH, task.fill))
        # The first calls open, compile and cache.
        await _load(client, task, workers, task.seconds / 5)
        return await _load(client, task, workers, task.seconds)
    finally:
        await client.close()


async def _load(client: Client, task: Task, workers: int, seconds: float) -> dict[str, Any]:
    latencies: list[float] = []
    messages = 0
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    server = cpu_seconds(task.pids)
    until = began + seconds
    ended = began

    async def run(worker: int) -> None:
        nonlocal messages, ended
        while (at := time.perf_counter()) < until:
            if task.act == "publish":
                await client.publish(worker, task.batch)
                done = task.batch
            else:
                done = await client.work(worker, task.batch)
                if not done:
                    return
            ended = time.perf_counter()
            latencies.append(ended - at)
            messages += done

    await asyncio.gather(*(run(worker) for worker in range(workers)))
    return {
        "calls": len(latencies),
        "messages": messages,
        "seconds": ended - began,
        "p50_ms": percentile(latencies, 0.50) * 1000 if latencies else 0,
        "p99_ms": percentile(latencies, 0.99) * 1000 if latencies else 0,
        "client_cpu": time.process_time() - cpu,
        "server_cpu": cpu_seconds(task.pids) - server,
        "workers": workers,
        "promise": client.promise,
    }


def cpu_seconds(pids: Sequence[int]) -> float:
    """What these processes have used, all their threads."""
    used = 0.0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / TICKS
    return used


def main() -> None:
    import uvloop

    task = Task(**json.loads(sys.argv[1]))
    print(json.dumps(uvloop.run(measure(task))))


if __name__ == "__main__":
    main()
