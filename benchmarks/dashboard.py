"""`python -m benchmarks.dashboard`: the first view of the dashboard, on large nodes.

    partitions   on how many the node has, each in topics of 1,000
    painted      until the first text is on the page
    filled       until the overview shows the node's numbers
    look         processor time of one look over the node, which serves all who watch

Debian's Chromium opens the page five times, each time without anything in its cache;
the median is shown. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import httpx
from tests.browser.chromium import Browser
from tests.doors.conftest import DoorsProcess

from benchmarks import machine
from headrace.calls import Face
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.loop_calls import Calls
from headrace.server.service import Service
from headrace.server.survey import Survey

RUNS = 5
TOPIC_PARTITIONS = 1_000
FILLED = "document.querySelector('main .head p')?.innerText.includes('partitions')"


def measure(partitions: int, runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        node = DoorsProcess(Path(scratch) / "data")
        try:
            with httpx.Client(base_url=node.http, timeout=300) as http:
                left = partitions
                while left > 0:
                    count = min(left, TOPIC_PARTITIONS)
                    body = {"name": f"topic-{left}", "partitions": count}
                    http.post("/topics", json=body).raise_for_status()
                    left -= count
            with Browser(Path(scratch)) as browser:
                found = [_open(browser, f"{node.http}/dashboard") for _ in range(runs)]
        finally:
            node.stop()
    return {
        "partitions": partitions,
        "painted ms": statistics.median(each["painted"] for each in found),
        "filled ms": statistics.median(each["filled"] for each in found),
        "requests": statistics.median(each["requests"] for each in found),
        "look ms": 1000 * _look_seconds(partitions),
    }


def _open(browser: Browser, url: str) -> dict[str, float]:
    page = browser.open("about:blank")
    page.call("Network.setCacheDisabled", cacheDisabled=True)
    page.requests.clear()
    page.go(url)
    page.wait(FILLED)
    painted, filled = page.run(
        "[performance.getEntriesByName('first-contentful-paint')[0].startTime, performance.now()]"
    )
    requests = float(len(page.requests))
    page.go("about:blank")
    return {"painted": painted, "filled": filled, "requests": requests}


def _look_seconds(partitions: int) -> float:
    """Processor time of one look, in this process and on a disk in memory."""

    async def look() -> float:
        clock, entropy, disk = SystemClock(), SystemEntropy(), MemoryDisk()
        broker = Broker(disk, entropy, clock.now_ms())
        service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="benchmark")
        calls = Calls(service, door="benchmark")
        for left in range(partitions, 0, -TOPIC_PARTITIONS):
            count = min(left, TOPIC_PARTITIONS)
            await calls.run(Face.create_topic, f"topic-{left}", partitions=count)
        took = []
        for _ in range(RUNS):
            began = time.thread_time()
            await Survey(service).look()
            took.append(time.thread_time() - began)
        await service.close()
        return statistics.median(took)

    return asyncio.run(look())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard")
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 10_000])
    parser.add_argument("--runs", type=int, default=RUNS)
    arguments = parser.parse_args()
    rows = [measure(each, arguments.runs) for each in arguments.partitions]
    for name, value in machine.describe(Path(tempfile.gettempdir())).items():
        print(f"{name}: {value}")
    print()
    print("| " + " | ".join(rows[0]) + " |")
    print("|" + "---|" * len(rows[0]))
    for row in rows:
        print(
            "| "
            + " | ".join(
                f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in row.values()
            )
            + " |"
        )


if __name__ == "__main__":
    main()
