"""What all groups together may keep of what their members say of themselves.

A member sends up to a megabyte when it joins, and a leader an assignment for each of
its members; where the node assigns, the name of one topic makes an assignment of
thousands of partitions. A thousand groups of that size would be a gigabyte, so there is one budget
for all of them, and for what else a node keeps for its clients. A request that does not
fit is told to come again; before that, what is kept of groups without members goes, and then
groups that never got stable, the oldest first: their members join again, if they live.
"""

from __future__ import annotations

from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.registry import CoordinatedGroup
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.sizes import MEMBER_BYTES
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.streams.values import StreamsRequest
from headrace.engine.coordinator.values import JOIN_EPOCH, HeartbeatRequest, ShareRequest, Topics


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
    """About what the group keeps of its members, and of what they are to read."""
    assigned = 0 if isinstance(group, ClassicGroup) else group.assigned_bytes()
    return assigned + sum([MEMBER_BYTES + size for size in group.member_sizes()])


def growth(
    group: CoordinatedGroup | None,
    request: HeartbeatRequest | ShareRequest | StreamsRequest,
    topics: Topics,
) -> int:
    """About how many bytes more the group, which may be a new one, keeps when this was heard."""
    if request.member_epoch < JOIN_EPOCH:
        # Who leaves is never refused.
        return 0
    if isinstance(request, ShareRequest):
        return (group if isinstance(group, ShareGroup) else ShareGroup("")).growth(request, topics)
    if isinstance(request, StreamsRequest):
        return (group if isinstance(group, StreamsGroup) else StreamsGroup("")).growth(request)
    known = group if isinstance(group, ConsumerGroup) else ConsumerGroup("")
    return known.growth(request, topics)
