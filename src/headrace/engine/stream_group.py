"""The members of one stream group, and which partitions each of them reads."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.settings import OffsetReset


class StreamGroup:
    def __init__(self) -> None:
        self.generation = 0
        self.members: dict[str, tuple[str, ...]] = {}
        # Where a member wants to begin when there is no position.
        self.resets: dict[str, OffsetReset] = {}
        self.assigned: dict[str, list[tuple[str, int]]] = {}

    def share(self, counts: Mapping[str, int]) -> None:
        """Range assignment: of each topic, every member that wants it gets a
        contiguous piece."""
        self.generation += 1
        self.assigned = {member: [] for member in self.members}
        for topic, count in counts.items():
            wanting = sorted(m for m, topics in self.members.items() if topic in topics)
            if not wanting:
                continue
            size, extra = divmod(count, len(wanting))
            first = 0
            for number, member in enumerate(wanting):
                last = first + size + (number < extra)
                self.assigned[member] += [(topic, index) for index in range(first, last)]
                first = last
