"""What goes in at the node's face and what comes out: frozen values, no methods
that do work. The embedded node and every door speak in these.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

from headrace.core.errors import InvalidArgument, InvalidName, InvalidReceipt
from headrace.core.limits import NAME_CHARACTERS_MAX
from headrace.core.wording import counted

Item = TypeVar("Item")
# Where a listing goes on.
Mark = TypeVar("Mark")

Headers = tuple[tuple[str, bytes | None], ...]

State = Literal[
    "pending", "delayed", "leased", "retrying", "acked", "dead-lettered", "expired", "cancelled"
]


class MessageId(NamedTuple):
    """A message's place. `str()` gives `topic:partition:offset`."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        parts = text.rsplit(":", 2) if isinstance(text, str) else []
        if len(parts) == 3 and all(
            part.isascii() and part.isdecimal() and len(part) < 20 for part in parts[1:]
        ):
            return cls(parts[0], int(parts[1]), int(parts[2]))
        raise InvalidArgument(f"{text!r:.80} is not a message id; it looks like orders:0:42")


class Outgoing(NamedTuple):
    """A record on its way in. Queue attributes are among its headers."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class PlacedBatch(NamedTuple):
    """A record batch that a client made, and where it goes."""

    topic: str
    partition: int
    batch: bytearray


class Published(NamedTuple):
    partition: int
    offset: int
    # True when deduplication found it: the place is that of the first one.
    duplicate: bool = False


class PublishedRuns(Sequence[Published]):
    """Places of many messages, kept as (partition, first offset, count)."""

    __slots__ = ("_ends", "runs")

    def __init__(self, runs: list[tuple[int, int, int]]) -> None:
        self.runs = runs
        self._ends = list(accumulate(count for _, _, count in runs))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Published: ...
    @overload
    def __getitem__(self, index: slice) -> list[Published]: ...
    def __getitem__(self, index: int | slice) -> Published | list[Published]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"{index} is not one of {counted(len(self), 'published message')}")
        run = bisect_right(self._ends, number)
        partition, offset, count = self.runs[run]
        return Published(partition, offset + number - self._ends[run] + count)


_RECEIPT = struct.Struct(">B16sIIQBQ")
_RECEIPT_VERSION = 1


class Receipt(NamedTuple):
    """The proof of one lease. Outside it travels as an opaque token."""

    topic_id: bytes
    partition: int
    group_id: int
    offset: int
    attempt: int
    nonce: int

    def encode(self) -> str:
        body = _RECEIPT.pack(_RECEIPT_VERSION, *self)
        checked = body + binascii.crc32(body).to_bytes(4, "big")
        return base64.urlsafe_b64encode(checked).decode("ascii")

    @classmethod
    def parse(cls, token: str) -> Receipt:
        try:
            checked = base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
            body, crc = checked[:-4], checked[-4:]
            if binascii.crc32(body).to_bytes(4, "big") != crc:
                raise ValueError("checksum")
            version, *parts = _RECEIPT.unpack(body)
            if version != _RECEIPT_VERSION:
                raise ValueError("version")
        except (ValueError, struct.error, AttributeError) as error:
            raise InvalidReceipt(
                "this is not a receipt; pass the one that came with the message"
            ) from error
        return cls(*parts)


class LeaseRequest(NamedTuple):
    """What a consumer asks for. The fields stand in the order of the wire."""

    group: str
    topics: Sequence[str]
    consumer: str
    count: int  # type: ignore[assignment]
    # None: as long as the message or the group says.
    visibility_ms: int | None = None
    # How long to wait for the first message.
    wait_ms: int = 0
    # Chosen by a client that wants to give back what it never heard of.
    nonce: int | None = None


class Delivery(NamedTuple):
    """A message under lease, as the engine hands it out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    created_at_ms: int
    lane: int
    attempt: int
    max_attempts: int
    delivered_at_ms: int
    deadline_ms: int
    # Of the delivery before this one, when that one failed.
    failed_at_ms: int | None
    error: str | None
    topic_id: bytes
    group_id: int
    nonce: int

    @property
    def receipt(self) -> Receipt:
        # Made directly, at a third of the cost: every settled message needs one.
        return tuple.__new__(
            Receipt,
            (self.topic_id, self.partition, self.group_id, self.offset, self.attempt, self.nonce),
        )


