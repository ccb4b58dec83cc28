"""Traces: one message by its id or a receipt, and searches."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from headrace.core.trace_values import GroupTrace, MessageTrace, TraceEvent, TraceQuery
from headrace.server.http.route import Call
from headrace.server.http.shown import milliseconds_at, moment, moment_of
from headrace.server.tracing import trace, traces
from headrace.wire.http import trace_bodies as t
from headrace.wire.http.content import shown_bytes, shown_headers, stored_bytes


async def show(call: Call) -> t.ShownTrace:
    return shown_trace(await trace(call.calls, call.path["message"]))


async def search(call: Call) -> t.TracesPage:
    query: t.TraceSearch = call.query
    name, equals, value = (query.header or "").partition("=")
    page = await traces(
        call.calls,
        TraceQuery(
            topic=query.topic,
            key=None if query.key is None else stored_bytes("key", query.key, query.key_encoding),
            header=(name, value.encode() if equals else None) if query.header else None,
            group=query.group,
            outcome=query.outcome,
            since_ms=_instant("since", query.since),
            until_ms=_instant("until", query.until),
        ),
        after=query.after,
        limit=query.limit,
    )
    return t.TracesPage(traces=list(map(shown_trace, page.traces)), next=page.next)


def _instant(name: str, given: str | None) -> int | None:
    return None if given is None else milliseconds_at(name, given)


def shown_trace(trace: MessageTrace) -> t.ShownTrace:
    key, key_encoding = shown_bytes(trace.key)
    return t.ShownTrace(
        id=str(trace.id),
        topic=trace.id.topic,
        partition=trace.id.partition,
        offset=trace.id.offset,
        published_at=moment(trace.published_at_ms),
        key=key,
        headers=shown_headers(trace.headers),
        value_bytes=trace.value_bytes,
        sampled=trace.is_sampled,
        cut=trace.is_cut,
        groups=list(map(_shown_group, trace.groups)),
        events=list(map(_shown_event, trace.events)),
        links=[t.TracedLink(relation=each.relation, id=each.id) for each in trace.links],
        key_encoding=key_encoding or UNSET,
        producer=_or_unset(trace.producer),
        traceparent=_or_unset(trace.traceparent),
        transaction=_or_unset(trace.transaction),
    )


def _shown_group(group: GroupTrace) -> t.TracedGroup:
    return t.TracedGroup(
        group=group.group,
        kind=group.kind,
        state=group.state,
        attempts=group.attempts,
        consumer=_or_unset(group.consumer),
        due=_or_unset(moment(group.due_ms)),
        cursor=UNSET if group.cursor is None else group.cursor,
        committed_at=_or_unset(moment(group.at_ms)),
    )


def _shown_event(event: TraceEvent) -> t.TracedEvent:
    return t.TracedEvent(
        at=moment_of(event.at_ms),
        event=event.kind,
        group=_or_unset(event.group),
        consumer=_or_unset(event.consumer),
        attempt=UNSET if event.attempt is None else event.attempt,
        until=_or_unset(moment(event.until_ms)),
        reason=_or_unset(event.reason),
        error=_or_unset(event.error),
        to=_or_unset(event.to),
    )


def _or_unset(text: str | None) -> str | UnsetType:
    return UNSET if text is None else text
