"""What all groups together may keep of what their members say of themselves.

A member sends up to a megabyte when it joins, and a leader an assignment for each of
its members. A thousand groups of that size would be a gigabyte, so there is one budget
for all of them, and for what else a node keeps for its clients. A request that does not
fit is told to come again; before that, what is kept of groups without members goes, and then
groups that never got stable, the oldest first: their members join again, if they live.
"""

from __future__ import annotations

from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.registry import CoordinatedGroup

# What a member takes beside what it says, about.
MEMBER_BYTES = 1_024


class GroupBudget:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        # Of all groups.
        self.size_bytes = 0
        self._sizes: dict[str, int] = {}

    def note(self, group: CoordinatedGroup) -> None:
        """The group may have changed."""
        self.forget(group.name)
        size = held_bytes(group)
        if size:
            self._sizes[group.name] = size
            self.size_bytes += size

    def forget(self, name: str) -> None:
        self.size_bytes -= self._sizes.pop(name, 0)

    def idle(self, groups: list[CoordinatedGroup]) -> list[str]:
        """Those without members that keep something all the same, the oldest first."""
        return [group.name for group in groups if group.is_empty() and self._sizes.get(group.name)]

    def unstable(self, groups: list[CoordinatedGroup]) -> list[ClassicGroup]:
        """Those that never got stable and keep something, the oldest first."""
        return [
            group
            for group in groups
            if isinstance(group, ClassicGroup)
            and not group.was_stable
            and self._sizes.get(group.name)
        ]


def held_bytes(group: CoordinatedGroup) -> int:
    """About what the group keeps of its members."""
    patterns = group.pattern_bytes() if isinstance(group, ConsumerGroup) else 0
    return patterns + sum(MEMBER_BYTES + size for size in group.member_sizes())
