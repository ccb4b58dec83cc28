"""The state log's records: what happened to messages, as outcomes.

Every partition has a companion log for all its queue groups. One call on one
partition is one batch of these, so it holds whole or not at all. They say what
came out (and who, when and why), never what to do: replaying them needs no clock
and no chance. The page docs/formats/state-log.md lists them; numbers and the
order of fields are on disk, so fields are only ever added at the end.

Rejected: a record per message, keyed and compacted. Runs of offsets are smaller
by orders of magnitude, and a snapshot is cheaper than a compaction.
"""

from __future__ import annotations

import msgspec

from headrace.core.errors import CorruptLog

Runs = list[int]

# None of them is ever part of a cycle, so the collector need not look at them.


class Opened(msgspec.Struct, array_like=True, tag=1, frozen=True, gc=False):
    """A group's window on this partition begins at `start`."""

    group: int
    start: int
    at: int


class Granted(msgspec.Struct, array_like=True, tag=2, frozen=True, gc=False):
    """Leased to `owner` until `until`; `attempts` has the count for each run, and `tie`
    says what ends the lease before (`engine.grant`)."""

    group: int
    grant: int
    owner: str
    nonce: int
    at: int
    until: int
    runs: Runs
    attempts: list[int]
    tie: int = 0


class Acked(msgspec.Struct, array_like=True, tag=3, frozen=True, gc=False):
    group: int
    who: str
    at: int
    runs: Runs


class Retried(msgspec.Struct, array_like=True, tag=4, frozen=True, gc=False):
    """Given back with a failure: ready again at `due`."""

    group: int
    who: str
    at: int
    due: int
    error: str | None
    runs: Runs


class LeaseEnded(msgspec.Struct, array_like=True, tag=5, frozen=True, gc=False):
    """Nobody settled it in time: ready again, the delivery counts."""

    group: int
    at: int
    runs: Runs


class Released(msgspec.Struct, array_like=True, tag=6, frozen=True, gc=False):
    """Given back unused: ready again, the delivery does not count."""

    group: int
    who: str
    at: int
    runs: Runs


class Extended(msgspec.Struct, array_like=True, tag=7, frozen=True, gc=False):
    """More time: the messages go under a new grant with the same nonce."""

    group: int
    grant: int
    owner: str
    nonce: int
    at: int
    until: int
    runs: Runs


class Expired(msgspec.Struct, array_like=True, tag=8, frozen=True, gc=False):
    """Outlived its TTL."""

    group: int
    at: int
    runs: Runs


class Cancelled(msgspec.Struct, array_like=True, tag=9, frozen=True, gc=False):
    """Delayed messages called off, for all groups, present and future."""

    at: int
    runs: Runs


class MoveIntended(msgspec.Struct, array_like=True, tag=10, frozen=True, gc=False):
    """These will be copied to another partition, whose end is `target_end` now:
    a recovery looks for their copies from there before it copies again."""

    group: int
    move: int
    target_topic: bytes
    target_partition: int
    target_end: int
    who: str
    at: int
    reason: str
    error: str | None
    runs: Runs
    redrive: bool
    outcome: int
    # A redrive that copies nothing: the messages are revived where they were.
    in_place: bool = False


class MoveDone(msgspec.Struct, array_like=True, tag=11, frozen=True, gc=False):
    """The copies are on disk; the messages end as `outcome`."""

    group: int
    move: int
    at: int
    outcome: int
    runs: Runs


class Purged(msgspec.Struct, array_like=True, tag=12, frozen=True, gc=False):
    """Thrown away by hand."""

    group: int
    who: str
    at: int
    runs: Runs


class Closed(msgspec.Struct, array_like=True, tag=13, frozen=True, gc=False):
    """The group is gone from this partition."""

    group: int


class Cut(msgspec.Struct, array_like=True, tag=14, frozen=True, gc=False):
    """The data log ends here: what was said of offsets from here on is void."""

    end: int


class AckHeld(msgspec.Struct, array_like=True, tag=15, frozen=True, gc=False):
    """A transaction of this producer will ack these, or have them leased to nobody
    under this grant. It is in a batch of that transaction."""

    group: int
    grant: int
    who: str
    at: int
    producer: int
    runs: Runs


class HeldDecided(msgspec.Struct, array_like=True, tag=16, frozen=True, gc=False):
    """The transaction has ended. Written only where a snapshot is taken before the
    marker that says so is synced."""

    group: int
    producer: int
    at: int
    commit: bool


class Revived(msgspec.Struct, array_like=True, tag=17, frozen=True, gc=False):
    """Redriven in place: dead-lettered messages are ready again, with all attempts.
    `marks` has for each run its lane, how often it was redriven by now, and the hash of
    its key (0 for none, or where the topic has no order of keys)."""

    group: int
    who: str
    at: int
    runs: Runs
    marks: list[tuple[int, int, int]]


class SnapshotPartition(msgspec.Struct, array_like=True, tag=20, frozen=True, gc=False):
    """Begins a snapshot: whatever came before is replaced by what follows, up
    to its end."""

    at: int
    cancelled: Runs


class SnapshotGroup(msgspec.Struct, array_like=True, tag=21, frozen=True, gc=False):
    """Begins a group's part; its columns follow, then the rest."""

    group: int
    start: int
    end: int


class SnapshotChunk(msgspec.Struct, array_like=True, tag=22, frozen=True, gc=False):
    """Columns of 64Ki offsets, each deflated."""

    group: int
    number: int
    state: bytes
    attempts: bytes | None


class SnapshotKeys(msgspec.Struct, array_like=True, tag=23, frozen=True, gc=False):
    group: int
    number: int
    keys: bytes


class SnapshotRest(msgspec.Struct, array_like=True, tag=24, frozen=True, gc=False):
    """Ends a group's part: what needs the columns to be there."""

    group: int
    next_grant: int
    next_move: int
    totals: dict[str, int]
    # Due times and offsets of retrying messages, as arrays of 8-byte integers.
    retry_due: bytes
    retry_offsets: bytes
    failures: list[tuple[int, int, str | None]]
    grants: list[Granted]
    moves: list[MoveIntended]
    held: list[AckHeld] = []
    # Messages that were redriven in place, and how often.
    redrives: list[tuple[int, int]] = []


class SnapshotEnd(msgspec.Struct, array_like=True, tag=25, frozen=True, gc=False):
    """A snapshot without its end was cut off and counts for nothing."""

    at: int


# What happens to messages; each has the runs that it is about.
MessageEvent = (
    Granted
    | Acked
    | Retried
    | LeaseEnded
    | Released
    | Extended
    | Expired
    | MoveIntended
    | MoveDone
    | Purged
    | AckHeld
    | Revived
)
SnapshotEvent = SnapshotGroup | SnapshotChunk | SnapshotKeys | SnapshotRest
GroupEvent = Opened | MessageEvent | HeldDecided | SnapshotEvent
Event = GroupEvent | Closed | Cancelled | Cut | SnapshotPartition | SnapshotEnd

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
# For who handles msgspec's own errors.
decode = _decoder.decode


def encode_event(event: Event) -> bytes:
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise CorruptLog(
            f"a state record cannot be read ({error}); it may come from a newer Headrace"
        ) from error
