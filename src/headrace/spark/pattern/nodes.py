"""A pattern as a tree of nodes, and how it is matched against a name.

    reach   from all these positions at once, all where what a node matches may end;
            positions are the bits of a number
    find    from one position, all ends in the order in which Java would try them:
            possessive parts take the first and no other, so only they are matched so

Neither tries one way after another, so the work grows with the length of name and
pattern and never explodes; every step is counted all the same.

    (a+)+b   against 249 times a      a few hundred steps; with Python's re, never done

Rejected: back references. With them the same position can have many pasts, and what was
found once is of no use again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from headrace.spark.pattern.characters import Characters

# Positions, without repetition.
Ends = tuple[int, ...]


class TooMuchWork(Exception):
    """The steps that were allowed are used up."""


class Node(Protocol):
    def reach(self, name: Matching, starts: int) -> int: ...

    def find(self, name: Matching, at: int) -> Ends: ...


class Matching:
    """One name, and what was found in it."""

    def __init__(self, text: str, steps_max: int) -> None:
        self.text = text
        self.size = len(text)
        self.steps = 0
        self._steps_max = steps_max
        self._found: dict[tuple[Node, int], Ends] = {}
        self._places: dict[Characters, int] = {}
        # Of repeated nodes: where more repetitions may end.
        self.further: dict[tuple[Node, int], Ends] = {}

    def reach(self, node: Node, starts: int) -> int:
        self.spend(1)
        return node.reach(self, starts) if starts else 0

    def places_of(self, characters: Characters) -> int:
        """The positions at which one of them stands."""
        found = self._places.get(characters)
        if found is None:
            found = sum(1 << at for at, each in enumerate(self.text) if each in characters)
            self._places[characters] = found
        return found

    def positions(self, places: int) -> list[int]:
        return [at for at in range(self.size + 1) if places >> at & 1]

    def ends(self, node: Node, at: int) -> Ends:
        found = self._found.get((node, at))
        if found is None:
            found = self._found[node, at] = node.find(self, at)
            self.spend(1 + len(found))
        return found

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._steps_max:
            raise TooMuchWork

    def joined(self, groups: Iterable[Ends]) -> Ends:
        """Those of all groups, each where it comes first."""
        found: dict[int, None] = {}
        for group in groups:
            self.spend(1 + len(group))
            found.update(dict.fromkeys(group))
        return tuple(found)


class One:
    """One character of a set."""

    def __init__(self, characters: Characters) -> None:
        self.characters = characters

    def reach(self, name: Matching, starts: int) -> int:
        return (starts & name.places_of(self.characters)) << 1

    def find(self, name: Matching, at: int) -> Ends:
        return (at + 1,) if at < name.size and name.text[at] in self.characters else ()


class Sequence:
    def __init__(self, items: list[Node]) -> None:
        self._items = items

    def reach(self, name: Matching, starts: int) -> int:
        for item in self._items:
            starts = name.reach(item, starts)
        return starts

    def find(self, name: Matching, at: int) -> Ends:
        ends: Ends = (at,)
        for item in self._items:
            ends = (
                name.ends(item, ends[0])
                if len(ends) == 1
                else name.joined(name.ends(item, end) for end in ends)
            )
            if not ends:
                break
        return ends


class Choice:
    def __init__(self, branches: list[Node]) -> None:
        self._branches = branches

    def reach(self, name: Matching, starts: int) -> int:
        found = 0
        for branch in self._branches:
            found |= name.reach(branch, starts)
        return found

    def find(self, name: Matching, at: int) -> Ends:
        return name.joined(name.ends(branch, at) for branch in self._branches)


class Repeat:
    """`low` times at least, `high` at most; None: any number. `is_lazy`: few before many."""

    def __init__(self, item: Node, low: int, high: int | None, is_lazy: bool) -> None:
        self._item = item
        self._low = low
        self._high = high
        self._is_lazy = is_lazy

    def reach(self, name: Matching, starts: int) -> int:
        # Of so many repetitions one is empty, and could as well be there once more.
        for _ in range(min(self._low, name.size + 1)):
            before, starts = starts, name.reach(self._item, starts)
            if starts in (0, before):
                break
        most = name.size if self._high is None else min(self._high - self._low, name.size)
        found = fresh = starts
        for _ in range(most):
            fresh = name.reach(self._item, fresh) & ~found
            if not fresh:
                break
            found |= fresh
        return found

    def find(self, name: Matching, at: int) -> Ends:
        starts: Ends = (at,)
        for _ in range(min(self._low, name.size + 1)):
            before, starts = starts, name.joined(name.ends(self._item, each) for each in starts)
            if starts in ((), before):
                break
        if self._high is not None and self._high - self._low <= name.size:
            return self._some_more(name, starts, self._high - self._low)
        for start in starts:
            self._fill_further(name, start)
        return name.joined(name.further[self, start] for start in starts)

    def _next(self, name: Matching, at: int) -> Ends:
        """Behind one more repetition. An empty one leads nowhere."""
        return tuple(end for end in name.ends(self._item, at) if end > at)

    def _fill_further(self, name: Matching, start: int) -> None:
        """Where any number of further repetitions may end, from here and from wherever
        they lead to: from the last position to the first, each of which needs only
        those behind it."""
        waiting, reached = [start], {start}
        while waiting:
            at = waiting.pop()
            if (self, at) not in name.further:
                fresh = [end for end in self._next(name, at) if end not in reached]
                reached.update(fresh)
                waiting += fresh
        for at in sorted(reached, reverse=True):
            if (self, at) not in name.further:
                more = [name.further[self, end] for end in self._next(name, at)]
                name.further[self, at] = name.joined(self._in_order((at,), more))

    def _some_more(self, name: Matching, starts: Ends, most: int) -> Ends:
        """Where up to `most` further repetitions may end."""
        layers = [set(starts)]
        while len(layers) <= most and layers[-1]:
            layers.append({end for at in layers[-1] for end in self._next(name, at)})
            name.spend(1 + len(layers[-1]))
        further: dict[int, Ends] = {at: (at,) for at in layers.pop()}
        for layer in reversed(layers):
            further = {
                at: name.joined(
                    self._in_order((at,), [further[end] for end in self._next(name, at)])
                )
                for at in layer
            }
        return name.joined(further[start] for start in starts)

    def _in_order(self, here: Ends, more: list[Ends]) -> list[Ends]:
        return [here, *more] if self._is_lazy else [*more, here]


class Possessive:
    """Repeated as often as it goes; each repetition takes what it tries first, and gives
    nothing back."""

    def __init__(self, item: Node, low: int, high: int | None) -> None:
        self._item = item
        self._low = low
        self._high = high

    def reach(self, name: Matching, starts: int) -> int:
        return _from_each(self, name, starts)

    def find(self, name: Matching, at: int) -> Ends:
        count = 0
        while self._high is None or count < self._high:
            ends = name.ends(self._item, at)[:1]
            if not ends:
                break
            if ends[0] == at:
                # An empty repetition could be there as often as is wanted.
                return (at,)
            [at] = ends
            count += 1
        return (at,) if count >= self._low else ()


class Atomic:
    """What it tries first, and no other: (?>...)."""

    def __init__(self, item: Node) -> None:
        self._item = item

    def reach(self, name: Matching, starts: int) -> int:
        return _from_each(self, name, starts)

    def find(self, name: Matching, at: int) -> Ends:
        return name.ends(self._item, at)[:1]


class Look:
    """Whether something follows, or comes before; it takes no characters."""

    def __init__(self, item: Node, *, is_ahead: bool, is_there: bool) -> None:
        self._item = item
        self._is_ahead = is_ahead
        self._is_there = is_there

    def reach(self, name: Matching, starts: int) -> int:
        return _from_each(self, name, starts)

    def find(self, name: Matching, at: int) -> Ends:
        if self._is_ahead:
            found = bool(name.reach(self._item, 1 << at))
        else:
            starts = range(at, -1, -1)
            found = any(name.reach(self._item, 1 << start) >> at & 1 for start in starts)
        return (at,) if found == self._is_there else ()


class Edge:
    """A place between characters."""

    def __init__(self, is_here: Callable[[str, int], bool]) -> None:
        self._is_here = is_here

    def reach(self, name: Matching, starts: int) -> int:
        return _from_each(self, name, starts)

    def find(self, name: Matching, at: int) -> Ends:
        return (at,) if self._is_here(name.text, at) else ()


def _from_each(node: Node, name: Matching, starts: int) -> int:
    found = 0
    for at in name.positions(starts):
        for end in name.ends(node, at):
            found |= 1 << end
    return found
