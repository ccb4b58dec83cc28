"""Records that could not be decoded, as dead letters of their topic.

They go to `<topic>.dlq`, where everything that Headrace gives up goes, with the same
headers, so that every tool for dead letters shows them, with the reason. The topic is
made if it is not there.

Spark reads a DataFrame again for every action, and repeats tasks. So a letter is written
once for each record and group: before a task sends letters, it looks for those that are
there. They have the timestamps of their records, so it looks from the oldest of its own
bad records on, in the one partition to which they go. Two tasks that read the same
records at the same moment may both write a letter.

Rejected: remembering up to which offset letters were written. A query with another
schema finds other records bad.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from headrace.client.kafka.cluster import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    KafkaCluster,
    KafkaError,
)
from headrace.client.kafka.connection import CREATE_TOPICS
from headrace.client.kafka.fetching import Gap, PartitionFetch
from headrace.client.kafka.producing import KafkaProducer, Records
from headrace.core.errors import InvalidOption
from headrace.core.values import DEAD_LETTER_SUFFIX
from headrace.engine.dead_letter import Story, bury
from headrace.record import HEADER_BYTES, Record, build_batch, read_records, split_batches
from headrace.record.attribute_headers import DLQ_GROUP, ORIGIN
from headrace.spark.splits import OffsetRange
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated.create_topics_request import (
    CreatableTopic,
    CreateTopicsRequest,
)

REASON: Final = "not decodable"
DEFAULT_GROUP: Final = "spark"
# Of one batch; what a Kafka broker takes by default leaves some room for their headers.
_LETTERS_PER_BATCH: Final = 1_000
_BYTES_PER_BATCH: Final = 500_000
# So much may wait to be sent.
_BYTES_WAITING: Final = 16 * 1024 * 1024


def ensure_letters(cluster: KafkaCluster, topics: dict[str, int]) -> None:
    """Make the dead letters' topics that are missing, with as many partitions as their
    topics have. Asked on the driver, before a row is read."""
    names = {f"{topic}{DEAD_LETTER_SUFFIX}": count for topic, count in topics.items()}
    missing = names.keys() - cluster.topics(names).keys()
    if not missing:
        return
    request = CreateTopicsRequest(
        tuple(CreatableTopic(name, names[name], -1) for name in sorted(missing)),
        cluster.timeout_ms,
    )
    answer = cluster.any_broker().call(CREATE_TOPICS, request)
    for topic in answer.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise InvalidOption(
                f"option 'badRecords': {topic.name!r} cannot be made: "
                f"{topic.error_message or KafkaError(topic.error_code, 'refused')}; make it, or "
                "use 'column'"
            )


class LetterSender:
    """For one range. Letters wait for `flush`, or until they are many."""

    def __init__(self, cluster: KafkaCluster, range: OffsetRange, group: str | None) -> None:
        self._cluster = cluster
        self._range = range
        self._group = group or DEFAULT_GROUP
        # What a letter's origin begins with; the record's offset is behind it.
        self._origin = f"{range.id}/{range.partition}/spark/0/".encode()
        self._letters: list[tuple[Record, str]] = []
        self._bytes = 0
        # The offsets of records whose letters are there: of those that were written since
        # a time, up to an offset among the letters.
        self._there: set[int] = set()
        self._looked_since_ms: int | None = None
        self._looked_up_to = 0

    def add(self, record: Record, why: str) -> None:
        self._letters.append((record, why))
        self._bytes += _size(record)
        if self._bytes >= _BYTES_WAITING:
            self.flush()

    def flush(self) -> None:
        letters, self._letters, self._bytes = self._letters, [], 0
        if not letters:
            return
        name = f"{self._range.topic}{DEAD_LETTER_SUFFIX}"
        found = self._cluster.topics((name,)).get(name)
        partition = self._range.partition
        if found is not None:
            partition %= len(found.partitions)
            self._look(name, partition, min(each.timestamp_ms for each, _ in letters))
            letters = [letter for letter in letters if letter[0].offset not in self._there]
            if not letters:
                return
        producer = KafkaProducer(self._cluster)
        try:
            producer.begin()
            for some in letter_batches(letters):
                producer.send(name, partition, self._records(some))
            producer.flush()
        finally:
            producer.close()

    def _look(self, name: str, partition: int, since_ms: int) -> None:
        """Find the letters that are there, of those from a time on. What was looked at
        before is not looked at again."""
        place = (name, partition)
        end = self._cluster.offsets({place: LATEST})[place].offset
        start = self._looked_up_to
        if self._looked_since_ms is None or since_ms < self._looked_since_ms:
            found = self._cluster.offsets({place: since_ms if since_ms >= 0 else EARLIEST})[place]
            # Below zero: no letter is that late.
            start = found.offset if found.offset >= 0 else end
            self._looked_since_ms = since_ms
        fetch = PartitionFetch(
            self._cluster,
            name,
            partition,
            start,
            end,
            isolation_level=READ_UNCOMMITTED,
            gaps_allowed=True,
        )
        self._there.update(
            offset
            for fetched in fetch
            if not isinstance(fetched, Gap)
            for record in _records_of(fetched.records)
            if (offset := self._letter_of(record)) is not None
        )
        self._looked_up_to = max(end, self._looked_up_to)

    def _letter_of(self, letter: Record) -> int | None:
        """The offset of the record whose letter it is, if it is of our range and group."""
        headers = dict(letter.headers)
        origin = headers.get(ORIGIN) or b""
        if headers.get(DLQ_GROUP) != self._group.encode() or not origin.startswith(self._origin):
            return None
        offset = origin[len(self._origin) :]
        return int(offset) if offset.isdigit() else None

    def _records(self, letters: list[tuple[Record, str]]) -> Records:
        now_ms = int(time.time() * 1000)
        made = [
            bury(
                record,
                Story(
                    self._range.topic, self._range.partition, self._group, REASON, why, 1, now_ms
                ),
                self._origin + b"%d" % record.offset,
            )
            for record, why in letters
        ]
        times = [record.timestamp_ms for record in made]
        data = build_batch(made)[HEADER_BYTES:]
        return Records(data, len(made), times[0], max(times))


def _records_of(batches: memoryview) -> Iterator[Record]:
    for at, header in split_batches(batches):
        if not header.is_control:
            yield from read_records(batches[at : at + header.size_bytes], header)


def _size(record: Record) -> int:
    """About what it takes: keys and values, and a word for each header."""
    return len(record.key or b"") + len(record.value or b"") + 64 * (1 + len(record.headers))


def letter_batches(letters: list[tuple[Record, str]]) -> Iterator[list[tuple[Record, str]]]:
    """So many that a broker takes them together; one alone whatever its size."""
    some: list[tuple[Record, str]] = []
    size = 0
    for letter in letters:
        more = _size(letter[0])
        if some and (len(some) == _LETTERS_PER_BATCH or size + more > _BYTES_PER_BATCH):
            yield some
            some, size = [], 0
        some.append(letter)
        size += more
    if some:
        yield some
