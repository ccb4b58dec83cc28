"""The registry: every group that has members on this node, by name, of one kind each.

    JoinGroup ───────────────> classic ──> ClassicGroup
    ConsumerGroupHeartbeat ──> consumer ─> ConsumerGroup      or the error that says
    ShareGroupHeartbeat ─────> share ────> ShareGroup         that the name is taken
    StreamsGroupHeartbeat ───> streams ──> StreamsGroup

A name belongs to the kind of its members. While it has none, whoever comes first
decides anew. A group with members may go from the classic protocol to KIP-848 and back:
the caller asks for that (mixed.py) and has the group replaced.

A group without members is worth nothing here, since its offsets live elsewhere; when
there are too many groups, those are forgotten first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.core import limits
from headrace.engine.coordinator.classic import ClassicGroup
from headrace.engine.coordinator.consumer import ConsumerGroup
from headrace.engine.coordinator.mixed import MixedGroup
from headrace.engine.coordinator.rules import GroupRules
from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.streams.group import StreamsGroup
from headrace.engine.coordinator.values import GroupError

CoordinatedGroup = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


class GroupRegistry:
    def __init__(
        self,
        *,
        rules_of: Callable[[str], GroupRules] = lambda name: GroupRules(),
        groups_max: int = limits.GROUPS_MAX,
        on_forgotten: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`rules_of` a group are looked up whenever one of its members is heard of;
        `on_forgotten` is told of groups that had to make room."""
        self._rules_of = rules_of
        self._on_forgotten = on_forgotten
        self._groups_max = groups_max
        self._groups: dict[str, CoordinatedGroup] = {}

    def __iter__(self) -> Iterator[CoordinatedGroup]:
        return iter(list(self._groups.values()))

    def find(self, name: str) -> CoordinatedGroup | None:
        return self._groups.get(name)

    def classic(self, name: str) -> ClassicGroup | GroupError:
        """The group that a classic member joins, made if need be."""
        group = self._groups.get(name)
        if isinstance(group, ClassicGroup):
            group.obey(self._rules_of(name))
            return group
        refusal = self._refuse(name, group, GroupError.INCONSISTENT_GROUP_PROTOCOL)
        if refusal is not GroupError.NONE:
            return refusal
        # The count goes on where the last kind of group stopped, so that no
        # number of a former member means anything now.
        made = ClassicGroup(name, generation=_last_epoch(group))
        made.obey(self._rules_of(name))
        self._groups[name] = made
        return made

    def consumer(self, name: str) -> ConsumerGroup | GroupError:
        """The group that a member with broker-side assignment joins."""
        group = self._groups.get(name)
        if isinstance(group, ConsumerGroup):
            group.obey(self._rules_of(name))
            return group
        refusal = self._refuse(name, group, GroupError.GROUP_ID_NOT_FOUND)
        if refusal is not GroupError.NONE:
            return refusal
        made = MixedGroup(name, epoch=_last_epoch(group))
        made.obey(self._rules_of(name))
        self._groups[name] = made
        return made

    def share(self, name: str) -> ShareGroup | GroupError:
        group = self._groups.get(name)
        if isinstance(group, ShareGroup):
            group.obey(self._rules_of(name))
            return group
        refusal = self._refuse(name, group, GroupError.GROUP_ID_NOT_FOUND)
        if refusal is not GroupError.NONE:
            return refusal
        made = ShareGroup(name, epoch=_last_epoch(group))
        made.obey(self._rules_of(name))
        self._groups[name] = made
        return made

    def streams(self, name: str) -> StreamsGroup | GroupError:
        """The group that an instance of a Kafka Streams application joins."""
        group = self._groups.get(name)
        if isinstance(group, StreamsGroup):
            group.obey(self._rules_of(name))
            return group
        refusal = self._refuse(name, group, GroupError.GROUP_ID_NOT_FOUND)
        if refusal is not GroupError.NONE:
            return refusal
        made = StreamsGroup(name, epoch=_last_epoch(group), rules=self._rules_of(name))
        self._groups[name] = made
        return made

    def replace(self, group: CoordinatedGroup) -> None:
        """The group of this name goes on as this one."""
        self._groups[group.name] = group

    def delete(self, name: str) -> GroupError:
        group = self._groups.get(name)
        if group is None:
            return GroupError.GROUP_ID_NOT_FOUND
        if not group.is_empty():
            return GroupError.NON_EMPTY_GROUP
        del self._groups[name]
        return GroupError.NONE

    def next_deadline_ms(self) -> int | None:
        deadlines = (group.next_deadline_ms() for group in self._groups.values())
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def _refuse(
        self, name: str, group: CoordinatedGroup | None, other_kind: GroupError
    ) -> GroupError:
        if not name:
            return GroupError.INVALID_GROUP_ID
        if group is not None:
            return GroupError.NONE if group.is_empty() else other_kind
        if len(self._groups) >= self._groups_max:
            for idle in [name for name, held in self._groups.items() if held.is_empty()]:
                del self._groups[idle]
                self._on_forgotten(idle)
            if len(self._groups) >= self._groups_max:
                return GroupError.POLICY_VIOLATION
        return GroupError.NONE


def _last_epoch(group: CoordinatedGroup | None) -> int:
    if group is None:
        return 0
    return group.generation if isinstance(group, ClassicGroup) else group.group_epoch
