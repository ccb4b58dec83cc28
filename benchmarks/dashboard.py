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
import statistics
import tempfile
import time
from pathlib import Path

import httpx
from tests.browser.chromium import Browser
from tests.doors.conftest import DoorsProcess

from benchmarks import machine

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
                look = _look_seconds(http)
            with Browser(Path(scratch)) as browser:
                found = [_open(browser, f"{node.http}/dashboard") for _ in range(runs)]
        finally:
            node.stop()
    return {
        "partitions": partitions,
        "painted ms": statistics.median(each["painted"] for each in found),
        "filled ms": statistics.median(each["filled"] for each in found),
        "requests": statistics.median(each["requests"] for each in found),
        "look ms": 1000 * look,
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


def _look_seconds(http: httpx.Client) -> float:
    """Processor time of the node for one look: with a look each time, less without."""

    def spent(times: int, pause: float) -> float:
        before = http.get("/node").json()["cpu_seconds"]
        for _ in range(times):
            http.get("/overview").raise_for_status()
            time.sleep(pause)
        return float(http.get("/node").json()["cpu_seconds"]) - before

    anew = spent(10, 1.1)
    kept = spent(10, 0.0)
    return max(0.0, (anew - kept) / 10)


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
        print("| " + " | ".join(f"{value:,.0f}" for value in row.values()) + " |")


if __name__ == "__main__":
    main()
