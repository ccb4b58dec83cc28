"""Topics that somebody wanted to make, and was refused.

A producer that names such a topic a moment later would make it after all, with other
partitions and settings than those that were asked for, and data would flow into a wrong
topic without a word. So it is not made by being named, for as long as somebody who
wants it may come back:

    refused --> created as it can be, or REFUSED_TOPIC_MS without being asked for --> forgotten

Rejected: remembering it on disk. A start forgets it, and whoever wants the topic asks
again and is refused again.
"""

from __future__ import annotations

from headrace.core import limits

_REASON_CHARACTERS_MAX = 200


class RefusedTopics:
    """Names and why, the oldest first; bounded."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[int, str]] = {}

    def note(self, name: str, reason: str, now_ms: int) -> None:
        self._reasons.pop(name, None)
        self._reasons[name] = now_ms, reason[:_REASON_CHARACTERS_MAX]
        if len(self._reasons) > limits.REFUSED_TOPICS_MAX:
            del self._reasons[next(iter(self._reasons))]

    def reason(self, name: str, now_ms: int) -> str | None:
        """Why it was refused; None where it was not, or long ago."""
        since_ms, reason = self._reasons.get(name, (0, None))
        if reason is None:
            return None
        # A clock that was set back must not make this longer.
        if not 0 <= now_ms - since_ms < limits.REFUSED_TOPIC_MS:
            self.forget(name)
            return None
        return reason

    def forget(self, name: str) -> None:
        self._reasons.pop(name, None)
