"""What happened, written down by whoever made it happen: the model for traces.

One partition, any number of groups. It knows nothing of logs: every message has a state
and a list of events for each group, changed as the rules of the queue say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.core.trace_values import TraceEvent, TraceState
from headrace.core.values import MessageId

VISIBILITY_MS = 1000
BACKOFF_MS = 200
ATTEMPTS_MAX = 2
SETTINGS = {
    "visibility_ms": VISIBILITY_MS,
    "max_attempts": ATTEMPTS_MAX,
    "backoff_ms": BACKOFF_MS,
    "backoff_factor": 1.0,
    "leases_per_consumer_max": 1000,
}


@dataclass
class Seen:
    """A message in one group."""

    state: TraceState
    attempts: int = 0
    consumer: str | None = None
    due_ms: int | None = None
    is_revived: bool = False
    events: list[TraceEvent] = field(default_factory=list)


@dataclass
class Message:
    id: MessageId
    published_ms: int
    deliver_at_ms: int
    expires_at_ms: int
    own: list[TraceEvent]
    groups: dict[str, Seen]
    # The letter that it was redriven from.
    redriven_from: str | None = None


class TraceTwin:
    def __init__(self, groups: tuple[str, ...]) -> None:
        self.groups = groups
        self.messages: dict[int, Message] = {}

    def publish(
        self, id: MessageId, now_ms: int, delay_ms: int, ttl_ms: int, only: str | None = None
    ) -> Message:
        due = now_ms + delay_ms if delay_ms else 0
        own = [TraceEvent(now_ms, "published")]
        if due:
            own.append(TraceEvent(now_ms, "delayed", until_ms=due))
        expires = now_ms + ttl_ms if ttl_ms else 0
        groups = {
            name: Seen("delayed" if due else "pending", due_ms=due or None)
            for name in ((only,) if only else self.groups)
        }
        message = Message(id, now_ms, due, expires, own, groups)
        self.messages[id.offset] = message
        return message

    def tick(self, now_ms: int) -> None:
        for message in self.messages.values():
            for group, seen in message.groups.items():
                due = seen.due_ms is not None and seen.due_ms <= now_ms
                if seen.state in ("delayed", "retrying") and due:
                    self._become(seen, "pending")
                elif seen.state == "leased" and due:
                    self.end_lease(group, seen, now_ms)
                is_over = 0 < message.expires_at_ms <= now_ms
                if seen.state in ("pending", "retrying", "delayed") and is_over:
                    self._become(seen, "expired")
                    # What was redriven in place is a letter again.
                    reason = "expired" if seen.is_revived else None
                    seen.events.append(TraceEvent(now_ms, "expired", group, reason=reason))

    def end_lease(self, group: str, seen: Seen, now_ms: int) -> None:
        if seen.attempts >= ATTEMPTS_MAX:
            self._bury(group, seen, now_ms, None, "max-attempts", None)
        else:
            self._become(seen, "pending")
            seen.events.append(TraceEvent(now_ms, "lease-expired", group))

    def restart(self, now_ms: int) -> None:
        """Nobody holds anything any more."""
        for message in self.messages.values():
            for group, seen in message.groups.items():
                if seen.state == "leased":
                    self.end_lease(group, seen, now_ms)

    def lease(self, group: str, offset: int, consumer: str, now_ms: int) -> int:
        seen = self.messages[offset].groups[group]
        assert seen.state == "pending"
        seen.attempts += 1
        seen.state, seen.consumer, seen.due_ms = "leased", consumer, now_ms + VISIBILITY_MS
        seen.events.append(
            TraceEvent(now_ms, "leased", group, consumer, seen.attempts, seen.due_ms)
        )
        return seen.attempts

    def ack(self, group: str, offset: int, now_ms: int) -> None:
        seen = self.messages[offset].groups[group]
        seen.events.append(TraceEvent(now_ms, "acked", group, seen.consumer))
        self._become(seen, "acked")

    def nack(self, group: str, offset: int, error: str | None, now_ms: int) -> None:
        seen = self.messages[offset].groups[group]
        if seen.attempts >= ATTEMPTS_MAX:
            self._bury(group, seen, now_ms, seen.consumer, "max-attempts", error)
            return
        due = now_ms + BACKOFF_MS
        seen.events.append(
            TraceEvent(now_ms, "nacked", group, seen.consumer, until_ms=due, error=error)
        )
        self._become(seen, "retrying")
        seen.due_ms = due

    def reject(self, group: str, offset: int, reason: str | None, now_ms: int) -> None:
        seen = self.messages[offset].groups[group]
        self._bury(group, seen, now_ms, seen.consumer, "rejected", reason)

    def revive(self, message: Message, group: str, now_ms: int) -> bool:
        """Whether it is ready again where it is: not once its TTL is over."""
        if 0 < message.expires_at_ms <= now_ms:
            return False
        seen = message.groups[group]
        assert seen.state == "dead-lettered"
        seen.events.append(TraceEvent(now_ms, "redriven", group, reason="in place"))
        seen.attempts, seen.is_revived = 0, True
        self._become(seen, "pending")
        return True

    def extend(self, group: str, offset: int, visibility_ms: int, now_ms: int) -> None:
        seen = self.messages[offset].groups[group]
        seen.due_ms = now_ms + visibility_ms
        seen.events.append(
            TraceEvent(now_ms, "extended", group, seen.consumer, until_ms=seen.due_ms)
        )

    def release(self, group: str, offset: int, now_ms: int) -> None:
        seen = self.messages[offset].groups[group]
        seen.attempts -= 1
        seen.events.append(TraceEvent(now_ms, "released", group, seen.consumer))
        self._become(seen, "pending")

    def cancel(self, offset: int, now_ms: int) -> None:
        message = self.messages[offset]
        message.own.append(TraceEvent(now_ms, "cancelled"))
        for seen in message.groups.values():
            assert seen.state == "delayed"
            self._become(seen, "cancelled")

    def held(self, group: str, consumer: str) -> list[int]:
        return [
            offset
            for offset, message in self.messages.items()
            if (seen := message.groups.get(group)) is not None
            and seen.state == "leased"
            and seen.consumer == consumer
        ]

    @staticmethod
    def _become(seen: Seen, state: TraceState) -> None:
        seen.state, seen.consumer, seen.due_ms = state, None, None

    def _bury(
        self,
        group: str,
        seen: Seen,
        now_ms: int,
        consumer: str | None,
        reason: str,
        error: str | None,
    ) -> None:
        seen.events.append(
            TraceEvent(now_ms, "dead-lettered", group, consumer, reason=reason, error=error)
        )
        self._become(seen, "dead-lettered")
