r"""Topic patterns: regular expressions from clients, matched in linear time.

A pattern comes from a stranger and runs on the thread that serves everyone, so it
must not be able to take long. Kafka uses RE2 for this; here is the same idea, small:
the pattern becomes a graph of states, and a name is matched by keeping the set of
states that it can be in. The work for one name is at most its length times the
states, and both are limited.

Many names together are still much work, so it is counted, in visits of states:
`match_all` yields what it spent, so that its caller can stop and go on later, and
gives up a pattern that takes more than its share.

    a(b|c)*d      0 ─a─> 1 ─┬─b─┐
                         ^  ├─c─┤
                         └──┴───┴─> 2 ─d─> match

Known: literals, `.`, classes, \d \w \s and their opposites, escapes, groups,
`|`, `*`, `+`, `?`, `{m,n}` (also with a `?` after them, which cannot change
whether a whole name matches), `^` and `$`. Look-around and references back are
refused, as RE2 does.

Rejected: Python's `re`, in which `(a+)+$` takes longer than anyone will wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable

from headrace.core import limits
from headrace.core.errors import InvalidArgument

_NESTING_MAX = 32
# Visits of states between two places where a caller may stop: some 0.1 ms.
_VISITS_PER_STEP = 512
# What a name takes by itself, however short.
_VISITS_PER_NAME = 8

Test = Callable[[str], bool]
# A part of a pattern: given the state that follows it, the state it starts with.
Part = Callable[[int], int]
# Yields the visits since the last time, where its caller may stop.
Visits = Generator[int, None, None]

_SHORTHANDS: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
    "s": lambda c: c in " \t\n\r\f\v",
    "D": lambda c: not "0" <= c <= "9",
    "W": lambda c: c != "_" and not (c.isascii() and c.isalnum()),
    "S": lambda c: c not in " \t\n\r\f\v",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}


class _State:
    """Goes on with the next character if it passes `test`; without one at once,
    but only where the name starts or ends if it stands for `^` or `$`."""

    __slots__ = ("at", "nexts", "test")

    def __init__(self, test: Test | None, nexts: tuple[int, ...], at: str = "") -> None:
        self.test = test
        self.nexts = nexts
        self.at = at


class TopicPattern:
    """A compiled pattern. InvalidArgument says what is wrong with a bad one."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > limits.TOPIC_PATTERN_CHARACTERS_MAX:
            raise InvalidArgument(
                f"a topic pattern has at most {limits.TOPIC_PATTERN_CHARACTERS_MAX} characters"
            )
        self._end = 0
        self.text = pattern
        parser = _Parser(pattern)
        self._states = parser.states
        self._start = parser.parse()(self._end)

    @property
    def states_count(self) -> int:
        return len(self._states)

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        judged: dict[str, bool] = {}
        for _ in self.match_all((name,), judged):
            pass
        return judged[name]

    def match_all(self, names: Iterable[str], judged: dict[str, bool]) -> Visits:
        """Note in `judged` of each name that it lacks whether the whole of it matches.

        InvalidArgument once that took more than a pattern may take; what was judged
        until then holds."""
        spent = 0
        for name in names:
            if name in judged:
                continue
            visits = self._match(name)
            while True:
                try:
                    step = next(visits)
                except StopIteration as done:
                    judged[name] = done.value
                    break
                spent += step
                yield step
                if spent > limits.TOPIC_PATTERN_VISITS_MAX:
                    raise InvalidArgument(
                        f"the pattern {self.text!r} takes too long: matching one is limited to "
                        f"{limits.TOPIC_PATTERN_VISITS_MAX} steps over all names together; "
                        "use fewer repetitions and alternatives"
                    )

    def _match(self, name: str) -> Generator[int, None, bool]:
        reached = self._spread({self._start}, True, not name)
        visits = _VISITS_PER_NAME
        for place, character in enumerate(name, 1):
            visits += len(reached)
            if visits >= _VISITS_PER_STEP:
                yield visits
                visits = 0
            step: set[int] = set()
            for number in reached:
                state = self._states[number]
                if state.test is not None and state.test(character):
                    step.update(state.nexts)
            if not step:
                reached = step
                break
            reached = self._spread(step, False, place == len(name))
        yield visits + len(reached)
        return self._end in reached

    def _spread(self, numbers: set[int], at_start: bool, at_end: bool) -> set[int]:
        """With everything that can be reached without a character."""
        waiting = list(numbers)
        while waiting:
            state = self._states[waiting.pop()]
            if state.test is not None:
                continue
            if (state.at == "^" and not at_start) or (state.at == "$" and not at_end):
                continue
            for number in state.nexts:
                if number not in numbers:
                    numbers.add(number)
                    waiting.append(number)
        return numbers


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._nesting = 0
        # State 0 is the end: nothing follows it.
        self.states = [_State(None, ())]

    def parse(self) -> Part:
        part = self._alternatives()
        if self._position < len(self._pattern):
            raise self._wrong("a closing parenthesis without an opening one")
        return part

    def _alternatives(self) -> Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return lambda after: self._add(None, tuple(part(after) for part in parts))

    def _sequence(self) -> Part:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._single()))
        if not parts:
            return lambda after: self._add(None, (after,))

        def build(after: int) -> int:
            for part in reversed(parts):
                after = part(after)
            return after

        return build

    def _single(self) -> Part:
        character = self._next()
        if character == "(":
            return self._group()
        if character in "^$":
            return lambda after: self._add(None, (after,), character)
        if character in "*+?{":
            raise self._wrong(f"nothing before {character!r} to repeat")
        if character == "[":
            test = self._class()
        elif character == "\\":
            escaped = self._escape()
            test = _is(escaped) if isinstance(escaped, str) else escaped
        else:
            test = _is_not_newline if character == "." else _is(character)
        return lambda after: self._add(test, (after,))

    def _group(self) -> Part:
        if self._take("?") and not self._take(":"):
            raise self._wrong("only (...) and (?:...) are known")
        self._nesting += 1
        if self._nesting > _NESTING_MAX:
            raise self._wrong("too many groups within groups")
        part = self._alternatives()
        if not self._take(")"):
            raise self._wrong("a parenthesis is not closed")
        self._nesting -= 1
        return part

    def _repeated(self, part: Part) -> Part:
        bounds = self._bounds()
        if bounds is None:
            return part
        low, high = bounds
        self._take("?")
        if self._peek() in ("*", "+", "?"):
            raise self._wrong("a repetition of a repetition")

        def build(after: int) -> int:
            last = after
            if high is None:
                after = self._add(None, ())
                self.states[after].nexts = (part(after), last)
            else:
                for _ in range(high - low):
                    after = self._add(None, (part(after), last))
            for _ in range(low):
                after = part(after)
            # Nothing at all is a state, too: without one, repeating it would meet no limit.
            return self._add(None, (after,)) if high == 0 else after

        return build

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if not self._take("{"):
            return None
        text, closed, _ = self._pattern[self._position :].partition("}")
        low, comma, high = text.partition(",")
        if not closed or not _is_number(low) or not (high == "" or _is_number(high)):
            raise self._wrong("a brace that is no repetition; write \\{ for the character")
        self._position += len(text) + 1
        if not comma:
            return int(low), int(low)
        if high and int(high) < int(low):
            raise self._wrong("a repetition with its bounds exchanged")
        return int(low), int(high) if high else None

    def _class(self) -> Test:
        negated = self._take("^")
        ranges: list[tuple[str, str]] = []
        shorthands: set[Test] = set()
        # A bracket right at the start of a class is one of its members.
        while not (ranges or shorthands) or not self._take("]"):
            first = self._class_member()
            following = self._pattern[self._position : self._position + 2]
            if isinstance(first, str) and following[:1] == "-" and following[1:] not in ("", "]"):
                self._position += 1
                ranges.append(self._range(first, self._class_member()))
            elif isinstance(first, str):
                ranges.append((first, first))
            else:
                shorthands.add(first)
        test = _is_within(ranges, shorthands)
        return (lambda c: not test(c)) if negated else test

    def _class_member(self) -> str | Test:
        character = self._next()
        return self._escape() if character == "\\" else character

    def _range(self, first: str, last: str | Test) -> tuple[str, str]:
        if not isinstance(last, str) or last < first:
            raise self._wrong("a range in a class that is none")
        return first, last

    def _escape(self) -> str | Test:
        """The character that is meant, or the test of a shorthand."""
        character = self._next()
        if not character.isascii() or not character.isalnum():
            return character
        if character in _CONTROLS:
            return _CONTROLS[character]
        shorthand = _SHORTHANDS.get(character)
        if shorthand is None:
            raise self._wrong(f"\\{character} is not known")
        return shorthand

    # Reading and building.

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._wrong("it ends too early")
        self._position += 1
        return character

    def _take(self, character: str) -> bool:
        taken = self._peek() == character
        self._position += taken
        return taken

    def _add(self, test: Test | None, nexts: tuple[int, ...], at: str = "") -> int:
        # Every part adds at least one state, so repetitions of repetitions
        # meet this limit before they cost anything.
        if len(self.states) >= limits.TOPIC_PATTERN_STATES_MAX:
            raise self._wrong(
                f"it is too large: with its repetitions written out, a pattern has at most "
                f"{limits.TOPIC_PATTERN_STATES_MAX} states"
            )
        self.states.append(_State(test, nexts, at))
        return len(self.states) - 1

    def _wrong(self, reason: str) -> InvalidArgument:
        return InvalidArgument(
            f"the topic pattern {self._pattern!r} is wrong at character {self._position}: {reason}"
        )


def _is(character: str) -> Test:
    return lambda c: c == character


def _is_within(ranges: list[tuple[str, str]], shorthands: set[Test]) -> Test:
    """A test that takes about as long for a class of many members as for one of few."""
    firsts: list[str] = []
    lasts: list[str] = []
    for first, last in sorted(ranges):
        if not lasts or first > lasts[-1]:
            firsts.append(first)
            lasts.append(last)
        else:
            lasts[-1] = max(lasts[-1], last)

    def test(character: str) -> bool:
        place = bisect_right(firsts, character)
        if place and character <= lasts[place - 1]:
            return True
        return any(shorthand(character) for shorthand in shorthands)

    return test


def _is_not_newline(character: str) -> bool:
    return character != "\n"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
