"""Sealed batches: whether one that a client made may be appended, and the append itself. There
is one way for all of them, whichever door they come by.

    header_of    open to clients, led here, whole, a header that a producer may send
    judge        its size, what is in it, its times; converted as its topic wants it
    append       room, the producer's numbers, duplicates, the log

What holds much is for a thread: `judge` returns it (`Heavy`), nothing of its call is
appended, and the call is made again with what the thread has found (`look_at`). Until the
append nothing has changed but the batch's own bytes.

    Kafka's Produce              server/kafka/produce.py        a batch for each partition
    runs of Produce              server/kafka/produce_runs.py   many batches as one: `append_run`
    the SDK's, and over gRPC     calls/batches.py               several in one call

They differ in `Terms`, and in nothing else. What refuses a batch is an error of ours, also
where it was the disk (`core/system_errors.py`).

Rejected: to judge and append in one go. The batches of one request are judged before any of
them is appended, or those behind a heavy one would overtake it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, RecordTooLarge
from headrace.core.settings import TopicSettings
from headrace.core.system_errors import disk_error
from headrace.engine.catalog import Topic
from headrace.engine.contents import Checks, Found, Heavy, Light, known_of, look_into
from headrace.engine.conversion import (
    Spot,
    Unconverted,
    check_times,
    convert,
    is_as_it_came,
    is_to_open,
)
from headrace.engine.foreign import Taken, append_foreign
from headrace.engine.partition import Appended, Partition
from headrace.engine.publish import check_open
from headrace.engine.topics import Topics
from headrace.record import BatchHeader, check_batch, read_header
from headrace.record.batch import HEADER_BYTES
from headrace.record.checking import HEADER_OVERHEAD, RECORD_OVERHEAD
from headrace.record.record_limits import UnsoundRecords

if TYPE_CHECKING:
    from headrace.engine.broker import Broker

Key = TypeVar("Key")


class Terms(NamedTuple):
    """What is not the same for all who send batches."""

    # What a batch may have beyond the `record_bytes_max` of its topic.
    slack_bytes: int
    # Whether records of compacted topics need keys.
    needs_keys: bool
    # Whether dead letters may be written.
    to_letters: bool
    # Whether it may be part of a transaction; the caller asks the coordinator.
    in_transactions: bool


# As a broker of Kafka: the size is that of the batch, to the byte.
KAFKA: Final = Terms(0, needs_keys=True, to_letters=True, in_transactions=True)
# A record that may be published alone may be so in a batch of its own. Who decides a
# transaction has to be told of its batches first, which Kafka's protocol does.
OURS: Final = Terms(
    HEADER_BYTES + RECORD_OVERHEAD + HEADER_OVERHEAD * limits.HEADERS_MAX,
    needs_keys=False,
    to_letters=False,
    in_transactions=False,
)


class ImpossibleBatch(InvalidArgument):
    """A batch, and none that a producer may send."""


class ImpossibleTime(ImpossibleBatch):
    """The header says a time that is not a producer's to say."""


class Looked(NamedTuple):
    """What a thread has found in a batch."""

    contents: Found
    # As its topic wants it, where the thread has converted it.
    batch: bytearray | memoryview | None = None


# Or why it is refused.
Outcome = Looked | HeadraceError


class Judged(NamedTuple):
    """A batch that may be appended, in the turn in which it was judged."""

    partition: Partition
    batch: bytearray | memoryview
    header: BatchHeader
    contents: Found


def checks_of(topics: Topics, topic: Topic, terms: Terms) -> Checks:
    """What the records of batches to this topic are held to."""
    return Checks(topics.check_records, terms.needs_keys and topic.settings.is_compacted)


