"""Reconciliation: how one member gets from what it has to what it should have.

A target is what the assignor wants; a member follows it at its own pace, and no
partition is granted while another member may still be reading it.

                    something to give up, and not given up yet
    STABLE ──────────────────────────────────────────────────> REVOKING
      ^  ^                                                        |
      |  └──────────── all that is free was granted <─────────────┤ it let go
      |                                                           v
      └──────────── the last one came free ────────────────── AWAITING
                                              others still hold what it should get

A member moves to the target's epoch when it has let go of everything it should;
until then it keeps its old epoch, so that it can still commit what it read.

`holders` has every partition that somebody was granted and has not been heard to
have let go of. It is the one place that says whether a partition is free.
"""

from __future__ import annotations

from collections.abc import Set

from headrace.engine.coordinator.sizes import more_said, protocols_bytes, text_bytes
from headrace.engine.coordinator.stored import ClassicSaid, ConsumerRecord
from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.engine.coordinator.values import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    HeartbeatRequest,
    JoinRequest,
    TopicPartition,
    by_topic,
    one_by_one,
)

STABLE = "stable"
REVOKING = "revoking"
AWAITING = "awaiting"

Holders = dict[TopicPartition, str]
NOTHING: frozenset[TopicPartition] = frozenset()


class ConsumerMember:
    __slots__ = (
        "_names",
        "assigned",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "epoch",
        "expires_ms",
        "heard_epoch",
        "instance_id",
        "join_deadline_ms",
        "member_id",
        "names_bytes",
        "pattern",
        "rack_id",
        "rebalance_timeout_ms",
        "revoke_deadline_ms",
        "revoking",
        "state",
    )

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.names = ()
        self.pattern: TopicPattern | None = None
        self.assignor: str | None = None
        self.rebalance_timeout_ms = 0
        self.epoch = JOIN_EPOCH
        # The epoch that its last heartbeat had. Our answer with a newer one may
        # have been lost, so the member may come with this one again.
        self.heard_epoch = JOIN_EPOCH
        self.state = STABLE
        # Granted and to be kept; granted and to be given up.
        self.assigned = NOTHING
        self.revoking = NOTHING
        self.expires_ms = 0
        self.revoke_deadline_ms: int | None = None
        # What a member of the classic protocol said when it last joined, and until when it
        # has to join again.
        self.classic: JoinRequest | None = None
        self.join_deadline_ms: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @names.setter
    def names(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.names_bytes = text_bytes(*names)

    def size_bytes(self) -> int:
        """About what is kept of what it says."""
        said = text_bytes(
            self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host,
            self.pattern.text if self.pattern else None,
        )  # fmt: skip
        protocols = self.classic.protocols if self.classic is not None else ()
        return said + self.names_bytes + protocols_bytes(protocols)

    def growth(self, request: HeartbeatRequest) -> int:
        """By how much more that would be."""
        more = more_said(self, request)
        if request.subscribed_topic_regex is not None:
            before = self.pattern.text if self.pattern else None
            more += text_bytes(request.subscribed_topic_regex) - text_bytes(before)
        return max(0, more)

    @property
    def is_away(self) -> bool:
        """A static member that said it will be back: it reads nothing now."""
        return self.epoch == STATIC_LEAVE_EPOCH

    def update(self, request: HeartbeatRequest, pattern: TopicPattern | None) -> bool:
        """Take over what the member says of itself; whether it wants something
        else than before. What it does not say stays as it was."""
        before = self._wishes()
        self.client_id = request.client_id
        self.client_host = request.client_host
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms > 0:
            self.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.server_assignor is not None:
            self.assignor = request.server_assignor
        if request.subscribed_topic_names is not None:
            self.names = tuple(sorted(set(request.subscribed_topic_names)))
        if request.subscribed_topic_regex is not None:
            self.pattern = pattern
        return before != self._wishes()

    def facts(self) -> tuple[object, ...]:
        """All that is written down of it, to be compared with what it was."""
        return (
            self.epoch, self.state, self.assigned, self.revoking, self._wishes(), self.rack_id,
            self.client_id, self.client_host, self.rebalance_timeout_ms, self.classic,
        )  # fmt: skip

    def record(self) -> ConsumerRecord:
        return ConsumerRecord(
            self.epoch,
            self.heard_epoch,
            self.state,
            by_topic(self.assigned),
            by_topic(self.revoking),
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.names,
            self.pattern.text if self.pattern else None,
            self.assignor,
            self.rebalance_timeout_ms,
            None if self.classic is None else ClassicSaid.of(self.classic),
        )

    def restore(self, record: ConsumerRecord, pattern: TopicPattern | None) -> None:
        """Be as that was written down."""
        self.epoch, self.heard_epoch = record.epoch, record.heard_epoch
        self.state = record.state
        self.assigned, self.revoking = one_by_one(record.assigned), one_by_one(record.revoking)
        self.rack_id = record.rack_id
        self.client_id, self.client_host = record.client_id, record.client_host
        self.names, self.pattern, self.assignor = record.names, pattern, record.assignor
        self.rebalance_timeout_ms = record.rebalance_timeout_ms
        if record.classic is not None:
            self.classic = record.classic.as_request(self.member_id)

    def _wishes(self) -> tuple[tuple[str, ...], str | None, str | None]:
        return self.names, self.pattern.text if self.pattern else None, self.assignor

    def release(self, holders: Holders, partitions: Set[TopicPartition] | None = None) -> None:
        """Free these partitions, or everything that the member holds."""
        freed = self.assigned | self.revoking if partitions is None else partitions
        for partition in freed:
            if holders.get(partition) == self.member_id:
                del holders[partition]
        self.assigned -= freed
        self.revoking -= freed

    def reconcile(
        self,
        target: frozenset[TopicPartition],
        target_epoch: int,
        owned: frozenset[TopicPartition] | None,
        holders: Holders,
        now_ms: int,
    ) -> None:
        """One step towards the target. `owned` is what the member says it has,
        None if it did not say."""
        if self.state == STABLE and self.epoch == target_epoch:
            return
        if self.state == REVOKING:
            if owned is None or owned & self.revoking:
                return
            self.release(holders, self.revoking)
        excess = self.assigned - target
        if excess and (owned is None or owned & excess):
            self.assigned -= excess
            self.revoking = excess
            self.state = REVOKING
            self.revoke_deadline_ms = now_ms + self.rebalance_timeout_ms
            return
        self.release(holders, excess)
        missing = target - self.assigned
        granted = frozenset(partition for partition in missing if partition not in holders)
        for partition in granted:
            holders[partition] = self.member_id
        self.assigned |= granted
        self.state = STABLE if granted == missing else AWAITING
        self.revoke_deadline_ms = None
        self.epoch = target_epoch
