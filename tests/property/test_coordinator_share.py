"""Share groups under any interleaving of what members, time and topics can do.

Whatever happened, one round of heartbeats later every partition has a member, every
member has work where there is any, and both are level. Who went silent is named once,
so that its leases end once.
"""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.engine.coordinator.share import ShareGroup
from headrace.engine.coordinator.values import (
    GroupError,
    ShareRequest,
    TopicPartition,
    one_by_one,
)

SESSION_MS = 6_000
indexes = st.integers(0, 20)


class ShareMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ShareGroup("g", session_timeout_ms=SESSION_MS)
        self.topics = {"t": (b"t", 2)}
        self.now_ms = 0
        self.epochs: dict[str, int] = {}
        self.parts: dict[str, frozenset[TopicPartition]] = {}
        self.heard_ms: dict[str, int] = {}
        self.numbers = count(1)
        self.epoch_seen = 0

    @rule()
    def join(self) -> None:
        member_id = f"m{next(self.numbers)}"
        self.epochs[member_id] = 0
        self.beat(member_id)

    @precondition(lambda self: self.epochs)
    @rule(index=indexes, lost=st.booleans())
    def heartbeat(self, index: int, lost: bool) -> None:
        self.beat(self.pick(index), lost)

    @precondition(lambda self: self.epochs)
    @rule(index=indexes)
    def leave(self, index: int) -> None:
        member_id = self.pick(index)
        answer = self.group.on_heartbeat(ShareRequest(member_id, -1), self.topics, self.now_ms)
        assert answer.error is GroupError.NONE
        self.forget(member_id)

    @rule(milliseconds=st.sampled_from([1, 2_000, 6_000]))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        silent = self.group.tick(self.now_ms, self.topics)
        expected = [m for m, at_ms in self.heard_ms.items() if at_ms + SESSION_MS <= self.now_ms]
        assert sorted(silent) == sorted(expected)
        for member_id in silent:
            self.forget(member_id)

    @rule(size=st.integers(0, 9))
    def resize(self, size: int) -> None:
        self.topics = {"t": (b"t", size)} if size else {}

    @invariant()
    def members_are_those_who_were_heard(self) -> None:
        assert {m.member_id for m in self.group.describe().members} == set(self.epochs)
        assert all(self.group.has_member(member_id) for member_id in self.epochs)
        assert self.group.assignment_epoch >= self.epoch_seen
        self.epoch_seen = self.group.assignment_epoch

    @rule()
    def one_round_of_heartbeats_levels_everything(self) -> None:
        for member_id in list(self.epochs):
            self.beat(member_id)
        partitions = self.topics.get("t", (b"t", 0))[1]
        if not self.epochs or not partitions:
            assert not any(self.parts.values())
            return
        shares = [
            sum((b"t", number) in part for part in self.parts.values())
            for number in range(partitions)
        ]
        loads = [len(part) for part in self.parts.values()]
        assert min(shares) >= 1 and max(shares) - min(shares) <= 1
        assert min(loads) >= 1 and max(loads) - min(loads) <= 1

    def pick(self, index: int) -> str:
        return sorted(self.epochs)[index % len(self.epochs)]

    def forget(self, member_id: str) -> None:
        del self.epochs[member_id], self.heard_ms[member_id]
        self.parts.pop(member_id, None)

    def beat(self, member_id: str, lost: bool = False) -> None:
        epoch = self.epochs[member_id]
        names = ("t",) if epoch == 0 else None
        request = ShareRequest(member_id, epoch, subscribed_topic_names=names)
        answer = self.group.on_heartbeat(request, self.topics, self.now_ms)
        assert answer.error is GroupError.NONE
        self.heard_ms[member_id] = self.now_ms
        if lost:
            return
        assert answer.member_epoch >= epoch
        self.epochs[member_id] = answer.member_epoch
        if answer.assignment is not None:
            self.parts[member_id] = one_by_one(answer.assignment)


TestShareGroup = ShareMachine.TestCase
TestShareGroup.settings = settings(stateful_step_count=40)
