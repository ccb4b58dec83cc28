"""Upkeep of state logs: so many snapshots that a start replays seconds, not everything.

    partition   [snapshot, events ............]    replayed by the next start:
    partition   [snapshot, events ..]              all events behind the snapshots,
    partition   [snapshot, events .......]         at most STATE_REPLAY_BYTES_MAX in all

A state log takes a snapshot by itself after some MiB, when it is synced. That is too late
where many partitions have a little each, and never where a topic's durability leaves
syncing to the system. Both are seen to here, with the rest of the housekeeping, and once
more when a directory is closed. Those that have the most go first: each snapshot costs a
new segment, so a few large ones are better than many small ones, and of what is replayed
in a millisecond none is made.

Rejected: an even share for each partition. Those that are busy would be cut short again
and again for those that are not.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.core import limits
from headrace.engine.leading import unless_full
from headrace.engine.partition import Partition
from headrace.engine.retain import Steps, sync_steps
from headrace.engine.state_log import StateLog

# So much is worth a snapshot when a directory is closed, and less than this never is.
SNAPSHOT_WORTH_BYTES = 64 * 1024
LITTLE_BYTES = 4 * 1024


def fair_share(partitions: Iterable[Partition]) -> int:
    """How much each may leave to be replayed, so that all of them together stay in the
    bound: less than those have that have the most."""
    share = limits.STATE_REPLAY_BYTES_MAX
    states = [each.state for each in partitions if each.state is not None]
    left = sum([state.bytes_since_snapshot for state in states])
    for size in sorted([each.bytes_since_snapshot for each in states if _is_worth(each)])[::-1]:
        if left <= limits.STATE_REPLAY_BYTES_MAX:
            break
        left -= size
        share = size
    return share


def _is_worth(state: StateLog) -> bool:
    """Whether a snapshot is read sooner than what it replaces."""
    size = state.bytes_since_snapshot
    return size >= SNAPSHOT_WORTH_BYTES or size >= max(LITTLE_BYTES, state.snapshot_bytes)


def keep_short(partition: Partition, share_bytes: int, now_ms: int) -> Steps:
    """Take a snapshot if as much as its share would have to be replayed, and sync it where
    nobody else does. A full disk makes it wait."""
    state = partition.state
    if state is None:
        return
    if state.is_snapshot_due() or (state.bytes_since_snapshot >= share_bytes and _is_worth(state)):
        with unless_full():
            partition.snapshot(now_ms, force=True)
    if state.has_unsynced_snapshot and not partition.is_durable:
        yield from sync_steps(state.log)
        state.on_synced()


def close_short(partitions: Iterable[Partition], now_ms: int) -> None:
    """The next start reads snapshots instead of what led to them. If they do not last, the
    events before them still do. How many are made has a bound, and so how long this takes."""
    begun = [(each.state, each) for each in partitions if each.state is not None]
    left = sum([state.bytes_since_snapshot for state, _ in begun])
    worth = [pair for pair in begun if _is_worth(pair[0])]
    worth.sort(key=lambda pair: pair[0].bytes_since_snapshot, reverse=True)
    for state, partition in worth[: limits.SNAPSHOTS_AT_CLOSE_MAX]:
        size = state.bytes_since_snapshot
        if size < SNAPSHOT_WORTH_BYTES and left <= limits.STATE_CLOSED_BYTES_MAX:
            break
        left -= size
        with unless_full():
            partition.snapshot(now_ms, force=True)
