"""One member of a streams group, and how it gets from what it has to what it should have.

As in a consumer group (reconciliation.py) a member follows the target at its own pace:

                    something to give up, and not given up yet
    STABLE ──────────────────────────────────────────────────> REVOKING
      ^  ^                                                        |
      |  └──────────── all that is free was granted <─────────────┤ it let go
      |                                                           v
      └──────────── the last one came free ────────────────── AWAITING
                                              others still hold what it should get

An active task is granted while no member has it and the member's own process has no
standby of it; a standby, while that process does not have the task in any role, since
threads of one process share the directory with its state.

A member moves to the target's epoch when it has let go of everything it should. Each
active task remembers the epoch at which it was granted: a commit that was under way
while the member's epoch rose is right for every task that it had before.
"""

from __future__ import annotations

from headrace.engine.coordinator.sizes import PAIR_BYTES, text_bytes
from headrace.engine.coordinator.stored import StoredTasks, StreamsRecord
from headrace.engine.coordinator.streams.values import (
    NO_TASKS,
    NOTHING,
    Endpoint,
    Held,
    StreamsRequest,
    Task,
)
from headrace.engine.coordinator.values import JOIN_EPOCH

STABLE = "stable"
REVOKING = "revoking"
AWAITING = "awaiting"


class Holders:
    """Every task that a member was granted and has not been heard to have let go of: the
    one place that says whether a task is free."""

    def __init__(self) -> None:
        self._active: dict[Task, StreamsMember] = {}
        self._standby: dict[Task, set[StreamsMember]] = {}

    def grant(self, member: StreamsMember, wanted: Held) -> Held:
        """As much of it as is free, which is the member's from now on."""
        granted = Held(
            frozenset(task for task in wanted.active if self._is_free(task, member)),
            frozenset(task for task in wanted.standby if not self._is_near(task, member)),
        )
        self.take_over(member, granted)
        return granted

    def take_over(self, member: StreamsMember, tasks: Held) -> None:
        """The member has these, and nobody else."""
        for task in tasks.active:
            self._active[task] = member
        for task in tasks.standby:
            self._standby.setdefault(task, set()).add(member)

    def release(self, member: StreamsMember, tasks: Held) -> None:
        for task in tasks.active:
            if self._active.get(task) is member:
                del self._active[task]
        for task in tasks.standby:
            keepers = self._standby.get(task, set())
            keepers.discard(member)
            if not keepers:
                self._standby.pop(task, None)

    def _is_free(self, task: Task, member: StreamsMember) -> bool:
        return task not in self._active and not self._is_near(task, member)

    def _is_near(self, task: Task, member: StreamsMember) -> bool:
        """Whether a thread of the member's process has it."""
        active = self._active.get(task)
        return (active is not None and active.process_id == member.process_id) or any(
            keeper.process_id == member.process_id for keeper in self._standby.get(task, ())
        )


