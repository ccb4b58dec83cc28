"""The bodies of traces: where a message is, and what happened to it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from headrace.core.trace_values import Relation, TraceKind, TraceState
from headrace.wire.http.bodies import Answer, PageQuery


class TraceSearch(PageQuery):
    """Which messages to trace; all of it has to hold. `header` is `name=value`, or a
    name alone; `since` and `until` are about the time of publishing."""

    topic: str | None = None
    key: str | None = None
    key_encoding: Literal["base64"] | None = None
    header: Annotated[str, Meta(min_length=1)] | None = None
    group: str | None = None
    outcome: TraceState | None = None
    since: str | None = None
    until: str | None = None


class TracedGroup(Answer):
    """Where the message stands in one group. `due` is the end of a delay or of a lease,
    or when it is delivered again; a stream group has a cursor."""

    group: str
    kind: str
    state: TraceState
    attempts: int
    consumer: str | UnsetType = UNSET
    due: str | UnsetType = UNSET
    cursor: int | UnsetType = UNSET
    committed_at: str | UnsetType = UNSET


class TracedEvent(Answer):
    """One thing that happened. `to` is the id of a dead letter or of a redriven copy,
    without an offset where that is not known any more."""

    at: str
    event: TraceKind
    group: str | UnsetType = UNSET
    consumer: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    until: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    to: str | UnsetType = UNSET


class TracedLink(Answer):
    relation: Relation
    id: str


class ShownTrace(Answer):
    """The life of one message. Without `published_at` its record is not retained any
    more; `sampled` says whether its whole history is kept, `cut` whether the state log
    has been cut since the topic was made."""

    id: str
    topic: str
    partition: int
    offset: int
    published_at: str | None
    key: str | None
    headers: dict[str, str | None]
    value_bytes: int | None
    sampled: bool
    cut: bool
    groups: list[TracedGroup]
    events: list[TracedEvent]
    links: list[TracedLink]
    key_encoding: str | UnsetType = UNSET
    producer: str | UnsetType = UNSET
    traceparent: str | UnsetType = UNSET
    transaction: str | UnsetType = UNSET


class TracesPage(Answer):
    """It may hold less than `limit`, or nothing, and still have a `next`."""

    traces: list[ShownTrace]
    next: str | None
