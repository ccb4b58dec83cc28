"""Requests that are over: how long they took, and which of them are written down.

    done(endpoint, began) --> latency --> slow, or everything asked for --> a line

A slow request is written with who asked and its id, at most once a second, with how
many were left out: a disk that stalls makes all of them slow. What a long poll was
asked to wait does not count. With `access_log` every request is written.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from time import perf_counter

from headrace.core.event_log import log_event
from headrace.server.metrics.counting import Counts, Endpoint

SLOW_MS = 500
# One line in so many seconds tells of slow requests.
LINE_SECONDS = 1.0
# What a peer may send as the id of its request.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

_NOBODY: Mapping[str, object] = {}


class Requests:
    def __init__(self, counts: Counts, *, slow_ms: int = SLOW_MS, access: bool = False) -> None:
        """`slow_ms` of 0: no request is slow."""
        self.counts = counts
        self._slow_seconds = slow_ms / 1000 if slow_ms else float("inf")
        # From here on a request is worth a second look.
        self.look_seconds = 0.0 if access else self._slow_seconds
        self._access = access
        self._logger = logging.getLogger("headrace.requests")
        self._written_at = -LINE_SECONDS
        self._not_written = 0

    def done(
        self,
        endpoint: Endpoint,
        began: float,
        *,
        count: int = 1,
        waited_ms: float = 0,
        code: str = "",
        who: Mapping[str, object] = _NOBODY,
        seconds: float | None = None,
    ) -> None:
        """Requests that were read at `began`, by perf_counter, are answered now, after
        `seconds` where somebody has looked at the clock; `waited_ms` is what they had asked
        to wait, and `code` what went wrong."""
        if seconds is None:
            seconds = perf_counter() - began
        endpoint.latency.add(seconds, count)
        if code:
            endpoint.errors[code] += 1
        if seconds >= self.look_seconds:
            self._note(endpoint, seconds, waited_ms / 1000, code, who)

    def _note(
        self,
        endpoint: Endpoint,
        seconds: float,
        waited: float,
        code: str,
        who: Mapping[str, object],
    ) -> None:
        fields = {
            "door": endpoint.door,
            "api": endpoint.api,
            "ms": round(seconds * 1000, 3),
            **({"code": code} if code else {}),
            **who,
        }
        if self._access:
            log_event(self._logger, logging.INFO, "request", **fields)
        if seconds - waited < self._slow_seconds:
            return
        now = perf_counter()
        if now - self._written_at < LINE_SECONDS:
            self._not_written += 1
            return
        log_event(
            self._logger,
            logging.WARNING,
            "slow request",
            **fields,
            not_written_before=self._not_written,
        )
        self._written_at, self._not_written = now, 0


def accepted_id(given: str) -> str:
    """The id that a peer gave its request, if it can be one; else nothing. In a line of the
    log it must not look like another field."""
    return given if REQUEST_ID.fullmatch(given) else ""