class StreamsMember:
    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "client_tags",
        "endpoint",
        "epoch",
        "expires_ms",
        "granted_epochs",
        "heard_epoch",
        "member_id",
        "process_id",
        "rack_id",
        "rebalance_timeout_ms",
        "revoke_deadline_ms",
        "revoking",
        "state",
        "topology_epoch",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.process_id = ""
        self.endpoint: Endpoint | None = None
        self.client_tags: tuple[tuple[str, str], ...] = ()
        self.topology_epoch = -1
        self.rebalance_timeout_ms = 0
        self.epoch = JOIN_EPOCH
        # The epoch that its last heartbeat had. Our answer with a newer one may have been
        # lost, so the member may come with this one again.
        self.heard_epoch = JOIN_EPOCH
        self.state = STABLE
        # Granted and to be kept; granted and to be given up.
        self.assigned = NOTHING
        self.revoking = NOTHING
        self.granted_epochs: dict[Task, int] = {}
        self.expires_ms = 0
        self.revoke_deadline_ms: int | None = None

    def update(self, request: StreamsRequest) -> bool:
        """Take over what the member says of itself; whether anything changed. What it does
        not say stays as it was."""
        before = self._said()
        self.client_id = request.client_id
        self.client_host = request.client_host
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms > 0:
            self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.topology is not None:
            self.topology_epoch = request.topology.epoch
        if request.process_id is not None:
            self.process_id = request.process_id
        if request.endpoint is not None:
            self.endpoint = request.endpoint
        if request.client_tags is not None:
            self.client_tags = request.client_tags
        return before != self._said()

    def _said(self) -> tuple[object, ...]:
        return (
            self.client_id, self.client_host, self.rack_id, self.rebalance_timeout_ms,
            self.topology_epoch, self.process_id, self.endpoint, self.client_tags,
        )  # fmt: skip

    # What is written down.

    def facts(self) -> tuple[object, ...]:
        """All that is written down of it, to be compared with what it was."""
        return self.epoch, self.state, self.assigned, self.revoking, self._said()

    def record(self) -> StreamsRecord:
        return StreamsRecord(
            self.epoch,
            self.heard_epoch,
            self.state,
            StoredTasks.of(self.assigned),
            StoredTasks.of(self.revoking),
            tuple(sorted(self.granted_epochs.items())),
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topology_epoch,
            self.process_id,
            self.endpoint,
            self.client_tags,
            self.rebalance_timeout_ms,
        )

    def restore(self, record: StreamsRecord) -> None:
        """Be the member that was written down."""
        self.epoch, self.heard_epoch = record.epoch, record.heard_epoch
        self.state = record.state
        self.assigned, self.revoking = record.assigned.as_held(), record.revoking.as_held()
        self.granted_epochs = dict(record.granted_epochs)
        self.rack_id = record.rack_id
        self.client_id, self.client_host = record.client_id, record.client_host
        self.topology_epoch = record.topology_epoch
        self.process_id, self.endpoint = record.process_id, record.endpoint
        self.client_tags = record.client_tags
        self.rebalance_timeout_ms = record.rebalance_timeout_ms

    def held_bytes(self) -> int:
        """About what is kept of what it says."""
        said = text_bytes(self.member_id, self.process_id, self.rack_id, self.client_id)
        return said + _endpoint_bytes(self.endpoint) + _tags_bytes(self.client_tags)

    def growth(self, request: StreamsRequest) -> int:
        """By how much more that would be. What it does not say stays as it was."""
        more = text_bytes(request.client_id) - text_bytes(self.client_id)
        if request.rack_id is not None:
            more += text_bytes(request.rack_id) - text_bytes(self.rack_id)
        if request.process_id is not None:
            more += text_bytes(request.process_id) - text_bytes(self.process_id)
        if request.endpoint is not None:
            more += _endpoint_bytes(request.endpoint) - _endpoint_bytes(self.endpoint)
        if request.client_tags is not None:
            more += _tags_bytes(request.client_tags) - _tags_bytes(self.client_tags)
        return max(0, more)

    def may_commit_behind(self, epoch: int, tasks: frozenset[Task]) -> bool:
        """Whether an epoch of the past is good enough for these tasks."""
        return all(
            task in self.granted_epochs and epoch >= self.granted_epochs[task] for task in tasks
        )

    def granted(self) -> Held:
        """Everything that it is not known to have let go of."""
        return _joined(self.assigned, self.revoking)

    def release(self, holders: Holders, tasks: Held | None = None) -> None:
        """Free these tasks, or everything that the member holds."""
        if tasks is None:
            tasks = self.granted()
        holders.release(self, tasks)
        self.assigned = _without(self.assigned, tasks)
        self.revoking = _without(self.revoking, tasks)
        for task in tasks.active:
            self.granted_epochs.pop(task, None)

    def reconcile(
        self, target: Held, target_epoch: int, owned: Held | None, holders: Holders, now_ms: int
    ) -> None:
        """One step towards the target. `owned` is what the member says it has, None if it
        did not say."""
        if self.state == STABLE and self.epoch == target_epoch:
            return
        if self.state == REVOKING:
            if owned is None or _overlap(owned, self.revoking):
                return
            self.release(holders, self.revoking)
        excess = _without(self.assigned, target)
        if excess != NOTHING and (owned is None or _overlap(owned, excess)):
            self.assigned = _without(self.assigned, excess)
            self.revoking = excess
            self.state = REVOKING
            self.revoke_deadline_ms = now_ms + self.rebalance_timeout_ms
            return
        self.release(holders, excess)
        missing = _without(target, self.assigned)
        granted = holders.grant(self, missing)
        self.assigned = _joined(self.assigned, granted)
        self.granted_epochs.update(dict.fromkeys(granted.active, target_epoch))
        self.state = STABLE if granted == missing else AWAITING
        self.revoke_deadline_ms = None
        self.epoch = target_epoch


def _endpoint_bytes(endpoint: Endpoint | None) -> int:
    return 0 if endpoint is None else text_bytes(endpoint.host)


def _tags_bytes(tags: tuple[tuple[str, str], ...]) -> int:
    return sum([PAIR_BYTES + text_bytes(*tag) for tag in tags])


def is_within(some: Held, all_of: Held) -> bool:
    return some.active <= all_of.active and some.standby <= all_of.standby


def _overlap(one: Held, other: Held) -> bool:
    return bool(one.active & other.active or one.standby & other.standby)


def _without(one: Held, other: Held) -> Held:
    return Held(one.active - other.active or NO_TASKS, one.standby - other.standby or NO_TASKS)


def _joined(one: Held, other: Held) -> Held:
    return Held(one.active | other.active, one.standby | other.standby)
