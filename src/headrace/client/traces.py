"""Traces: what people ask for, turned into what a backend takes.

an id, a message, a receipt     one trace
key, header, group, ...         a search, page after page
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypedDict

from headrace.client.backend import Backend
from headrace.client.outgoing import bytes_of
from headrace.client.settling import message_id_of
from headrace.client.times import Instant, instant_ms
from headrace.core.trace_values import (
    MessageTrace,
    TraceQuery,
    TraceState,
    check_outcome,
    parse_traced,
)
from headrace.core.values import Receipt

PAGE_ITEMS = 100


class TraceChoice(TypedDict, total=False):
    """Which messages to trace; all of it has to hold."""

    topic: str | None
    key: str | bytes | None
    # A name, or a name and its value.
    header: str | tuple[str, str | bytes] | None
    # Seen by this group; with `outcome`, in this state there.
    group: str | None
    outcome: TraceState | None
    # Published at or after, and before.
    since: Instant | None
    until: Instant | None


def traced_of(given: object) -> str:
    """An id, a message, a receipt or the text of one of them, as text."""
    if isinstance(given, Receipt):
        return given.encode()
    if isinstance(given, str):
        parse_traced(given)
        return given
    return str(message_id_of(given))


def query_of(choice: TraceChoice) -> TraceQuery:
    key, header = choice.get("key"), choice.get("header")
    since, until = choice.get("since"), choice.get("until")
    if isinstance(header, str):
        wanted: tuple[str, bytes | None] | None = (header, None)
    else:
        wanted = None if header is None else (header[0], bytes_of("header", header[1]))
    return TraceQuery(
        topic=choice.get("topic"),
        key=None if key is None else bytes_of("key", key),
        header=wanted,
        group=choice.get("group"),
        outcome=check_outcome(choice.get("outcome")),
        since_ms=None if since is None else instant_ms("since", since),
        until_ms=None if until is None else instant_ms("until", until),
    )


def search(
    backend: Backend, query: TraceQuery, on_looked: Callable[[str], None] = lambda place: None
) -> Iterator[MessageTrace]:
    """Everything that matches, asked for as it is taken. `on_looked` hears how far it
    came, as an id: a page may be empty and have others behind it."""
    after: str | None = None
    while True:
        page = backend.traces(query, after=after, limit=PAGE_ITEMS)
        yield from page.traces
        after = page.next
        if after is None:
            return
        on_looked(after)
