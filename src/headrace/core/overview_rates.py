"""Rates between looks: how much a second came in and was handed out.

    look . look . look . look . look
                          |------|     topics: since the look before
      |--------------------------|     streams: over STREAM_MS

A queue knows its own rates (`engine/rates.py`). Only one that is looked at from outside,
in the directory of another process, has those since the look before.

A stream's position moves when it commits, by default every five seconds. Between two looks
of a second it would read nothing most of the time, and five times as much as it does when
it commits; over half a minute its rate is what it reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from headrace.core.overview_values import GroupTotals, Overview, TopicTotals

STREAM_MS = 30_000
# Looks are seconds apart; those that come more often push out the oldest.
LOOKS_MAX = 64


class Rates(NamedTuple):
    """Messages per second: that came in, and that were handed out."""

    taken: float = 0.0
    given: float = 0.0


class _Seen(NamedTuple):
    at_ms: int
    topics: Mapping[str, TopicTotals]
    groups: Mapping[str, GroupTotals]


class RateWindow:
    """The looks of the last half minute, at least two. What was not there before has no
    rates yet."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque(maxlen=LOOKS_MAX)
        self.topics: dict[str, Rates] = {}
        self.groups: dict[str, Rates] = {}

    def add(self, overview: Overview) -> None:
        now = _Seen(
            overview.at_ms,
            {each.name: each for each in overview.topics},
            {each.name: each for each in overview.groups},
        )
        # However far apart they are, the last one stays: rates are since then.
        while len(self._seen) > 1 and now.at_ms - self._seen[0].at_ms > STREAM_MS:
            self._seen.popleft()
        # A clock that is set back makes what was seen before it of no use.
        while self._seen and self._seen[-1].at_ms >= now.at_ms:
            self._seen.pop()
        last = self._seen[-1] if self._seen else None
        self.topics = {}
        self.groups = {}
        if last is not None:
            self.topics = {
                name: _rates(each, last.topics[name], now.at_ms - last.at_ms)
                for name, each in now.topics.items()
                if name in last.topics
            }
        for name, each in now.groups.items():
            if each.rate_in is not None and each.rate_out is not None:
                self.groups[name] = Rates(each.rate_in, each.rate_out)
            elif last is not None and (before := self._base(each, last)) is not None:
                self.groups[name] = _rates(each, before.groups[name], now.at_ms - before.at_ms)
        self._seen.append(now)

    def _base(self, group: GroupTotals, last: _Seen) -> _Seen | None:
        looks = self._seen if group.kind == "stream" else (last,)
        known = (each for each in looks if group.name in each.groups)
        return next(known, None)


def _rates(
    now: TopicTotals | GroupTotals, earlier: TopicTotals | GroupTotals, span_ms: int
) -> Rates:
    """Positions also go back, by a reset or a topic that is made again: that is no
    traffic."""
    seconds = span_ms / 1000
    return Rates(
        max(0, now.published - earlier.published) / seconds,
        max(0, now.delivered - earlier.delivered) / seconds,
    )
