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
        # Of those that keep something, the ones that make room first: it is asked for them
        # with every request that does not fit, and there may be thousands of others.
        self._idle: dict[str, None] = {}
        self._unstable: dict[str, ClassicGroup] = {}

    def note(self, group: CoordinatedGroup) -> None:
        """The group may have changed."""
        name, size = group.name, held_bytes(group)
        self.size_bytes += size - self._sizes.pop(name, 0)
        if size:
            self._sizes[name] = size
        # One that stays in its list keeps its place there.
        if size and group.is_empty():
            self._idle.setdefault(name)
        else:
            self._idle.pop(name, None)
        if size and isinstance(group, ClassicGroup) and not group.was_stable:
            self._unstable[name] = group
        else:
            self._unstable.pop(name, None)

    def forget(self, name: str) -> None:
        self.size_bytes -= self._sizes.pop(name, 0)
        self._idle.pop(name, None)
        self._unstable.pop(name, None)

    def idle(self) -> list[str]:
        """Those without members that keep something all the same, the oldest first."""
        return list(self._idle)

    def unstable(self) -> list[ClassicGroup]:
        """Those that never got stable and keep something, the oldest first."""
        return list(self._unstable.values())


def held_bytes(group: CoordinatedGroup) -> int:
    """About what the group keeps of its members."""
    patterns = group.pattern_bytes() if isinstance(group, ConsumerGroup) else 0
    return patterns + sum(MEMBER_BYTES + size for size in group.member_sizes())
