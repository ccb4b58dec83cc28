"""`python -m benchmarks.metrics`: what it costs to be watched.

    python -m benchmarks.metrics             10,000 partitions
    python -m benchmarks.metrics --quick     tiny: whether it works

A node has 10,000 partitions with a message in each, a stream group that is behind in
all of them and a queue group on a tenth. One process publishes at a steady rate, first
alone and then while another scrapes /metrics every second, with nothing kept from one
scrape to the next. Latency is from when a publish was due, so a stall that delays
several counts for each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from statistics import median

import headrace
from benchmarks import machine
from benchmarks.samples import percentile

TOPICS = 10
RATE = 200
SECONDS = 30.0
SCRAPE_SECONDS = 1.0

_SERVE = "from headrace.cli.main import main; main()"


class Node:
    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", _SERVE, "serve", "--data", str(data), "--log-level", "error",
                "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "",
            ],
            stdout=subprocess.PIPE,
            env={**os.environ, "HEADRACE_METRICS_CACHE_MS": "0"},
            text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        ready = self._process.stdout.readline().removeprefix("ready: ")
        self.doors = dict(part.split(" on ") for part in ready.split(", ")[:-1])

    @property
    def url(self) -> str:
        return f"http://{self.doors['http']}/metrics"

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        # It syncs ten thousand files.
        self._process.wait(600)


def fill(node: Node, handle: headrace.Headrace, partitions: int) -> None:
    each = partitions // TOPICS
    for number in range(TOPICS):
        topic = f"topic-{number}"
        handle.create_topic(topic, partitions=each, durability="os")
        for partition in range(each):
            handle.publish(topic, b"x" * 100, partition=partition)
        body = json.dumps({"topic": topic, "to": "earliest"}).encode()
        url = f"http://{node.doors['http']}/groups/reader/reset"
        asked = urllib.request.Request(url, body, {"content-type": "application/json"})
        urllib.request.urlopen(asked, timeout=60).read()
    handle.queue("topic-0", group="worker").close()


def publish_steadily(handle: headrace.Headrace, seconds: float) -> list[float]:
    """Milliseconds from when each publish was due until it was answered."""
    taken = []
    began = time.perf_counter()
    for number in range(int(seconds * RATE)):
        due = began + number / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        handle.publish("steady", b"x" * 100)
        taken.append((time.perf_counter() - due) * 1000)
    return taken


def scrape_for(url: str, seconds: float) -> list[tuple[float, int]]:
    """Seconds and bytes of each scrape."""
    found = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        size = len(urllib.request.urlopen(url, timeout=60).read())
        found.append((time.perf_counter() - start, size))
        time.sleep(max(0.0, SCRAPE_SECONDS - found[-1][0]))
    return found


def measure(place: Path, partitions: int, seconds: float) -> dict[str, float]:
    node = Node(place / "data")
    try:
        with headrace.connect(node.doors["kafka"]) as handle:
            handle.create_topic("steady", partitions=1, durability="os")
            fill(node, handle, partitions)
            used = node.cpu_seconds()
            first = scrape_for(node.url, 0.001)[0][0]
            used_first = node.cpu_seconds() - used
            publish_steadily(handle, min(2.0, seconds))
            used = node.cpu_seconds()
            alone = publish_steadily(handle, seconds)
            used_alone = node.cpu_seconds() - used
            scraper = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.metrics", "--scrape", node.url, str(seconds)],
                stdout=subprocess.PIPE,
                text=True,
            )
            used = node.cpu_seconds()
            watched = publish_steadily(handle, seconds)
            scrapes = json.loads(scraper.communicate(timeout=120)[0])
            used_watched = node.cpu_seconds() - used
    finally:
        node.stop()
    times = [each[0] for each in scrapes]
    return {
        "partitions": partitions,
        "first scrape, s": first,
        "first scrape, CPU-s of the node": used_first,
        "scrape, s, median": median(times),
        "scrape, s, slowest": max(times),
        "scrape, KB": scrapes[-1][1] / 1000,
        "scrape, CPU-s of the node": max(0.0, used_watched - used_alone) / len(times),
        "publish alone, ms, p50": percentile(alone, 0.5),
        "publish alone, ms, p99": percentile(alone, 0.99),
        "publish while scraped, ms, p50": percentile(watched, 0.5),
        "publish while scraped, ms, p99": percentile(watched, 0.99),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metrics")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it work?")
    parser.add_argument("--directory", type=Path, default=Path(".bench"))
    parser.add_argument("--scrape", nargs=2, metavar=("URL", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scrape:
        url, seconds = arguments.scrape
        print(json.dumps(scrape_for(url, float(seconds))))
        return 0
    place = arguments.directory / "metrics"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name, text in machine.describe(place).items():
        print(f"{name}: {text}")
    try:
        sizes = (100, 1.0) if arguments.quick else (10_000, SECONDS)
        for name, value in measure(place, *sizes).items():
            print(f"{name:34} {value:10.3f}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
