"""What tracing answers: the life of one message, as frozen values.

MessageTrace
  groups    where it stands now, in each group that reads its topic
  events    what happened to it, in order
  links     the same message elsewhere: its dead letter, what it was redriven as
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.core.errors import InvalidArgument, InvalidReceipt
from headrace.core.values import Headers, MessageId, Receipt

TraceKind = Literal[
    "published",
    "delayed",
    "leased",
    "extended",
    "released",
    "nacked",
    "lease-expired",
    "ack-held",
    "ack-aborted",
    "acked",
    "dead-lettered",
    "redriven",
    "expired",
    "cancelled",
    "purged",
]
TraceState = Literal[
    "pending", "delayed", "leased", "retrying", "acked", "dead-lettered", "expired", "cancelled",
    "redriven", "purged", "skipped", "read", "unread",
]  # fmt: skip
TRACE_STATES: tuple[TraceState, ...] = TraceState.__args__  # type: ignore[attr-defined]

Relation = Literal["origin", "dead-letter", "redriven-to", "redriven-from"]


class TraceEvent(NamedTuple):
    """One thing that happened. Whatever does not apply is None."""

    at_ms: int
    kind: TraceKind
    group: str | None = None
    # The consumer that did it or had it done to it.
    consumer: str | None = None
    attempt: int | None = None
    # The end of the delay or of the lease, or when it is delivered again.
    until_ms: int | None = None
    # Why: of a dead letter the rule that gave it up, and what the consumer said. Of a
    # redrive how it was done: "in place" or "as a copy".
    reason: str | None = None
    error: str | None = None
    # Where it went, as an id; an offset that is not known any more is missing.
    to: str | None = None


class GroupTrace(NamedTuple):
    """Where a message stands in one group. A stream group has read it when its
    cursor, committed at `at_ms`, lies behind it; a queue group that began behind it
    has skipped it."""

    group: str
    kind: Literal["queue", "stream"]
    state: TraceState
    attempts: int = 0
    consumer: str | None = None
    # The end of the delay or of the lease, or when it is delivered again.
    due_ms: int | None = None
    cursor: int | None = None
    at_ms: int | None = None


class TraceLink(NamedTuple):
    relation: Relation
    id: str


class MessageTrace(NamedTuple):
    id: MessageId
    # None where the record is not retained any more.
    published_at_ms: int | None
    key: bytes | None
    headers: Headers
    value_bytes: int | None
    # Id and epoch of an idempotent or transactional producer.
    producer: str | None
    # Whether the transaction that it is part of is open or was aborted.
    transaction: Literal["open", "aborted"] | None
    # Whether its whole history is kept, by the topic's setting as it is now.
    is_sampled: bool
    # Whether the state log was cut since the topic was made: of a message that is not
    # sampled and did not fail, what happened before may be missing. Also where so much
    # happened that only the last of it is told.
    is_cut: bool
    groups: tuple[GroupTrace, ...]
    events: tuple[TraceEvent, ...]
    links: tuple[TraceLink, ...]

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that came with it."""
        for name, value in self.headers:
            if name == "traceparent" and value is not None:
                return value.decode("ascii", "replace")
        return None


class TraceQuery(NamedTuple):
    """Which messages to look for; None for any."""

    topic: str | None = None
    key: bytes | None = None
    # A name, and a value unless any will do.
    header: tuple[str, bytes | None] | None = None
    group: str | None = None
    outcome: TraceState | None = None
    # Published at or after, and before.
    since_ms: int | None = None
    until_ms: int | None = None


class TracePage(NamedTuple):
    """Some of what a search finds. It may hold less than was asked for, or nothing,
    and still have a next one: a page also ends when enough was looked at."""

    traces: list[MessageTrace]
    next: str | None


def check_outcome(given: str | None) -> TraceState | None:
    for state in TRACE_STATES:
        if given == state:
            return state
    if given is None:
        return None
    raise InvalidArgument(f"outcome is one of {', '.join(TRACE_STATES)}, not {given!r}")


def parse_traced(text: str) -> MessageId | Receipt:
    """The one message that is meant by its id or by a receipt, as text."""
    if isinstance(text, str) and text.count(":") >= 2:
        return MessageId.parse(text)
    try:
        return Receipt.parse(text)
    except InvalidReceipt:
        raise InvalidArgument(
            f"{text!r:.80} is neither a message id such as orders:0:42 nor a receipt"
        ) from None
