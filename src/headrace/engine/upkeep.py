"""Upkeep of state logs: so many snapshots that a start replays seconds, not everything.

    partition   [snapshot, events ............]    replayed by the next start:
    partition   [snapshot, events ..]              all events behind the snapshots,
    partition   [snapshot, events .......]         at most STATE_REPLAY_BYTES_MAX in all

A state log takes a snapshot by itself after some MiB, when it is synced. That is too late
where many partitions have a little each, and never where a topic's durability leaves
syncing to the system. Both are seen to here, with the rest of the housekeeping, and once
more when a directory is closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core import limits
from headrace.engine.leading import unless_full
from headrace.engine.partition import Partition
from headrace.engine.retain import Steps, sync_steps

# Less than this is replayed as fast as a snapshot is read.
SNAPSHOT_WORTH_BYTES = 64 * 1024


def fair_share(partitions: Iterable[Partition]) -> int:
    """How much each may leave to be replayed, so that all of them together stay in the
    bound."""
    sizes = [
        each.state.bytes_since_snapshot
        for each in partitions
        if each.state is not None and each.state.bytes_since_snapshot >= SNAPSHOT_WORTH_BYTES
    ]
    if sum(sizes) <= limits.STATE_REPLAY_BYTES_MAX:
        return limits.STATE_REPLAY_BYTES_MAX
    return max(SNAPSHOT_WORTH_BYTES, limits.STATE_REPLAY_BYTES_MAX // len(sizes))


def keep_short(partition: Partition, share_bytes: int, now_ms: int) -> Steps:
    """Take a snapshot if more than its share would have to be replayed, and sync it where
    nobody else does. A full disk makes it wait."""
    state = partition.state
    if state is None:
        return
    if state.is_snapshot_due() or state.bytes_since_snapshot >= share_bytes:
        with unless_full():
            partition.snapshot(now_ms, force=True)
    if state.has_unsynced_snapshot and not partition.is_durable:
        yield from sync_steps(state.log)
        state.on_synced()


def close_short(partition: Partition, now_ms: int) -> None:
    """The next start reads a snapshot instead of what led to it. If it does not last, the
    events before it still do."""
    state = partition.state
    if state is not None and state.bytes_since_snapshot >= SNAPSHOT_WORTH_BYTES:
        with unless_full():
            partition.snapshot(now_ms, force=True)
