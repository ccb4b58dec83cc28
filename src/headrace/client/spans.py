"""Spans by OpenTelemetry's conventions for messaging, for callers who use OpenTelemetry.

    publish orders    producer    its context goes with the messages, as `traceparent`
    process orders    consumer    continues the message's trace, or is linked to it

Whoever configured OpenTelemetry has imported it. So it is looked for among what is
imported, and never imported from here: who does not use it pays for one lookup. A
library may have imported it with nobody to configure it: then nothing is made, and only
a context that is there already goes on.

A message that brings a `traceparent` of its own keeps it. A span of a handler continues
the message's trace where there is no other one at work, as in a worker; inside of one it
is a part of that and linked to the message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.core.values import Headers, Outgoing, Published

if TYPE_CHECKING:
    from headrace.client.message import LeasedView

TRACEPARENT = "traceparent"
_CARRIED = (TRACEPARENT, "tracestate", "baggage")


def are_on() -> bool:
    """Whether there is somebody to make spans, or a context to send along."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    # Another thread may be about to import it.
    if trace is None or not hasattr(trace, "get_tracer_provider"):
        return False
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return True
    return trace.get_current_span() is not trace.INVALID_SPAN


class Publishing:
    """A publish under way: headers to send along, and what came of it."""

    def __init__(self, span: Any, headers: Headers) -> None:
        self._span = span
        self.headers = headers

    def to(self, messages: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """The messages with the context of the span, if they have none of their own."""
        if not self.headers:
            return messages
        return [
            each
            if any(name == TRACEPARENT for name, _ in each.headers)
            else each._replace(headers=(*each.headers, *self.headers))
            for each in messages
        ]

    def extend(self, headers: Headers) -> Headers:
        if any(name == TRACEPARENT for name, _ in headers):
            return headers
        return (*headers, *self.headers)

    def done(self, topic: str, places: Sequence[Published]) -> None:
        if self._span is not None and len(places) == 1:
            place = places[0]
            self._span.set_attribute("messaging.destination.partition.id", str(place.partition))
            id = f"{topic}:{place.partition}:{place.offset}"
            self._span.set_attribute("messaging.message.id", id)


_SILENT = Publishing(None, ())


@contextmanager
def publishing(topic: str, count: int) -> Iterator[Publishing]:
    if not are_on():
        yield _SILENT
        return
    from opentelemetry import propagate, trace

    attributes = _attributes(topic, "publish", "send")
    if count != 1:
        attributes["messaging.batch.message_count"] = count
    with _tracer().start_as_current_span(
        f"publish {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes
    ) as span:
        carrier: dict[str, str] = {}
        if span.get_span_context().is_valid:
            propagate.inject(carrier)
        yield Publishing(span, tuple((name, text.encode()) for name, text in carrier.items()))


def processing(message: LeasedView[Any]) -> AbstractContextManager[object]:
    """To be entered while the message is being handled."""
    if are_on() or (_is_imported() and _carrier(message)):
        return _process(message)
    return _NOTHING


def _is_imported() -> bool:
    return hasattr(sys.modules.get("opentelemetry.trace"), "get_tracer_provider")


def _carrier(message: LeasedView[Any]) -> dict[str, str]:
    """The context that came with the message."""
    return {
        name: value.decode("latin-1")
        for name, value in message.delivery.headers
        if name in _CARRIED and value is not None
    }


@contextmanager
def _process(message: LeasedView[Any]) -> Iterator[object]:
    from opentelemetry import propagate, trace

    origin = propagate.extract(_carrier(message))
    sent = trace.get_current_span(origin).get_span_context()
    at_work = trace.get_current_span().get_span_context().is_valid
    attributes = _attributes(message.topic, "process", "process")
    attributes["messaging.message.id"] = str(message.id)
    attributes["messaging.destination.partition.id"] = str(message.partition)
    attributes["messaging.consumer.group.name"] = message.group
    attributes["headrace.message.attempt"] = message.attempt
    with _tracer().start_as_current_span(
        f"process {message.topic}",
        context=None if at_work else origin,
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(sent)] if sent.is_valid and at_work else [],
        attributes=attributes,
    ) as span:
        yield span


class _Nothing(AbstractContextManager[object]):
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


_NOTHING = _Nothing()


def _attributes(topic: str, operation: str, kind: str) -> dict[str, str | int]:
    return {
        "messaging.system": "headrace",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }


def _tracer() -> Any:
    from opentelemetry import trace

    return trace.get_tracer("headrace")
