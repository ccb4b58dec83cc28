"""The time that calls are told, and the broker's deadlines moved along with it.

Whoever has the broker to themselves asks this clock and no other: when the system's
clock was set since the last time, what lasts for a while is moved along before anybody
compares it with the new time. A start makes one at the moment in which it makes the
broker.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.core.ports import Clock, Reading, read_clock
from headrace.engine.broker import Broker
from headrace.engine.clock_steps import move_along

# Told by how much the clock was set, and what it shows now.
OnSet = Callable[[int, int], None]


class BrokerClock:
    def __init__(
        self, clock: Clock, broker: Broker, on_set: OnSet = lambda by_ms, now_ms: None
    ) -> None:
        self._broker = broker
        self._on_set = on_set
        self._clock = clock
        self._read: Callable[[], Reading] | None = getattr(clock, "read", None)
        self._seen = read_clock(clock)

    @property
    def stepped_ms(self) -> int:
        """Times less this are as far apart as the time that has passed between them."""
        return self._seen.stepped_ms

    def now_ms(self) -> int:
        """Only for who has the broker to themselves."""
        if self._read is None:
            return self._clock.now_ms()
        reading = self._read()
        if reading[1] != self._seen[1]:
            before, self._seen = self._seen, reading
            by_ms = reading.stepped_ms - before.stepped_ms
            move_along(self._broker, by_ms, reading.slept_ms - before.slept_ms)
            self._on_set(by_ms, reading.now_ms)
        return reading[0]
