"""The grant: what one lease call gave out with one deadline; and how leases end badly."""

from __future__ import annotations

from typing import NamedTuple

from headrace.engine.latency import Since
from headrace.engine.runs import Runs


class Grant:
    __slots__ = ("at_ms", "live", "max_attempts", "nonce", "owner", "runs", "since", "until_ms")

    def __init__(self, owner: str, nonce: int, at_ms: int, until_ms: int, runs: Runs) -> None:
        self.owner = owner
        self.nonce = nonce
        self.at_ms = at_ms
        self.until_ms = until_ms
        self.runs = runs
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
