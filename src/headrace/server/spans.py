"""The node's own spans of sampled messages: published, leased, acked.

    publish orders   a moment: when the record was published
    lease orders     from the lease to its end, whichever that is; an error if it failed
    ack orders       a moment

They are made afterwards, from what the logs say, a second's worth at a time: nobody who
publishes or acks waits for them. A message that came with a `traceparent` has its spans
in that trace; one without has a trace of its own, while it is remembered.

Rejected: spans around the calls. One call may be about ten thousand messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from headrace.engine import state as events
from headrace.engine.partition import Partition
from headrace.engine.runs import pairs, runs_of
from headrace.engine.sampling import Sample
from headrace.engine.state_reading import SegmentTwins, read_events
from headrace.server.service import Service

EMIT_SECONDS = 1.0
# Of one partition and one second; more are left out.
SPANS_MAX = 1_000
REMEMBERED_MAX = 10_000

Settled = events.Acked | events.Retried | events.LeaseEnded | events.MoveIntended | events.Released


class _Place(NamedTuple):
    """Up to where a partition's logs were looked at."""

    data: int
    state: int


class _Lease(NamedTuple):
    at_ms: int
    owner: str
    attempt: int


class NodeSpans:
    def __init__(self, service: Service, provider: Any) -> None:
        self._service = service
        self._provider = provider
        self._tracer = provider.get_tracer("headrace")
        # What was there before the node began is told of by nobody.
        self._places = {each: _ends(each) for each in service.broker.topics}
        self._contexts: OrderedDict[tuple[Partition, int], Any] = OrderedDict()
        self._leases: OrderedDict[tuple[Partition, int, int], _Lease] = OrderedDict()
        self._task = service.loop.create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        with contextlib.suppress(Exception):
            await self._emit_all()
        # It sends what is left, and waits for that.
        await self._service.loop.run_in_executor(None, self._provider.shutdown)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EMIT_SECONDS)
            try:
                await self._emit_all()
            except Exception:
                # Nothing depends on it.
                self._service.logger.exception("spans failed")

    async def _emit_all(self) -> None:
        for partition in list(self._service.broker.topics):
            settings = partition.topic.settings
            if partition.topic.is_internal or not settings.trace_sample:
                continue
            before, now = self._places.get(partition, _Place(0, 0)), _ends(partition)
            if before != now and partition.is_leader:
                self._places[partition] = now
                sample = Sample(partition.topic.id, partition.index, settings.trace_sample)
                self._emit_published(partition, sample, before.data, now.data)
                await self._emit_settled(partition, sample, before.state, now.state)

    def _emit_published(self, partition: Partition, sample: Sample, start: int, end: int) -> None:
        chosen = list(islice(sample.chosen_in(start, end), SPANS_MAX))
        for record in partition.read(runs_of(chosen)):
            context = _context_in(record.headers)
            span = self._start("publish", "send", partition, record.offset, record.timestamp_ms,
                               context)  # fmt: skip
            span.end(record.timestamp_ms * 1_000_000)
            self._remember(partition, record.offset, span if context is None else context)

    async def _emit_settled(
        self, partition: Partition, sample: Sample, start: int, end: int
    ) -> None:
        if partition.state is None or start >= end:
            return
        twins = SegmentTwins(partition.state.log, start, end)
        with contextlib.closing(twins):
            found = await self._service.loop.run_in_executor(None, _chosen, twins, sample)
        for offset, event in found:
            if isinstance(event, events.Granted):
                lease = _Lease(event.at, event.owner, _attempt(event, offset))
                self._leases[partition, offset, event.group] = lease
                if len(self._leases) > REMEMBERED_MAX:
                    self._leases.popitem(last=False)
            else:
                self._emit_lease(partition, offset, event)

    def _emit_lease(self, partition: Partition, offset: int, event: Settled) -> None:
        lease = self._leases.pop((partition, offset, event.group), None)
        if lease is None:
            return
        from opentelemetry.trace import StatusCode

        context = self._context_of(partition, offset)
        groups = self._service.broker.topics.catalog.groups_by_id
        group = groups[event.group].name if event.group in groups else f"#{event.group}"
        span = self._start("lease", "receive", partition, offset, lease.at_ms, context)
        span.set_attribute("messaging.consumer.group.name", group)
        span.set_attribute("messaging.client.id", lease.owner)
        span.set_attribute("headrace.message.attempt", lease.attempt)
        if isinstance(event, events.Retried | events.MoveIntended):
            span.set_status(StatusCode.ERROR, event.error or "given back")
        elif isinstance(event, events.LeaseEnded):
            span.set_status(StatusCode.ERROR, "the lease ended without an answer")
        span.end(event.at * 1_000_000)
        if isinstance(event, events.Acked):
            acked = self._start("ack", "settle", partition, offset, event.at, context)
            acked.set_attribute("messaging.consumer.group.name", group)
            acked.end(event.at * 1_000_000)

    def _start(
        self, what: str, kind: str, partition: Partition, offset: int, at_ms: int, context: Any
    ) -> Any:
        topic = partition.topic.name
        return self._tracer.start_span(
            f"{what} {topic}",
            context=context,
            start_time=at_ms * 1_000_000,
            attributes={
                "messaging.system": "headrace",
                "messaging.operation.name": what,
                "messaging.operation.type": kind,
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition.index),
                "messaging.message.id": f"{topic}:{partition.index}:{offset}",
            },
        )

    # Contexts.

    def _context_of(self, partition: Partition, offset: int) -> Any:
        known = self._contexts.get((partition, offset))
        if known is not None:
            return known
        for record in partition.read([offset, offset + 1]):
            return _context_in(record.headers)
        return None

    def _remember(self, partition: Partition, offset: int, known: Any) -> None:
        from opentelemetry import trace

        if isinstance(known, trace.Span):
            known = trace.set_span_in_context(known)
        self._contexts[partition, offset] = known
        if len(self._contexts) > REMEMBERED_MAX:
            self._contexts.popitem(last=False)


def _ends(partition: Partition) -> _Place:
    state = 0 if partition.state is None else partition.state.log.end_offset
    return _Place(partition.high_watermark, state)


def _context_in(headers: tuple[tuple[str, bytes | None], ...]) -> Any:
    """The context that a message brought, or None."""
    from opentelemetry import propagate, trace

    carrier = {
        name: value.decode("latin-1")
        for name, value in headers
        if name in ("traceparent", "tracestate") and value is not None
    }
    context = propagate.extract(carrier) if carrier else None
    if context is None or not trace.get_current_span(context).get_span_context().is_valid:
        return None
    return context


def _chosen(twins: SegmentTwins, sample: Sample) -> list[tuple[int, events.Granted | Settled]]:
    return list(islice(_each_chosen(twins, sample), SPANS_MAX))


def _each_chosen(
    twins: SegmentTwins, sample: Sample
) -> Iterator[tuple[int, events.Granted | Settled]]:
    is_snapshot = False
    for _, placed in read_events(twins):
        for _, event in placed:
            if isinstance(event, events.SnapshotPartition | events.SnapshotEnd):
                is_snapshot = isinstance(event, events.SnapshotPartition)
            elif not is_snapshot and isinstance(event, events.Granted | Settled):
                for start, end in pairs(event.runs):
                    for offset in sample.chosen_in(start, end):
                        yield offset, event


def _attempt(event: events.Granted, offset: int) -> int:
    for (start, end), attempt in zip(pairs(event.runs), event.attempts, strict=True):
        if start <= offset < end:
            return attempt
    return 0
