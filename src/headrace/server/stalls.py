"""Connections that take a place and get nowhere: when one is cut, and how many a client
address may have.

    head     a request's head has to come whole within the limit
    body     a body, or a frame, has to get on by a kilobyte within the limit
    answer   likewise what the client takes of its answers
    idle     a connection without a request may stay silent for longer

What waits for us is never cut: a long poll, a tail, a subscription that answers pings.

A client address may have so many connections at one door, so that one machine cannot
take all the places. Those of this machine are not counted, since a proxy, or every
client of a small installation, may be one of them.

Rejected: a limit on the whole time of a body. Large bodies over slow lines are honest.
"""

from __future__ import annotations

import ipaddress
from collections import Counter

# One byte now and then is not getting on.
PROGRESS_BYTES_MIN = 1024


class Watch:
    """Whether something gets on while it is waited for."""

    __slots__ = ("_began", "_seen")

    def __init__(self) -> None:
        self._began: float | None = None
        self._seen = 0

    def is_stalled(self, now: float, limit_seconds: float, total: int, *, waits: bool) -> bool:
        """`total` is what has come so far, in bytes; it does not matter while nobody waits."""
        if not waits:
            self._began = None
        elif self._began is None or total - self._seen >= PROGRESS_BYTES_MIN:
            self._began, self._seen = now, total
        else:
            return now - self._began >= limit_seconds
        return False


class Addresses:
    """How many connections each client address has at a door."""

    def __init__(self, count_max: int) -> None:
        """0 allows any number."""
        self._count_max = count_max
        self._counts: Counter[str] = Counter()

    def admit(self, host: str) -> bool:
        """Count one more; every one that is counted `leave`s once."""
        if not self._is_counted(host):
            return True
        if self._counts[host] >= self._count_max:
            return False
        self._counts[host] += 1
        return True

    def leave(self, host: str) -> None:
        if self._is_counted(host):
            self._counts[host] -= 1
            if self._counts[host] <= 0:
                del self._counts[host]

    def _is_counted(self, host: str) -> bool:
        if not self._count_max or not host:
            return False
        try:
            return not ipaddress.ip_address(host.partition("%")[0]).is_loopback
        except ValueError:
            return False
