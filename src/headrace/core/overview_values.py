"""A node at a glance: what `headrace top` and the dashboard show, in one answer.

Everything is a total since the beginning or a state of now. Rates are what whoever asks
twice makes of two answers; but those of queues are known where their messages are leased.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class TopicTotals(NamedTuple):
    name: str
    partitions: int
    # What is there now.
    records: int
    size_bytes: int
    # Everything that was ever published, and what groups have been given of it: leases of
    # queues, and how far the cursors of streams have moved.
    published: int
    delivered: int
    # How many messages the group that is most behind has not done or not read.
    lag: int
    # Partitions that stopped because of rot, or whose queues did, and those in which
    # readers wait for the end of a transaction.
    stopped: int
    undecided: int
    # Given up and neither redriven nor purged.
    dead_letters: int
    # Somebody's own, dead letters of one that is there, or notes of the node's.
    kind: Literal["topic", "letters", "internal"] = "topic"


class GroupTotals(NamedTuple):
    name: str
    kind: Literal["queue", "stream"]
    topics: tuple[str, ...]
    # None where nobody can tell: in a directory that is looked at from outside, and of
    # a query on Spark, which commits how far it has come and is no member.
    members: int | None
    # Messages that are not done, or not read.
    lag: int
    # When the first of them that somebody could have now was published; None when there is
    # none, or it is not in memory. Where many partitions lag, those that lag most count.
    oldest_ms: int | None
    # States of a queue's messages.
    ready: int
    waiting: int
    leased: int
    retrying: int
    delayed: int
    moving: int
    # How much it was asked to do, how much it was given, and what it gave up.
    published: int
    delivered: int
    dead_lettered: int
    # Leases that did not end in an ack: nacks, ends of time, and what was given up.
    failed: int = 0
    # Whether a client leased, polled or committed as it within GROUP_UNREAD_MS: between
    # two calls a client over HTTP is no member.
    read_lately: bool = False
    # A queue's messages a second, over the last ten, as its statistics have them; None
    # where this process has leased none.
    rate_in: float | None = None
    rate_out: float | None = None

    @property
    def is_unread(self) -> bool:
        return self.members == 0 and not self.read_lately


class OpenTransaction(NamedTuple):
    name: str
    started_at_ms: int
    timeout_ms: int


class Overview(NamedTuple):
    at_ms: int
    topics: tuple[TopicTotals, ...]
    groups: tuple[GroupTotals, ...]
    # The oldest ones.
    transactions: tuple[OpenTransaction, ...]
    open_transactions: int


class UnreadableBatch(NamedTuple):
    """A batch that is as it was written, and that nobody here opens."""

    topic: str
    partition: int
    # Its offsets, the second exclusive.
    start: int
    end: int
    why: str


class Spread(NamedTuple):
    """How long something took, since the node was started: how often it was within each
    of these bounds, in seconds, and, as the last count, above them all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]


class NodeFigures(NamedTuple):
    """The process that serves, and the disk under it. None is what could not be found
    out."""

    version: str
    node_id: int
    data: str
    started_at_ms: int | None
    now_ms: int
    cpu_seconds: float | None
    memory_bytes: int | None
    memory_bytes_max: int | None
    disk_free_bytes: int | None
    disk_total_bytes: int | None
    # How long one sync took on average.
    sync_ms: float | None
    # Publishing stops here.
    disk_floor_bytes: int
    open_files: int | None
    open_files_max: int | None
    connections: int
    # Addresses by door.
    doors: dict[str, str]
    # Why syncs have failed, if they have.
    sync_failed: str | None = None
    # Syncs, and how late the event loop came.
    syncs: Spread | None = None
    loop_lag: Spread | None = None
