"""Interest: the topics that a group's members ask for, as the catalog has them.

Members name topics, existing or not, or give a pattern. What that comes to changes
without any member's doing: a topic is made, grows, is deleted, or is made anew
under the same name with another id.

    names, patterns ──┐
                      ├──> refresh ──> has anything changed? ──> a new target
    the catalog ──────┘

A pattern is matched against a name once, however often the members are heard from.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.engine.coordinator.values import Topics


class Interest:
    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._patterns: dict[str, TopicPattern] = {}
        self._matched: dict[str, dict[str, bool]] = {}
        self._found: dict[str, tuple[bytes, int]] = {}

    def subscribe(self, names: Iterable[str], patterns: Iterable[TopicPattern]) -> None:
        """Everything that any member asks for, from now on."""
        self._names = frozenset(names)
        self._patterns = {pattern.text: pattern for pattern in patterns}
        self._matched = {text: self._matched.get(text, {}) for text in self._patterns}

    def refresh(self, topics: Topics) -> bool:
        """Look at the catalog again; whether it means something else now."""
        names = [name for name in self._names if name in topics]
        for text, pattern in self._patterns.items():
            matched = self._matched[text]
            if len(matched) > 2 * len(topics) + 100:
                # Topics come and go; what is remembered of those that went
                # must not grow for ever.
                matched.clear()
            for name in topics:
                if name not in matched:
                    matched[name] = pattern.matches(name)
                if matched[name]:
                    names.append(name)
        found = {name: topics[name] for name in names}
        changed = found != self._found
        self._found = found
        return changed

    def topic_ids(self, names: Iterable[str], pattern: TopicPattern | None) -> frozenset[bytes]:
        """The topics of one member, as of the last refresh."""
        ids = {self._found[name][0] for name in names if name in self._found}
        if pattern is not None:
            matched = self._matched[pattern.text]
            ids.update(entry[0] for name, entry in self._found.items() if matched.get(name))
        return frozenset(ids)

    def names(self) -> frozenset[str]:
        """Every topic that exists and that somebody asks for."""
        return frozenset(self._found)

    def sizes(self) -> dict[bytes, int]:
        return dict(self._found.values())