class Judge:
    """Of the batches of one call, and of what it looks into on the spot."""

    def __init__(self, topics: Topics, terms: Terms, now_ms: int) -> None:
        self._topics = topics
        self._terms = terms
        self._now_ms = now_ms
        self._light = Light()
        self._spot = Spot()

    def header_of(self, partition: Partition, batch: bytearray | memoryview | None) -> BatchHeader:
        """That of a whole batch, which clients may send and this node may append here."""
        terms = self._terms
        check_open(partition.topic, letters=terms.to_letters)
        partition.check_leading()
        if not batch:
            raise UnsoundRecords("there are no records; send one batch of Kafka's format")
        header = check_batch(batch)
        if header.size_bytes != len(batch):
            raise ImpossibleBatch("there is something behind the batch; send one batch at a time")
        if header.is_control:
            raise ImpossibleBatch("producers do not send control batches")
        if not header.count or not header.is_dense:
            raise ImpossibleBatch(
                f"the batch has {header.count} records for {header.last_offset_delta + 1} offsets"
            )
        if header.is_transactional:
            if not terms.in_transactions:
                raise ImpossibleBatch("batches of transactions are published over Kafka's protocol")
            if header.producer_id < 0:
                raise ImpossibleBatch("a transaction has a producer with an id")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise ImpossibleBatch("a producer with an id numbers its records")
        if header.has_log_append_time or header.has_delete_horizon:
            raise ImpossibleTime("the time of appending is not a producer's to set")
        return header

    def judge(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        header: BatchHeader,
        looked: Outcome | None = None,
    ) -> Judged | Heavy:
        """The batch, whose header is `header_of`, as it may be appended. `looked` is what a
        thread has found; the batch is `batch_of` it then."""
        settings = partition.topic.settings
        self._check_size(settings, header)
        if isinstance(looked, HeadraceError):
            raise looked
        light = self._light
        contents: Found = ()
        checks = checks_of(self._topics, partition.topic, self._terms)
        if looked is not None:
            contents = known_of(looked.contents, partition.scanner, partition.dedup, checks)
        if not contents:
            found = look_into(batch, partition.scanner, partition.dedup, light, checks)
            if isinstance(found, Heavy):
                return found
            contents = found
            if light.corrected:
                # Its latest time is that of its records by now.
                header = read_header(batch)
        check_times(settings, header, self._now_ms)
        is_converted = looked is not None and looked.batch is not None
        if not (is_converted or is_as_it_came(settings)) and is_to_open(settings, header):
            if not self._spot.takes(batch, header, settings.compression):
                return Unconverted(batch, header, settings, self._now_ms, contents)
            batch = convert(batch, header, settings, self._now_ms)
            header = read_header(batch)
            self._check_size(settings, header)
        return Judged(partition, batch, header, contents)

    def _check_size(self, settings: TopicSettings, header: BatchHeader) -> None:
        if header.size_bytes > settings.record_bytes_max + self._terms.slack_bytes:
            raise RecordTooLarge(
                f"the batch has {header.size_bytes} bytes and this topic takes "
                f"{settings.record_bytes_max}; send smaller batches"
            )


# What was heavy.


def look_at(heavy: Heavy) -> Outcome:
    """What is in it. May be called anywhere, while nobody else uses the bytes."""
    try:
        return Looked(heavy.look(), heavy.converted)
    except HeadraceError as error:
        return error.without_frames()


def learn(known: dict[Key, Outcome], heavy: Mapping[Key, Heavy], looked: Sequence[Outcome]) -> None:
    """Note what was found in these. One that was converted before stays so."""
    for key, outcome in zip(heavy, looked, strict=True):
        before = known.get(key)
        if isinstance(before, Looked) and isinstance(outcome, Looked) and outcome.batch is None:
            outcome = outcome._replace(batch=before.batch)
        known[key] = outcome


def batch_of(
    batch: bytearray | memoryview | None, looked: Outcome | None
) -> bytearray | memoryview | None:
    """The batch, as a thread has converted it if one did."""
    return looked.batch if isinstance(looked, Looked) and looked.batch is not None else batch


# Appending.


def append(broker: Broker, judged: Judged, now_ms: int) -> Taken:
    """An error of ours when nothing was appended; DiskFull where there is no room."""
    partition, batch, header, contents = judged
    try:
        broker.check_space(header.size_bytes)
        return append_foreign(partition, batch, header, contents, now_ms)
    except OSError as error:
        raise disk_error(error) from error


def append_run(
    broker: Broker,
    partition: Partition,
    batches: bytearray | memoryview,
    contents: Found,
    now_ms: int,
) -> Appended:
    """`append` for one batch, or several back to back, that a `Judge` would have left as they
    are: their topic does, and nothing in them counts from the time of appending. A duplicate
    is not looked into: nothing is written, and `duplicate` is set."""
    try:
        broker.check_space(len(batches))
        return partition.append(batches, read_header(batches), now_ms, contents)
    except OSError as error:
        raise disk_error(error) from error
