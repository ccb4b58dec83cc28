"""Waiting for something to come, in a thread.

A waiter tries, and where there is nothing it sleeps until whichever is first:

    a listener call      somebody published, gave back, redrove, joined; of a node
                         elsewhere, its answer to a long poll
    the next due time    a delay, a retry or a lease ends by time alone
    the wait's own end
    the bell             the queue or the stream was closed

A node elsewhere has a line for all who wait for a group's messages, and there its answer
to one call is waited for instead (`wait_in_line`).

It listens before it tries, so nothing that comes between the two is missed. No
thread is needed but the caller's own. Nothing polls, but for one look a minute
in case the wall clock was set: what is to come at a moment comes so much late at most.
How long a wait lasts is not touched by that.

A steered clock, as tests use it, moves only when it is told to. Waiting then
follows that clock: see `headrace.testing.ManualClock`.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

from headrace.client.backend import Backend, Lined
from headrace.core.errors import Closed, Disconnected, HeadraceError, Unreachable
from headrace.core.ports import Clock, steady_ms

Wake = Callable[[], None]
Found = TypeVar("Found")

# People set the wall clock while a thread sleeps; so long can it go unnoticed.
SLEEP_MS_MAX = 60_000
# A wait in line is asked for again after this long.
LINE_MS_MAX = 20_000
# How often a node that is away is looked for, beyond what each call does by itself.
AWAY_SECONDS = 1.0


@runtime_checkable
class SteeredClock(Clock, Protocol):
    """A clock that somebody moves."""

    autoskip: bool

    def skip_to(self, instant_ms: int) -> None: ...

    def add_listener(self, wake: Wake) -> None: ...

    def remove_listener(self, wake: Wake) -> None: ...

    def add_alarm(self, at_ms: int, ring: Wake) -> None:
        """Has `ring` called once, with the clock at that time, by the thread that
        moves the clock there or beyond."""
        ...

    def remove_alarm(self, ring: Wake) -> None: ...


class Bell:
    """Rung once, when what people wait on is closed; wakes every waiter."""

    def __init__(self) -> None:
        self.rung = False
        self._wakes: list[Wake] = []
        self._lock = threading.Lock()

    def ring(self) -> bool:
        """Whether this was the first time."""
        with self._lock:
            first = not self.rung
            self.rung = True
            wakes = list(self._wakes)
        for wake in wakes:
            wake()
        return first

    def add_listener(self, wake: Wake) -> None:
        with self._lock:
            self._wakes.append(wake)

    def remove_listener(self, wake: Wake) -> None:
        with self._lock:
            self._wakes.remove(wake)


@contextmanager
def listening(backend: Backend, bell: Bell, wake: Wake, topics: Sequence[str]) -> Iterator[None]:
    """Has `wake` called whenever trying again may be worth it."""
    clock = backend.clock
    steered = clock if isinstance(clock, SteeredClock) else None
    bell.add_listener(wake)
    backend.add_listener(wake, topics)
    if steered is not None:
        steered.add_listener(wake)
    try:
        yield
    finally:
        if steered is not None:
            steered.remove_listener(wake)
        backend.remove_listener(wake)
        bell.remove_listener(wake)


def wait_for_some(
    backend: Backend,
    bell: Bell,
    attempt: Callable[[], list[Found]],
    next_due_ms: Callable[[], int | None],
    wait_ms: int | None,
    topics: Sequence[str],
) -> list[Found]:
    """The first answer of `attempt` that is not empty. Empty when the wait ends
    or the bell rings before there is one; `wait_ms` None waits without end."""
    try:
        return _try_and_sleep(backend, bell, attempt, next_due_ms, wait_ms, topics)
    except Closed:
        # Closed between a look at the bell and a call to what serves us.
        if bell.rung:
            return []
        raise


def _try_and_sleep(
    backend: Backend,
    bell: Bell,
    attempt: Callable[[], list[Found]],
    next_due_ms: Callable[[], int | None],
    wait_ms: int | None,
    topics: Sequence[str],
) -> list[Found]:
    end_ms = None if wait_ms is None else steady_ms(backend.clock) + wait_ms
    with contextlib.suppress(*endured(backend, wait_ms)):
        found = attempt()
        if found or wait_ms == 0:
            return found
    event = threading.Event()
    with listening(backend, bell, event.set, topics):
        while True:
            event.clear()
            if bell.rung:
                return []
            try:
                found = attempt()
                if found or over(backend.clock, end_ms):
                    return found
                due_ms = next_due_ms()
            except endured(backend, wait_ms) as error:
                on_away(backend, error)
                event.wait(AWAY_SECONDS)
                continue
            sleep(backend.clock, event, left_ms(backend.clock, end_ms, due_ms))


def endured(backend: object, wait_ms: int | None) -> tuple[type[HeadraceError], ...]:
    """Errors that a wait goes on after: a wait without end outlasts a node that is away,
    unless the handle was told not to."""
    if wait_ms is None and getattr(backend, "reconnects", False):
        return (Unreachable, Disconnected)
    return ()


def on_away(backend: object, error: HeadraceError) -> None:
    """Only a backend on a node elsewhere raises such an error."""
    say = getattr(backend, "on_away", None)
    if say is not None:
        say(error)


def pause_away(bell: Bell) -> None:
    """Before a node that is away is asked again; not when what waits is closed."""
    event = threading.Event()
    bell.add_listener(event.set)
    try:
        if not bell.rung:
            event.wait(AWAY_SECONDS)
    finally:
        bell.remove_listener(event.set)


def has_line(backend: Backend) -> TypeGuard[Lined]:
    """Whether to wait in its line: not on a clock that somebody moves."""
    return isinstance(backend, Lined) and not isinstance(backend.clock, SteeredClock)


def wait_in_line(
    bell: Bell, attempt: Callable[[int], list[Found]], wait_ms: int | None
) -> list[Found]:
    """As `wait_for_some`; `attempt` is told for how long to wait for something. Closing
    what is waited on ends the attempt too."""
    end = None if wait_ms is None else time.monotonic() + wait_ms / 1000
    try:
        found = attempt(0)
        while not found and not bell.rung and (left_ms := line_ms(end)) > 0:
            found = attempt(left_ms)
        return found
    except Closed:
        if bell.rung:
            return []
        raise


def new_nonce() -> int:
    """What a lease is known by before there is an answer."""
    return secrets.randbits(63)


def line_ms(end: float | None) -> int:
    """How long to wait now, when all is to end then by the monotonic clock."""
    if end is None:
        return LINE_MS_MAX
    return min(LINE_MS_MAX, math.ceil((end - time.monotonic()) * 1000))


def over(clock: Clock, end_ms: int | None) -> bool:
    """Whether a wait is over that ends at this moment of `steady_ms`."""
    return end_ms is not None and steady_ms(clock) >= end_ms


def left_ms(clock: Clock, end_ms: int | None, due_ms: int | None) -> int | None:
    """How long to wait for the end of the wait, or for the next due time if that is
    earlier; None for neither."""
    left = [] if end_ms is None else [end_ms - steady_ms(clock)]
    if due_ms is not None:
        left.append(due_ms - clock.now_ms())
    # What is due already was just tried in vain; a millisecond later is the next
    # chance, and an immediate one would spin.
    return max(1, min(left)) if left else None


def sleep(clock: Clock, event: threading.Event, timeout_ms: int | None) -> None:
    """Until the event is set or so much time has passed, and possibly less: the
    caller looks again. On a steered clock that skips by itself, the clock moves and
    nobody sleeps."""
    if isinstance(clock, SteeredClock):
        if not clock.autoskip or timeout_ms is None:
            event.wait()
        elif not event.is_set():
            clock.skip_to(clock.now_ms() + timeout_ms)
        return
    if timeout_ms is None or timeout_ms > SLEEP_MS_MAX:
        timeout_ms = SLEEP_MS_MAX
    event.wait(timeout_ms / 1000)


def pause(clock: Clock, pause_ms: int) -> None:
    """Let time pass, on this clock."""
    end_ms = steady_ms(clock) + pause_ms
    event = threading.Event()
    steered = clock if isinstance(clock, SteeredClock) else None
    if steered is not None:
        steered.add_listener(event.set)
    try:
        while True:
            event.clear()
            if over(clock, end_ms):
                return
            sleep(clock, event, left_ms(clock, end_ms, None))
    finally:
        if steered is not None:
            steered.remove_listener(event.set)
