"""The wait queue of one group: who looks next for messages, whatever door they came by.

    news of partition 0 --> first that wants it    looks; what it finds it takes, and goes
                            second ...             looks, finds nothing: no more news
                            third ...              wait for their turn

Waiters stand in the order in which they came, and one looks at a time. What the first
does not find, nobody behind it would find in the same partitions. So a message that is
published costs two looks, however many wait for it. A waiter that cannot take anything
now (it holds too much, its peer does not read) keeps its place, and the next one looks.

The promise: a waiter whose messages are ready is preceded by those that came before it,
each once, and by nobody else. A turn says how many contend for the same partitions, and
whoever looks takes at most its part of what is ready, rounded up.

No clock, no socket, no task here: `server/waiting.py` drives it.

Rejected: telling all of them. Three hundred idle consumers made every message a hundred
times as dear as one did, and the quickest to come back had everything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, Literal, NamedTuple, TypeVar

# Something that messages come by: a partition, or what only one waiter waits for.
Source = TypeVar("Source", bound=Hashable)
# What came of a look. `unable`: there may be something, but not for this waiter.
Outcome = Literal["found", "nothing", "unable"]


class Waiter(Generic[Source]):
    """A place in the queue. The lower its number, the sooner its turn."""

    __slots__ = ("is_parked", "number", "sources")

    def __init__(self, number: int) -> None:
        self.number = number
        self.sources: frozenset[Source] = frozenset()
        # It could not take anything, and waits for other news than that of others.
        self.is_parked = False


class Turn(NamedTuple, Generic[Source]):
    waiter: Waiter[Source]
    # How many wait for the same messages, this one included.
    among: int


class WaitQueue(Generic[Source]):
    def __init__(self) -> None:
        self._waiters: dict[Waiter[Source], None] = {}
        # By source, in the order of their numbers.
        self._waiting: dict[Source, dict[Waiter[Source], None]] = {}
        self._parked: dict[Source, set[Waiter[Source]]] = {}
        # Where somebody should look, in the order in which it was heard of.
        self._news: dict[Source, None] = {}
        self._looking: Waiter[Source] | None = None
        self._looked_at: frozenset[Source] = frozenset()
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._waiters)

    # Inputs.

    def join(self, sources: Iterable[Source], quiet: Iterable[Source] = ()) -> Waiter[Source]:
        """At the end. Its sources are news, since what came before it joined is to be seen
        by it or by those before it; but for quiet ones."""
        waiter: Waiter[Source] = Waiter(self._next_number)
        self._next_number += 1
        self._waiters[waiter] = None
        self.change(waiter, sources)
        for source in quiet:
            self._news.pop(source, None)
        return waiter

    def change(self, waiter: Waiter[Source], sources: Iterable[Source]) -> None:
        """It waits for these from now on, keeps its place, and looks once."""
        self._forget(waiter)
        waiter.is_parked = False
        waiter.sources = frozenset(sources)
        for source in waiter.sources:
            waiting = self._waiting.setdefault(source, {})
            is_last = not waiting or next(reversed(waiting)).number < waiter.number
            waiting[waiter] = None
            if not is_last:
                self._waiting[source] = dict.fromkeys(sorted(waiting, key=_number_of))
            self._news[source] = None

    def leave(self, waiter: Waiter[Source]) -> None:
        self._forget(waiter)
        self._waiters.pop(waiter, None)
        if self._looking is waiter:
            # It went in the middle of a look, and nobody knows what is left.
            self.end_turn("found")

    def on_news(self, sources: Iterable[Source]) -> None:
        """There may be something. Those that could not take anything may try again."""
        for source in sources:
            if source in self._waiting:
                self._news[source] = None
                for waiter in self._parked.pop(source, ()):
                    waiter.is_parked = False

    # Turns.

    def begin_turn(self) -> Turn[Source] | None:
        """Whose turn it is to look; None while one looks, or when there is no news for
        anybody. Whoever gets a turn ends it, or leaves."""
        if self._looking is not None:
            return None
        chosen: Waiter[Source] | None = None
        for source in tuple(self._news):
            first = self._first(source)
            if first is None:
                del self._news[source]
            elif chosen is None or first.number < chosen.number:
                chosen = first
        if chosen is None:
            return None
        self._looking = chosen
        self._looked_at = chosen.sources & self._news.keys()
        for source in self._looked_at:
            del self._news[source]
        return Turn(chosen, max(len(self._waiting[source]) for source in self._looked_at))

    def end_turn(self, outcome: Outcome) -> None:
        """What came of the look. After `found` there may be more."""
        waiter, looked_at = self._looking, self._looked_at
        self._looking, self._looked_at = None, frozenset()
        if outcome == "nothing":
            return
        for source in looked_at:
            if source in self._waiting:
                self._news[source] = None
        if outcome == "unable" and waiter in self._waiters:
            assert waiter is not None
            waiter.is_parked = True
            for source in waiter.sources:
                self._parked.setdefault(source, set()).add(waiter)

    # Questions.

    def is_waited_for(self, sources: Iterable[Source]) -> bool:
        return not self._waiting.keys().isdisjoint(sources)

    def is_settled(self, waiter: Waiter[Source]) -> bool:
        """Whether there is nothing for this one unless there is other news."""
        if self._looking is not None and not self._looked_at.isdisjoint(waiter.sources):
            return False
        return waiter.is_parked or waiter.sources.isdisjoint(self._news)

    def sources(self) -> Iterable[Source]:
        return self._waiting.keys()

    def waiters(self) -> Iterable[Waiter[Source]]:
        return self._waiters.keys()

    def _first(self, source: Source) -> Waiter[Source] | None:
        waiting = self._waiting.get(source, {})
        return next((waiter for waiter in waiting if not waiter.is_parked), None)

    def _forget(self, waiter: Waiter[Source]) -> None:
        for source in waiter.sources:
            waiting = self._waiting.get(source)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self._waiting[source]
                    self._news.pop(source, None)
            parked = self._parked.get(source)
            if parked is not None:
                parked.discard(waiter)
                if not parked:
                    del self._parked[source]
        waiter.sources = frozenset()


def _number_of(waiter: Waiter[Source]) -> int:
    return waiter.number
