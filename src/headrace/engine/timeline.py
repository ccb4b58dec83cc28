"""The timeline: events of the state log as the story of one message.

    Granted          leased, by whom, until when, which attempt
    Retried          nacked, and when it comes again
    MoveIntended     dead-lettered, expired or redriven, and to where
    Revived          redriven, in place
    AckHeld + marker ack-held, then acked or ack-aborted
    Cut              nothing of this happened: the message at that offset was lost, and
                     another has its place

What is not written anywhere since it follows from the record itself, that it was
published and delayed, comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.core.trace_values import TraceEvent
from headrace.engine import state as events
from headrace.engine.history import Happened
from headrace.engine.runs import pairs
from headrace.engine.state_log import TransactionDecided
from headrace.engine.window import EXPIRED
from headrace.record import Record, read_attributes

# How a redrive brought a message back.
IN_PLACE = "in place"
COPIED = "as a copy"


class Copy(NamedTuple):
    """A copy that a move makes of a message: the event that began it, and which of the
    told ones says so."""

    event: events.MoveIntended
    told: int


class Timeline:
    def __init__(self, offset: int, name_of: Callable[[int], str | None]) -> None:
        """`name_of` gives the name of a group by its number."""
        self._offset = offset
        self._name_of = name_of
        self.events: list[TraceEvent] = []
        self.copies: list[Copy] = []
        # Where each group began to read.
        self.starts: dict[int, int] = {}
        self._held: dict[tuple[int, int], str] = {}

    def tell(self, happened: Sequence[Happened]) -> None:
        for each in happened:
            self._tell(each)

    def begin(self, record: Record, due_ms: int | None) -> None:
        """Put the record's own story before the rest. It comes at `due_ms`; None where
        that means nothing."""
        published_ms = record.timestamp_ms
        first = [TraceEvent(published_ms, "published")]
        if due_ms is not None:
            # By a clock that was set since, it may be due before it was published.
            if read_attributes(record.headers, published_ms).deliver_at_ms > published_ms:
                first.append(TraceEvent(published_ms, "delayed", until_ms=due_ms))
        self.events[:0] = first
        self.copies = [copy._replace(told=copy.told + len(first)) for copy in self.copies]

    def _tell(self, happened: Happened) -> None:
        event = happened.event
        match event:
            case events.Cut():
                if event.end <= self._offset:
                    self.events, self.copies, self._held = [], [], {}
            case events.Opened():
                self.starts[event.group] = event.start
            case events.Cancelled():
                self.events.append(TraceEvent(event.at, "cancelled"))
            case TransactionDecided():
                for group, producer in list(self._held):
                    if producer == event.producer:
                        self._decide(group, producer, event.at, event.commit)
            case events.HeldDecided():
                self._decide(event.group, event.producer, event.at, event.commit)
            case _:
                name = happened.group or self._name_of(event.group) or f"#{event.group}"
                told = self._told(event, name)
                if told is not None:
                    self.events.append(told)

    def _decide(self, group: int, producer: int, at_ms: int, commit: bool) -> None:
        who = self._held.pop((group, producer), None)
        if who is not None:
            name = self._name_of(group) or f"#{group}"
            self.events.append(TraceEvent(at_ms, "acked" if commit else "ack-aborted", name, who))

    def _told(self, event: events.MessageEvent, group: str) -> TraceEvent | None:
        match event:
            case events.Granted():
                return TraceEvent(
                    event.at, "leased", group, event.owner,
                    attempt=self._attempt(event), until_ms=event.until,
                )  # fmt: skip
            case events.Acked():
                return TraceEvent(event.at, "acked", group, event.who)
            case events.Retried():
                return TraceEvent(
                    event.at, "nacked", group, event.who, until_ms=event.due, error=event.error
                )
            case events.LeaseEnded():
                return TraceEvent(event.at, "lease-expired", group)
            case events.Released():
                return TraceEvent(event.at, "released", group, event.who or None)
            case events.Extended():
                return TraceEvent(event.at, "extended", group, event.owner, until_ms=event.until)
            case events.Expired():
                return TraceEvent(event.at, "expired", group)
            case events.MoveIntended():
                self.copies.append(Copy(event, len(self.events)))
                return self._moved(event, group)
            case events.Revived():
                return TraceEvent(event.at, "redriven", group, reason=IN_PLACE)
            case events.Purged():
                return TraceEvent(event.at, "purged", group, event.who or None)
            case events.AckHeld():
                self._held[event.group, event.producer] = event.who
                return TraceEvent(event.at, "ack-held", group, event.who)
            case events.MoveDone():
                # What was intended happens; when it was done is nobody's question.
                return None

    def _attempt(self, event: events.Granted) -> int | None:
        for (start, end), attempt in zip(pairs(event.runs), event.attempts, strict=True):
            if start <= self._offset < end:
                return attempt
        return None

    @staticmethod
    def _moved(event: events.MoveIntended, group: str) -> TraceEvent:
        if event.redrive:
            way = IN_PLACE if event.in_place else COPIED
            return TraceEvent(event.at, "redriven", group, reason=way)
        return TraceEvent(
            event.at,
            "expired" if event.outcome == EXPIRED else "dead-lettered",
            group,
            event.who or None,
            reason=event.reason,
            error=event.error,
        )