class StreamRecord(NamedTuple):
    """A record as a stream sees it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class PartitionInfo(NamedTuple):
    partition: int
    start_offset: int
    high_watermark: int
    end_offset: int
    size_bytes: int
    segments: int
    # What lies between this and the high watermark waits for a transaction to end.
    last_stable_offset: int


class TopicInfo(NamedTuple):
    name: str
    id: str
    partitions: tuple[PartitionInfo, ...]
    settings: dict[str, Any]


class GroupInfo(NamedTuple):
    name: str
    kind: Literal["queue", "stream"]
    topics: tuple[str, ...]
    settings: dict[str, Any]
    consumers: tuple[str, ...]


class GroupMember(NamedTuple):
    """One consumer of a group, whichever door it came by."""

    id: str
    client_id: str
    host: str
    # Topics and partitions that are its own; none where a group does not share them out.
    assigned: tuple[tuple[str, int], ...] = ()


class LaneStatistics(NamedTuple):
    lane: str
    ready: int
    leased: int
    retrying: int
    delayed: int
    delivered: int
    last_served_ms: int | None
    oldest_ms: int | None
    rate_in: float
    rate_out: float


class QueuePartitionStatistics(NamedTuple):
    """One partition of one topic, as one queue group sees it."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    ready: int
    waiting: int
    leased: int
    retrying: int
    delayed: int
    moving: int
    lanes: tuple[LaneStatistics, ...]
    oldest_ms: int | None
    rate_in: float
    rate_out: float


class LatencyStatistics(NamedTuple):
    """How long messages took: how many there were in the last minutes, and within what
    time half of them, 95 and 99 in a hundred came, estimated from buckets; None where
    there were none."""

    count: int = 0  # type: ignore[assignment]
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None


class QueueStatistics(NamedTuple):
    """One queue group. Totals count since the group was made; rates (in:
    published, out: delivered) are per second over the last ten seconds. `to_lease` and
    `to_ack` are the time from publish, or from when a delayed message was due, until
    the first delivery and until the ack, over the last five to ten minutes."""

    group: str
    topics: tuple[str, ...]
    ready: int
    waiting: int
    leased: int
    retrying: int
    delayed: int
    moving: int
    lanes: tuple[LaneStatistics, ...]
    oldest_ms: int | None
    delivered: int
    acked: int
    nacked: int
    lease_expired: int
    dead_lettered: int
    expired: int
    cancelled: int
    rate_in: float
    rate_out: float
    partitions: tuple[QueuePartitionStatistics, ...]
    to_lease: LatencyStatistics = LatencyStatistics()
    to_ack: LatencyStatistics = LatencyStatistics()

    @property
    def depth(self) -> int:
        """Messages that are not done yet."""
        return self.ready + self.waiting + self.leased + self.retrying + self.delayed + self.moving


class DelayedTotals(NamedTuple):
    """What became of a topic's delayed messages since the node was started. A message
    counts as delivered, or as expired before its time came, once for each queue group."""

    topic: str
    delivered: int
    cancelled: int
    expired: int


