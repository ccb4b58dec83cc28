"""Where the numbers come from: the commit, the machine, the disk."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.samples import Sample, percentile
from benchmarks.sizes import Sizes

# Directories on these never reach a disk, so "durable" would mean nothing.
NOT_A_DISK = {"tmpfs", "ramfs", "devtmpfs"}


def describe(place: Path) -> dict[str, str]:
    return {
        "commit": commit(),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
        "processor": f"{os.cpu_count()} x {_processor()}",
        "system": f"{platform.system()} {platform.release()}, {filesystem_of(place)}",
        "python": platform.python_version(),
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def commit(project: Path = Path(__file__).parent.parent) -> str:
    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=project, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            return ""
        return done.stdout.strip()

    name = git("rev-parse", "--short", "HEAD") or "unknown"
    return f"{name} with changes" if git("status", "--porcelain", "src") else name


def filesystem_of(place: Path) -> str:
    """The type of the filesystem that holds this directory."""
    best, kind = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return kind
    for line in mounts:
        _, mount, found, *_ = line.split()
        inside = place.resolve().is_relative_to(mount)
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def fdatasync(place: Path, sizes: Sizes) -> list[Sample]:
    """What one sync of a little appended data costs here: nobody who promises
    durability answers a lone caller faster."""
    place.mkdir(parents=True)
    descriptor = os.open(place / "probe", os.O_RDWR | os.O_CREAT)
    latencies = []
    try:
        for number in range(sizes.syncs):
            os.pwrite(descriptor, b"x" * 256, number * 256)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            latencies.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return [
        Sample("this disk", "p50", "ms", percentile(latencies, 0.50) * 1000),
        Sample("this disk", "p99", "ms", percentile(latencies, 0.99) * 1000),
    ]


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()
