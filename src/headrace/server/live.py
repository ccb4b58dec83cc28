"""The last minutes of the node: a sample every two seconds, in a ring.

    counts    what went in and out, how long requests and syncs took: added up all along
    survey    what is ready, in work, delayed, given up: looked at now
       |
    Sample -> ring of ten minutes

A sample is the difference between two looks. They are taken whether somebody watches
or not, or there would be nothing to see when somebody begins to. A look rests for
fifty times as long as it took: it never has more than a fiftieth of a core.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from headrace.core import limits
from headrace.core.quantiles import quantile_ms
from headrace.server.metrics.counting import Counts
from headrace.server.service import Service
from headrace.server.survey import Picture, Survey

SAMPLE_SECONDS = 2.0
REST_FACTOR = 50
REST_SECONDS_MAX = 10.0

# What publishing is called at each door.
PUBLISHING = frozenset(
    (
        ("kafka", "Produce"),
        ("http", "POST /produce"),
        ("http", "POST /topics/{topic}/messages"),
        ("http", "POST /messages"),
        ("websocket", "Enqueue"),
        ("sdk", "publish"),
        ("sdk", "publish_values"),
        ("sdk", "publish_batches"),
        ("grpc", "Messages/Publish"),
        ("grpc", "Messages/PublishBatch"),
    )
)


class Sample(NamedTuple):
    at_ms: int
    # Per second since the sample before.
    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float
    failures: float
    # Of half and of all but one in a hundred; None where nothing happened.
    publish_p50_ms: float | None
    publish_p99_ms: float | None
    sync_p99_ms: float | None
    loop_lag_p99_ms: float | None
    # Now.
    ready: int
    waiting: int
    leased: int
    delayed: int
    letters: int
    lag: int


class Totals(NamedTuple):
    """What was added up until now."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    publishing: list[int]
    syncs: list[int]
    loop_lag: list[int]


class Live:
    def __init__(self, service: Service, survey: Survey) -> None:
        self._service = service
        self._survey = survey
        self._task: asyncio.Task[None] | None = None
        self.samples: deque[Sample] = deque(maxlen=limits.LIVE_SAMPLES_MAX)

    def open(self) -> None:
        self._task = self._service.loop.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        before: tuple[Picture, Totals] | None = None
        while True:
            began = time.thread_time()
            try:
                now = await self._survey.look(), totals_of(self._service.counts)
            except Exception:
                self._service.logger.exception("looking at the node failed")
                await asyncio.sleep(REST_SECONDS_MAX)
                continue
            if before is not None and now[0] is not before[0]:
                self.samples.append(sample_between(*before, *now, self._service.counts))
            before = now
            # What others did meanwhile is in it too, which errs on the gentle side.
            worked = time.thread_time() - began
            await asyncio.sleep(min(max(SAMPLE_SECONDS, REST_FACTOR * worked), REST_SECONDS_MAX))


def totals_of(counts: Counts) -> Totals:
    rows = counts.rows.values()
    publishing = [0] * (len(counts.endpoint("kafka", "Produce").latency.bounds) + 1)
    for place in PUBLISHING & counts.endpoints.keys():
        for index, count in enumerate(counts.endpoints[place].latency.counts):
            publishing[index] += count
    return Totals(
        sum(row.messages_in for row in rows),
        sum(row.messages_out for row in rows),
        sum(row.bytes_in for row in rows),
        sum(row.bytes_out for row in rows),
        publishing,
        list(counts.syncs.counts),
        list(counts.loop_lag.counts),
    )


def sample_between(
    before: Picture, earlier: Totals, after: Picture, now: Totals, counts: Counts
) -> Sample:
    seconds = max(0.001, (after.at_ms - before.at_ms) / 1000)
    failures = ready = waiting = leased = delayed = lag = 0
    # There may be ten thousand, and they are gone through in one piece.
    for name, each in after.groups.items():
        known = before.groups.get(name)
        if known is not None and each.failed > known.failed:
            failures += each.failed - known.failed
        ready += each.ready
        waiting += each.waiting
        leased += each.leased
        delayed += each.delayed + each.retrying
        if each.kind == "stream":
            lag += each.lag
    published = counts.endpoint("kafka", "Produce").latency
    took = _between(earlier.publishing, now.publishing)
    return Sample(
        at_ms=after.at_ms,
        messages_in=(now.messages_in - earlier.messages_in) / seconds,
        messages_out=(now.messages_out - earlier.messages_out) / seconds,
        bytes_in=(now.bytes_in - earlier.bytes_in) / seconds,
        bytes_out=(now.bytes_out - earlier.bytes_out) / seconds,
        failures=failures / seconds,
        publish_p50_ms=quantile_ms(published.bounds, took, 0.5),
        publish_p99_ms=quantile_ms(published.bounds, took, 0.99),
        sync_p99_ms=quantile_ms(counts.syncs.bounds, _between(earlier.syncs, now.syncs), 0.99),
        loop_lag_p99_ms=quantile_ms(
            counts.loop_lag.bounds, _between(earlier.loop_lag, now.loop_lag), 0.99
        ),
        ready=ready,
        waiting=waiting,
        leased=leased,
        delayed=delayed,
        letters=sum(after.letters.values()),
        lag=lag,
    )


def _between(earlier: Sequence[int], now: Sequence[int]) -> list[int]:
    return [late - early for early, late in zip(earlier, now, strict=True)]