class DelayedMessage(NamedTuple):
    topic: str
    partition: int
    offset: int
    deliver_at_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class DeadLetter(NamedTuple):
    """A message that was given up, with where it came from and why."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    source: MessageId
    group: str
    reason: str
    error: str | None
    attempts: int
    created_at_ms: int
    failed_at_ms: int
    redrives: int

    def mentions(self, text: str | None) -> bool:
        """Whether its reason or its error contains the text, in any case; every letter
        mentions nothing."""
        if text is None:
            return True
        wanted = text.casefold()
        return wanted in self.reason.casefold() or wanted in (self.error or "").casefold()


class Looked(NamedTuple, Generic[Item, Mark]):
    """A part of a listing: what was found in as much as was looked at, which may be
    nothing, and where to go on; None when there is no more."""

    items: list[Item]
    next: Mark | None
    # About what was read for it.
    size_bytes: int


class RedriveResult(NamedTuple):
    """What a redrive did, or what a dry run says that it would do."""

    matched: int
    # Sent back: those in place and the copies together.
    redriven: int
    # Left where they are because they came back too often already.
    looping: int
    # Why it stopped before the end, if it did.
    stopped: str | None
    # Left where they are because the group in which they failed is gone.
    orphaned: int = 0
    # Ready again where they were, seen by the queue group alone in which they failed.
    in_place: int = 0
    # Published as copies, since the message was not there any more. Streams see those.
    copied: int = 0
    # Came back to the dead letters meanwhile. A node does not look, and says 0: those who
    # redrive in batches do.
    returned: int = 0

    def plus(self, more: RedriveResult) -> RedriveResult:
        """This and the next part of one redrive."""
        return RedriveResult(
            matched=self.matched + more.matched,
            redriven=self.redriven + more.redriven,
            looping=self.looping + more.looping,
            stopped=more.stopped,
            orphaned=self.orphaned + more.orphaned,
            in_place=self.in_place + more.in_place,
            copied=self.copied + more.copied,
            returned=self.returned + more.returned,
        )


class MessageStatus(NamedTuple):
    state: State
    attempts: int
    due_ms: int | None
    consumer: str | None


# Transactions.


class Publication(NamedTuple):
    """Messages for one topic, as part of a transaction."""

    topic: str
    messages: list[Outgoing]


class CursorMove(NamedTuple):
    """Where a stream group goes on, as part of a transaction: topic, partition and
    offset. With a member, its generation is checked."""

    group: str
    positions: list[tuple[str, int, int]]
    member: str | None = None
    generation: int | None = None


class Acknowledged(NamedTuple):
    """Leased messages that a transaction acks."""

    group: str
    receipts: list[Receipt]


class TransactionPlace(NamedTuple):
    topic: str
    partition: int
    # The first offset that waits for its end; None where nothing does.
    first_offset: int | None


class TransactionInfo(NamedTuple):
    """What one transactional id is doing, in the words of Kafka's tools."""

    name: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_at_ms: int | None
    places: tuple[TransactionPlace, ...]


# What the Spark connector writes beside the positions that it commits, so that they are
# known for a query's progress.
SPARK_PROGRESS = "headrace-spark"
# And beside the marker of a sink's task, before the number of rows it ever wrote.
_SPARK_ROWS = "headrace-spark-rows:"


def note_spark_rows(rows: int) -> str:
    return f"{_SPARK_ROWS}{rows}"


def spark_rows_of(note: str) -> int:
    """The rows that a note speaks of; 0 for one that does not."""
    digits = note.removeprefix(_SPARK_ROWS)
    # Anybody may commit anything to a group: what is no number of rows is none.
    is_number = note.startswith(_SPARK_ROWS) and len(digits) < 19 and digits.isascii()
    return int(digits) if is_number and digits.isdecimal() else 0


# Groups in which Spark's exactly-once sinks keep the number of their next batch. Their
# offsets are no offsets of messages.
SPARK_SINK_PREFIX = "__spark."

# A topic's dead letters are in the topic of its name and this.
DEAD_LETTER_SUFFIX = ".dlq"

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(kind: str, name: object) -> str:
    """A topic's or group's name, or InvalidName. Kafka's own rule for topics; dead letters
    of the longest name have a name too."""
    if not isinstance(name, str):
        raise InvalidName(f"a {kind} name is a string, not {type(name).__name__}")
    stem = name.removesuffix(DEAD_LETTER_SUFFIX) if kind == "topic" else name
    if not _NAME.fullmatch(name) or name in (".", "..") or len(stem) > NAME_CHARACTERS_MAX:
        raise InvalidName(
            f"{name!r} is not a {kind} name; use 1 to {NAME_CHARACTERS_MAX} letters, digits, "
            "dots, underscores or hyphens"
        )
    return name
