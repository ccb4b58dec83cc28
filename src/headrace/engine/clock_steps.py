"""Steps of the clock: what lasts for a while is moved along when the clock is set.

    leases, transactions      go on where they were. Who holds them may be on a machine
                              that slept with this one
    delays, retries, lives,   go on where they were too, but what the machine has slept
    windows of dedup ids      did go by
    `deliver_at`, retention   follow the wall clock: these are moments on the calendar

A step is a sum that is added to due times in memory. On disk stays what was written, by
the clock of then; a start judges that by the clock it finds, and where that is behind
what is written, nothing waits for longer than it was to wait in all (`engine.scanner`,
`engine.replay`, `engine.transactions`).

Rejected: a second, monotonic time in every call of the engine. What is kept is kept over
restarts, and there only the wall clock is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from headrace.engine import state as events
from headrace.engine.queue import QueueView
from headrace.engine.state_log import StateLog, Waiting

if TYPE_CHECKING:
    from headrace.engine.broker import Broker


# Events that begin something which lasts for a while.
LASTING = (events.Granted, events.Extended, events.Retried)


Lasting = events.Granted | events.Extended | events.Retried


def begun_at(event: Lasting, at_ms: int) -> Lasting:
    """The event as if it had been written at another time."""
    by_ms = at_ms - event.at
    if isinstance(event, events.Retried):
        return msgspec.structs.replace(event, at=at_ms, due=event.due + by_ms)
    return msgspec.structs.replace(event, at=at_ms, until=event.until + by_ms)


def move_along(broker: Broker, by_ms: int, slept_ms: int) -> None:
    """The clock was set by so much, of which the machine has slept some."""
    lived_ms = by_ms - slept_ms
    for partition in broker.topics:
        if partition.scanner is not None:
            partition.scanner.on_clock_set(lived_ms)
        if partition.dedup is not None:
            partition.dedup.on_clock_set(lived_ms)
        if partition.state is not None and partition.state.waiting:
            _move_waiting(partition.state, by_ms, lived_ms)
        for view in partition.views.values():
            move_view(view, by_ms, lived_ms)
    for serving in broker.groups.all_serving():
        serving.schedule.on_clock_set(by_ms)
    broker.readers.on_clock_set(by_ms)
    broker.transactions.on_clock_set(by_ms)
    broker.duties.on_clock_set(lived_ms)
    broker.follower.on_clock_set(by_ms)


def _move_waiting(state: StateLog, by_ms: int, lived_ms: int) -> None:
    """What is written but not synced yet was meant for the time of before."""
    for number, (end, view, event) in enumerate(state.waiting):
        if isinstance(event, LASTING):
            moved_by_ms = lived_ms if isinstance(event, events.Retried) else by_ms
            moved = begun_at(event, event.at + moved_by_ms)
            state.waiting[number] = Waiting(end, view, moved)


def move_view(view: QueueView, by_ms: int, lived_ms: int) -> None:
    for grant in view.grants.values():
        grant.at_ms += by_ms
        grant.until_ms += by_ms
    view.deadlines[:] = [(due_ms + by_ms, number) for due_ms, number in view.deadlines]
    view.retries.shift(lived_ms)
    view.served_ms = [at and at + by_ms for at in view.served_ms]
    view.rates.on_clock_set(by_ms)
