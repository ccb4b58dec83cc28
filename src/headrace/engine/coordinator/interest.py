"""Interest: the topics that a group's members ask for, as the catalog has them.

Members name topics, existing or not, or give a pattern. What that comes to changes
without any member's doing: a topic is made, grows, is deleted, or is made anew
under the same name with another id.

    names, patterns ──┐
                      ├──> refresh ──> has anything changed? ──> a new target
    the catalog ──────┘

A pattern is matched against a name once, however often the members are heard from, and
a refresh matches only for about a millisecond. What is left is done by the refreshes
that follow, while `is_behind`; until then names that were not matched yet do not count.
A pattern that takes more than its share is given up, and `refusal` says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.engine.catalog import RESERVED_TOPICS
from headrace.engine.coordinator.sizes import JUDGED_BYTES, PARTITION_BYTES
from headrace.engine.coordinator.topic_pattern import TopicPattern, Visits
from headrace.engine.coordinator.values import Topics

_NONE = b"", 0


class Interest:
    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._patterns: dict[str, TopicPattern] = {}
        self._judged: dict[str, dict[str, bool]] = {}
        self._refusals: dict[str, str] = {}
        self._found: dict[str, tuple[bytes, int]] = {}
        self._partitions = 0
        # As many as there are at all, while a new pattern may match them.
        self._partitions_max = 0
        # The picture of the last refresh; none if the subscription has changed since.
        self._topics: Topics | None = None
        self._matching: Visits | None = None

    def subscribe(self, names: Iterable[str], patterns: Iterable[TopicPattern]) -> None:
        """Everything that any member asks for, from now on."""
        self._names = frozenset(names)
        self._patterns = {pattern.text: pattern for pattern in patterns}
        self._judged = {text: self._judged.get(text, {}) for text in self._patterns}
        self._refusals = {
            text: reason for text, reason in self._refusals.items() if text in self._patterns
        }
        self._topics = None

    def refresh(self, topics: Topics) -> bool:
        """Look at the catalog again; whether it means something else now."""
        is_new = topics is not self._topics
        if is_new:
            self._topics = topics
            self._matching = self._match(topics)
            if not all(self._judged.values()):
                self._partitions_max = sum([size for _, size in topics.values()])
        if not is_new and self._matching is None:
            return False
        self._go_on()
        if not is_new and self._matching is not None:
            # One change at the end is better for the members than one for each turn.
            return False
        names = [name for name in self._names if name in topics]
        for judged in self._judged.values():
            names.extend(name for name in topics if judged.get(name))
        found = {name: topics[name] for name in names}
        changed = found != self._found
        self._found = found
        self._partitions = sum([size for _, size in found.values()])
        if self._matching is None:
            self._partitions_max = 0
        if not self._names and not self._patterns:
            # A group without members is not heard of for long, and holds no picture.
            self._topics = None
        return changed

    def is_behind(self) -> bool:
        """Whether names are left to be matched: refresh again soon."""
        return self._matching is not None

    def refusal(self, pattern: TopicPattern) -> str | None:
        """Why the pattern was given up, or cannot be one more."""
        if pattern.text not in self._patterns and len(self._patterns) >= limits.GROUP_PATTERNS_MAX:
            return f"the members of a group have at most {limits.GROUP_PATTERNS_MAX} patterns"
        return self._refusals.get(pattern.text)

    def held_bytes(self) -> int:
        """About what is remembered of patterns, and kept of the partitions that are read."""
        partitions = max(self._partitions, self._partitions_max)
        judged = sum(map(len, self._judged.values()))
        return JUDGED_BYTES * judged + PARTITION_BYTES * partitions

    def growth(self, names: Iterable[str], pattern: str | None, topics: Topics) -> int:
        """About how many bytes more it may come to with these, in this catalog."""
        wanted = set(names)
        if topics is not self._topics:
            wanted |= self._names | self._found.keys()
        judged = 0
        if pattern and pattern not in self._patterns:
            wanted.update(topics)
            judged = JUDGED_BYTES * len(topics)
        more = 0
        for name in wanted:
            more += topics.get(name, _NONE)[1] - self._found.get(name, _NONE)[1]
        return max(0, judged + PARTITION_BYTES * more)

    def _go_on(self) -> None:
        left = limits.TOPIC_PATTERN_VISITS_PER_TURN
        while self._matching is not None and left > 0:
            visits = next(self._matching, None)
            if visits is None:
                self._matching = None
            else:
                left -= visits

    def _match(self, topics: Topics) -> Visits:
        for text, pattern in self._patterns.items():
            if text in self._refusals:
                continue
            # Looking for names that are new is work, too.
            yield len(topics) // 8
            judged = self._judged[text]
            if len(judged) > 2 * len(topics) + 100:
                # Topics come and go; what is remembered of those that went
                # must not grow for ever.
                judged = {name: judged[name] for name in topics if name in judged}
                self._judged[text] = judged
            # Who wants the node's own topics names them.
            judged.update((name, False) for name in RESERVED_TOPICS if name in topics)
            try:
                yield from pattern.match_all(topics, judged)
            except InvalidArgument as error:
                self._refusals[text] = str(error)

    def topic_ids(self, names: Iterable[str], pattern: TopicPattern | None) -> frozenset[bytes]:
        """The topics of one member, as of the last refresh."""
        ids = {self._found[name][0] for name in names if name in self._found}
        if pattern is not None:
            judged = self._judged[pattern.text]
            ids.update(entry[0] for name, entry in self._found.items() if judged.get(name))
        return frozenset(ids)

    def names(self) -> frozenset[str]:
        """Every topic that exists and that somebody asks for."""
        return frozenset(self._found)

    def sizes(self) -> dict[bytes, int]:
        return dict(self._found.values())
