"""What a node asks of the members of a group. It may change while the group lives."""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.core import limits

# Whether groups with members go from the classic protocol to KIP-848 (upgrade), back
# (downgrade), both or neither.
Migration = Literal["bidirectional", "upgrade", "downgrade", "disabled"]


class GroupRules(NamedTuple):
    # The classic protocol: members choose their session within these bounds.
    rebalance_delay_ms: int = 0
    session_ms_min: int = 6_000
    session_ms_max: int = 1_800_000
    members_max: int = limits.GROUP_MEMBERS_MAX
    # The others: members are told.
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_members_max: int = limits.SHARE_GROUP_MEMBERS_MAX
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_members_max: int = limits.GROUP_MEMBERS_MAX
    # Copies of each task's state in other processes.
    streams_standby_replicas: int = 0
    # How long a new group waits for more members, and how long there is between two targets.
    streams_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: int = 1_000
    migration: Migration = "bidirectional"
