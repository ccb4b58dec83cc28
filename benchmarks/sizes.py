"""How much each row does: the full set, and one so small that a test can run it."""

from __future__ import annotations

from typing import NamedTuple

VALUE_BYTES = 100


class Sizes(NamedTuple):
    # How often a row of throughput is repeated; its medians are shown.
    runs: int
    seconds: float
    threads: int
    publish_batch: int
    work_batch: int
    # What waits in a queue before its consumers are timed. Peers have less,
    # since filling them takes longer than emptying them.
    backlog: int
    peer_backlog: int
    syncs: int
    pending: int
    # Of the pending ones, when a process is killed and its directory reopened.
    acked: int
    delayed: int
    leased: int
    late_seconds: int
    late_per_second: int
    late_delayed: int
    idle_seconds: float
    idle_delayed: int
    # Worked off with tracing off, by default and of all.
    traced: int
    # What waits in several priorities, and how much of it is worked off.
    mixed_backlog: int
    mixed_worked: int


FULL = Sizes(
    runs=5,
    seconds=2.0,
    threads=16,
    publish_batch=1_000,
    work_batch=100,
    backlog=300_000,
    peer_backlog=1_000,
    syncs=1_000,
    pending=1_000_000,
    acked=100_000,
    delayed=100_000,
    leased=10_000,
    late_seconds=20,
    late_per_second=1_000,
    late_delayed=1_000_000,
    idle_seconds=60.0,
    idle_delayed=100_000,
    traced=60_000,
    mixed_backlog=200_000,
    mixed_worked=10_000,
)

QUICK = Sizes(
    runs=1,
    seconds=0.05,
    threads=4,
    publish_batch=100,
    work_batch=10,
    backlog=500,
    peer_backlog=20,
    syncs=20,
    pending=5_000,
    acked=500,
    delayed=500,
    leased=100,
    late_seconds=1,
    late_per_second=100,
    late_delayed=1_000,
    idle_seconds=0.2,
    idle_delayed=500,
    traced=200,
    mixed_backlog=500,
    mixed_worked=100,
)
