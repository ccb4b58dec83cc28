"""The text of a pattern as characters, each with its place: special ones, and others.

\\Q ... \\E     between them none is special
(?x)          from there on spaces and comments are passed over, where asked to
"""

from __future__ import annotations

from typing import Final, NamedTuple

_SPACE: Final = frozenset(" \t\n\x0b\f\r")


class PatternError(ValueError):
    """What is wrong, and where."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what} at character {at + 1}")


class _Token(NamedTuple):
    """A character, and where it stands. Between \\Q and \\E none is special."""

    character: str
    at: int
    is_quoted: bool


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at, is_quoted = 0, False
    while at < len(text):
        pair = text[at : at + 2]
        if is_quoted and pair == "\\E":
            at, is_quoted = at + 2, False
        elif not is_quoted and pair == "\\Q":
            at, is_quoted = at + 2, True
        else:
            found.append(_Token(text[at], at, is_quoted))
            at += 1
            if not is_quoted and pair == "\\\\":
                found.append(_Token(text[at], at, False))
                at += 1
    return found


class TokenReader:
    """Where the parser stands. `_flags` are Java's, of the group that it is in."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._end = len(text)
        self._next = 0
        self._flags: frozenset[str] = frozenset()

    def _at(self) -> int:
        return self._tokens[self._next].at if self._next < len(self._tokens) else self._end

    def _peek(self, ahead: int = 0) -> str:
        """The character that comes, if it can be special; else nothing."""
        place = self._next + ahead
        if place >= len(self._tokens) or self._tokens[place].is_quoted:
            return ""
        return self._tokens[place].character

    def _is_over(self) -> bool:
        return self._next >= len(self._tokens)

    def _take(self, what: str) -> str:
        """The next character, special or not; `what` is for who finds none."""
        if self._is_over():
            raise PatternError(f"{what}, which is not complete,", self._end)
        self._next += 1
        return self._tokens[self._next - 1].character

    def _accept(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._next += 1
        return True

    def _skip_comments(self) -> None:
        if "x" not in self._flags:
            return
        while (character := self._peek()) in _SPACE or character == "#":
            self._next += 1
            if character == "#":
                while not self._is_over() and self._peek() not in ("\n", "\r"):
                    self._next += 1
