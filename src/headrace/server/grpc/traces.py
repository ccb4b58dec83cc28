"""Traces: one message by its id or a receipt, and searches."""

from __future__ import annotations

from typing import Any

from headrace.core.trace_values import (
    GroupTrace,
    MessageTrace,
    TraceEvent,
    TraceQuery,
    check_outcome,
)
from headrace.server.grpc.measured import MeasuredCall
from headrace.server.grpc.shown import given, page_limit, shown_headers, shown_id
from headrace.server.tracing import trace, traces
from headrace.wire.grpc.generated import headrace_pb2 as pb


class Traces:
    async def show(self, request: Any, call: MeasuredCall) -> Any:
        return _shown_trace(await trace(call.calls, request.message))

    async def search(self, request: Any, call: MeasuredCall) -> Any:
        page = await traces(
            call.calls,
            _query_in(request),
            after=given(request, "after"),
            limit=page_limit(request),
        )
        return pb.SearchTracesResponse(traces=map(_shown_trace, page.traces), next=page.next)


def _query_in(request: Any) -> TraceQuery:
    header = given(request, "header")
    return TraceQuery(
        topic=given(request, "topic"),
        key=given(request, "key"),
        header=None if header is None else (header.name, given(header, "value")),
        group=given(request, "group"),
        outcome=check_outcome(given(request, "outcome")),
        since_ms=given(request, "since_ms"),
        until_ms=given(request, "until_ms"),
    )


def _shown_trace(trace: MessageTrace) -> Any:
    return pb.Trace(
        id=shown_id(trace.id),
        published_at_ms=trace.published_at_ms,
        key=trace.key,
        headers=shown_headers(trace.headers),
        value_bytes=trace.value_bytes,
        producer=trace.producer,
        transaction=trace.transaction,
        sampled=trace.is_sampled,
        cut=trace.is_cut,
        groups=map(_shown_group, trace.groups),
        events=map(_shown_event, trace.events),
        links=[pb.TraceLink(relation=each.relation, id=each.id) for each in trace.links],
    )


def _shown_group(group: GroupTrace) -> Any:
    return pb.TraceGroup(
        group=group.group,
        kind=group.kind,
        state=group.state,
        attempts=group.attempts,
        consumer=group.consumer,
        due_ms=group.due_ms,
        cursor=group.cursor,
        committed_at_ms=group.at_ms,
    )


def _shown_event(event: TraceEvent) -> Any:
    named = event._asdict()
    return pb.TraceEvent(event=named.pop("kind"), **named)
