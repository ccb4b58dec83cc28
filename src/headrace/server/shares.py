"""Shares: whoever has used much of the loop lets those go first who have used little.

    a connection that has used little    is served at once
    one that has used its share          stands in line; each turn of the loop serves as
                                         many of the line as fit into its budget

So a turn of the loop stays short, however many connections ask for however much: a
request takes several turns, and all who are served wait for each of them. Where nobody has
used little for a while, there is nobody to be kept short for: a turn is longer then, and
the line costs next to nothing.

Newcomers, who have used too much ever since they came, have a line and a budget of their own:
anybody can come as ever so many of them, and those who were there before are not to wait for them.

An account fills up with time, by a tenth of it, and is charged with the time that serving
its connection has taken. A new one owes something: otherwise a thousand connections, each
for one request, would be a thousand that have used little.

One request may take longer than a turn has for the line. Then the line waits until as many
turns have passed as that was worth.

Work in slices (`slices.py`) has a line of its own, in which everybody stands after a slice.

Rejected: a line by how much each owes. Whoever owes more than most, as one with large requests
does, waits for all others again and again: with the hostile client's connections beside it, for
a second and more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from time import perf_counter
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")

# Of a turn of the loop, for those in line: while there are others, and when there was none
# for so long.
LINE_SECONDS = 0.0005
# Of a turn, for what one WebSocket sent whose account has something left: many may send much
# at once before they have used their shares, and all others wait for all of them.
STEP_SECONDS = 0.0001
ALONE_SECONDS = 0.01
ALONE_AFTER_SECONDS = 1.0
# How fast an account fills, how much it holds, how much a new one owes, and how far it
# may be overdrawn.
SHARE = 0.1
SAVED_SECONDS_MAX = 0.02
NEW_OWES_SECONDS = 0.002
OWED_SECONDS_MAX = 0.1
# What a request is taken to cost as long as nothing is known of its connection.
UNKNOWN_SECONDS = 0.0002


class Line:
    """Those who wait for a turn, in the order in which they came."""

    def __init__(self, turn_seconds: float, alone_seconds: float) -> None:
        """`alone_seconds` of a turn are the line's while there is nobody else."""
        self._turn_seconds = self._left = turn_seconds
        self._alone_seconds = alone_seconds
        # When somebody was served who had used little.
        self.others_at = -ALONE_AFTER_SECONDS
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._new: deque[tuple[Callable[[], None], float, bool]] = deque()
        self._left_for_new = turn_seconds
        # How many wait who were never served.
        self.unserved = 0
        self._is_turn_due = False

    def admits(self, seconds: float, *, is_new: bool) -> bool:
        """Whether so much may be used in this turn without standing in line; counted if so."""
        if is_new:
            if self._new or self._left_for_new <= 0:
                return False
            self._left_for_new -= seconds
        else:
            if self._waiting or self._left <= 0:
                return False
            self._left -= seconds
        self._await_turn()
        return True

    def join(self, begin: Callable[[], None], seconds: float = 0) -> None:
        """Call `begin` when its turn has come. Its own time is measured; `seconds` is what
        it will cause beyond that."""
        self._waiting.append((begin, seconds))
        self._await_turn()

    def turn(self, seconds: float) -> asyncio.Future[None]:
        """Done when the turn of somebody has come who then takes so long."""
        future = asyncio.get_running_loop().create_future()
        self.join(partial(_finish, future), seconds)
        return future

    def join_new(self, begin: Callable[[], None], seconds: float, *, is_served: bool) -> None:
        """Likewise, of a newcomer, who may have been served before."""
        self._new.append((begin, seconds, is_served))
        self.unserved += not is_served
        self._await_turn()

    def _await_turn(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._is_turn_due = False
        now = perf_counter()
        is_alone = now - self.others_at >= ALONE_AFTER_SECONDS
        turn_seconds = self._alone_seconds if is_alone else self._turn_seconds
        self._left = min(self._left, 0) + turn_seconds
        self._left_for_new = min(self._left_for_new, 0) + turn_seconds
        try:
            while self._waiting and self._left > 0:
                begin, seconds = self._waiting.popleft()
                begin()
                began, now = now, perf_counter()
                self._left -= seconds + now - began
            while self._new and self._left_for_new > 0:
                begin, seconds, is_served = self._new.popleft()
                self.unserved -= not is_served
                begin()
                began, now = now, perf_counter()
                self._left_for_new -= seconds + now - began
        finally:
            # Also when nobody is left: what was used counts for one turn only.
            is_used = min(self._left, self._left_for_new) < turn_seconds
            if is_used or self._waiting or self._new:
                self._await_turn()


class Shares:
    """Of one loop, to which it does not refer: it is forgotten with it."""

    def __init__(self) -> None:
        self.line = Line(LINE_SECONDS, ALONE_SECONDS)
        # Whoever rests after a slice does so for others.
        self.slices = Line(LINE_SECONDS, LINE_SECONDS)

    def open_account(self) -> Account:
        return Account(self.line)


class Account:
    """What one connection has used."""

    __slots__ = ("_is_new", "_left", "_line", "_seen", "is_served", "request_seconds")

    def __init__(self, line: Line) -> None:
        self._line = line
        self._left = -NEW_OWES_SECONDS
        self._seen = perf_counter()
        # What its last request took.
        self.request_seconds = UNKNOWN_SECONDS
        # Until it has used little for the first time.
        self._is_new = True
        # Whether it was, ever.
        self.is_served = False

    def charge(self, began: float) -> None:
        """The connection was served from `began` until now."""
        now = perf_counter()
        self.spend(now - began, now)

    def served(self, began: float) -> bool:
        """The node handled from `began` until now what it had read from the connection.
        Returns whether the account has anything left."""
        now = perf_counter()
        self.request_seconds = now - began
        self.is_served = True
        self.spend(now - began, now)
        return self._left > 0

    def spend(self, seconds: float, now: float) -> None:
        """It has used so much until now."""
        # Without min and max: it is done for all that is read, by every connection.
        left = self._left + SHARE * (now - self._seen)
        if left > SAVED_SECONDS_MAX:
            left = SAVED_SECONDS_MAX
        left -= seconds
        if left > 0:
            self._line.others_at = now
            self._is_new = False
        elif left < -OWED_SECONDS_MAX:
            left = -OWED_SECONDS_MAX
        self._left, self._seen = left, now

    @property
    def is_spent(self) -> bool:
        return self._left <= 0 and self._left + SHARE * (perf_counter() - self._seen) <= 0

    def turn_end(self, began: float) -> float:
        """When the others have their turn, if the connection is served since `began`."""
        return began + LINE_SECONDS

    def lines_up(self, begin: Callable[[], None]) -> bool:
        """Whether the connection has to wait until it is served again, by a call of
        `begin`."""
        if self._left > 0 or not self.is_spent or self._is_admitted():
            return False
        self.line_up(begin)
        return True

    def line_up(self, begin: Callable[[], None]) -> None:
        if self._is_new:
            self._line.join_new(begin, self.request_seconds, is_served=self.is_served)
        else:
            self._line.join(begin, self.request_seconds)

    async def turn(self) -> None:
        """Before a request: wait for the connection's turn."""
        if self.is_spent and not self._is_admitted():
            turn = asyncio.get_running_loop().create_future()
            self.line_up(partial(_finish, turn))
            await turn

    def _is_admitted(self) -> bool:
        return self._line.admits(self.request_seconds, is_new=self._is_new)


class Metered(Generic[T]):
    """Awaits a coroutine, and charges an account for its steps: at its end, and before that
    whenever they have come to a turn's worth."""

    def __init__(self, coroutine: Awaitable[T], account: Account) -> None:
        # Whatever is awaited here is made by `async def`.
        self._coroutine = cast(Coroutine[Any, Any, T], coroutine)
        self._account = account

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, account = self._coroutine, self._account
        used = unpaid = 0.0
        now = began = perf_counter()
        thrown: BaseException | None = None
        try:
            while True:
                try:
                    awaited = coroutine.send(None) if thrown is None else coroutine.throw(thrown)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                finally:
                    thrown = None
                    now = perf_counter()
                    unpaid += now - began
                if unpaid > LINE_SECONDS:
                    account.spend(unpaid, now)
                    used, unpaid = used + unpaid, 0.0
                try:
                    yield awaited
                except BaseException as error:
                    thrown = error
                began = perf_counter()
        finally:
            account.spend(unpaid, now)
            account.request_seconds = used + unpaid
            account.is_served = True
            coroutine.close()


SHARES_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, Shares] = WeakKeyDictionary()


def shares_of(loop: asyncio.AbstractEventLoop) -> Shares:
    """The one for everything that runs on that loop."""
    shares = SHARES_OF_LOOPS.get(loop)
    if shares is None:
        shares = SHARES_OF_LOOPS[loop] = Shares()
    return shares


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
