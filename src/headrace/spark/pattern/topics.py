"""A pattern as users give it, and the limits of its work.

    pattern            1,000 characters
    one name           a million steps, at most about a second
    one look at all    twenty million steps, of names that it has not met before

A name is matched once, and what came out is kept: a stream looks at all names again for
every micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from headrace.core.errors import InvalidOption
from headrace.spark.pattern.nodes import Matching, TooMuchWork
from headrace.spark.pattern.syntax import parse
from headrace.spark.pattern.tokens import PatternError

_CHARACTERS_MAX: Final = 1_000
_STEPS_OF_NAME_MAX: Final = 1_000_000
_STEPS_MAX: Final = 20_000_000
_KEPT_MAX: Final = 100_000
_OPTION: Final = "subscribePattern"


class TopicPattern:
    """InvalidOption when the text is no pattern that is understood."""

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._matches: dict[str, bool] = {}
        if not self._text:
            raise InvalidOption(f"option {_OPTION!r} is empty; give a pattern such as orders-.*")
        if len(self._text) > _CHARACTERS_MAX:
            raise InvalidOption(
                f"option {_OPTION!r} has {len(self._text)} characters; give at most "
                f"{_CHARACTERS_MAX}, or name the topics by 'subscribe'"
            )
        try:
            self._node = parse(self._text)
        except PatternError as error:
            raise InvalidOption(
                f"option {_OPTION!r}: {self._text!r} has {error}, which a pattern cannot have "
                "here; write it in another way, or name the topics by 'subscribe'"
            ) from None

    def choose(self, names: Iterable[str]) -> list[str]:
        """Those that the pattern matches as a whole, in order."""
        left = _STEPS_MAX
        chosen = []
        for name in sorted(names):
            found = self._matches.get(name)
            if found is None:
                found, steps = self._match(name, min(left, _STEPS_OF_NAME_MAX))
                left -= steps
                if len(self._matches) >= _KEPT_MAX:
                    self._matches.clear()
                self._matches[name] = found
            if found:
                chosen.append(name)
        return chosen

    def _match(self, name: str, steps_max: int) -> tuple[bool, int]:
        matching = Matching(name, steps_max)
        try:
            found = bool(matching.reach(self._node, 1) >> matching.size & 1)
        except TooMuchWork:
            raise InvalidOption(
                f"option {_OPTION!r}: {self._text!r} takes too long to be compared with the names "
                f"of topics, such as {name!r}; repeat less within what is repeated, or name the "
                "topics by 'subscribe'"
            ) from None
        return found, matching.steps


@lru_cache(maxsize=16)
def topic_pattern(text: str) -> TopicPattern:
    """The same one for the same text, with what it has met."""
    return TopicPattern(text)
