"""The grant: what one lease call gave out with one deadline; and how leases end badly."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from headrace.engine.latency import Since
from headrace.engine.runs import Runs, pairs
from headrace.engine.window import Window

# What ends a lease beside its deadline. These numbers are on disk.
NOTHING = 0
# The end of the process that leased, where it has opened the directory itself.
PROCESS = 1
# The end of a connection, and of the grace behind it: of the SDK, of a WebSocket, of a
# `Consume` stream of gRPC.
CLIENT, SOCKET, STREAM = 2, 3, 4
# The end of a connection of Kafka's share consumers, which have no grace.
SHARE = 5


class Grant:
    __slots__ = (
        "at_ms", "live", "max_attempts", "nonce", "owner", "runs", "since", "tie", "until_ms",
    )  # fmt: skip

    def __init__(
        self, owner: str, nonce: int, at_ms: int, until_ms: int, runs: Runs, tie: int
    ) -> None:
        self.owner = owner
        self.nonce = nonce
        self.at_ms = at_ms
        self.until_ms = until_ms
        self.runs = runs
        self.tie = tie
        self.live = 0
        # Only messages that bring a maximum of their own.
        self.max_attempts: dict[int, int] = {}
        # Since when its messages waited; not known of leases from before a restart.
        self.since: Since | None = None


class Failure(NamedTuple):
    at_ms: int
    error: str | None


class Overdue(NamedTuple):
    """Leases that ran out: ready again, or out of attempts."""

    ended: Runs
    exhausted: list[int]


def count_attempts(window: Window, runs: Runs, more: int = 1) -> tuple[Runs, list[int]]:
    """The runs, split where the delivery count differs, with the count that each will have
    after `more` deliveries."""
    split: Runs = []
    attempts: list[int] = []
    columns = window.attempts_of(runs)
    if columns and columns.count(columns[0]) == len(columns):
        return runs.copy(), [min(columns[0] + more, 255)] * (len(runs) // 2)
    reached = 0
    for start, end in pairs(runs):
        column = columns[reached : reached + end - start]
        reached += end - start
        if column.count(column[0]) == len(column):
            split += (start, end)
            attempts.append(min(column[0] + more, 255))
            continue
        for before, group in groupby(column):
            size = sum(1 for _ in group)
            split += (start, start + size)
            attempts.append(min(before + more, 255))
            start += size
    return split, attempts
