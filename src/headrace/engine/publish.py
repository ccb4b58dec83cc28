"""Publishing: records in, batches onto partitions.

Everything is checked before anything is appended. A record with a key goes where
Kafka's clients would put it; one without stays with its neighbours on one
partition until a batch is full, and then moves on.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import InvalidArgument, InvalidName
from headrace.core.settings import TopicSettings
from headrace.core.values import Headers, Outgoing, Published, PublishedRuns
from headrace.engine.catalog import Topic
from headrace.engine.commit import Commit
from headrace.engine.conversion import CODECS, OWN_SPOT_BYTES, Spot, check_time, is_as_it_came
from headrace.engine.partition import Partition
from headrace.engine.partitioner import RoundRobinPartitioner, StickyPartitioner, partition_of_key
from headrace.engine.topics import Topics
from headrace.record import (
    NO_HEADERS,
    NewRecord,
    build_batch,
    build_values_batch,
    encode_headers,
    read_header,
    stamp_append_time,
)
from headrace.record.attribute_headers import DEDUP_ID, DELAY, TTL
from headrace.record.builder import recompress_batch
from headrace.record.checking import check_message, too_large
from headrace.record.reader import read_block

BATCH_BYTES = 1024 * 1024
BATCH_RECORDS = 10_000
# What counts from when the node took a message, whatever time its publisher gave it.
_COUNTS_FROM_APPEND = frozenset((DELAY, TTL, DEDUP_ID))


class Publisher:
    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._partitioners: dict[bytes, StickyPartitioner | RoundRobinPartitioner] = {}

    def publish(
        self, topic: Topic, messages: Sequence[Outgoing], now_ms: int, commit: Commit
    ) -> list[Published]:
        check_open(topic)
        if len(messages) == 1 and not topic.settings.dedup:
            return [self._publish_one(topic, messages[0], now_ms, commit)]
        sizes = [_check(topic, message, now_ms) for message in messages]
        published: list[Published | None] = [None] * len(messages)
        spot = _spot_of(topic)
        chosen: dict[int, list[int]] = {}
        for number, message in enumerate(messages):
            index = self._choose(topic, message, sizes[number])
            chosen.setdefault(index, []).append(number)
        partitions = {index: self._topics.partition(topic, index) for index in chosen}
        for partition in partitions.values():
            partition.check_leading()
        for index, numbers in chosen.items():
            partition = partitions[index]
            if topic.settings.dedup:
                numbers = _drop_duplicates(partition, messages, numbers, published, now_ms)
            for piece in _pieces(numbers, sizes):
                records = [
                    NewRecord(
                        messages[number].key,
                        messages[number].value,
                        messages[number].headers,
                        now_ms
                        if messages[number].timestamp_ms is None
                        else _time_of(messages[number], now_ms),
                    )
                    for number in piece
                ]
                offset = self._append(partition, build_batch(records), now_ms, commit, spot)
                for step, number in enumerate(piece):
                    published[number] = Published(index, offset + step)
            _settle_duplicates(partition, messages, published, index, now_ms)
        return [place for place in published if place is not None]

    def _publish_one(
        self, topic: Topic, message: Outgoing, now_ms: int, commit: Commit
    ) -> Published:
        """The same for a single message, without the sorting out."""
        index = self._choose(topic, message, _check(topic, message, now_ms))
        record = NewRecord(message.key, message.value, message.headers, _time_of(message, now_ms))
        partition = self._topics.partition(topic, index)
        batch, spot = build_batch((record,)), _spot_of(topic)
        return Published(index, self._append(partition, batch, now_ms, commit, spot))

    def place(self, topic: Topic, messages: Sequence[Outgoing], now_ms: int) -> list[Outgoing]:
        """The same messages, each with its partition: where they will go, before
        anything is written."""
        check_open(topic)
        if topic.settings.dedup:
            raise InvalidArgument(
                f"{topic.name!r} drops duplicates as they come, and an abort could not take that "
                "back; publish to it outside of transactions"
            )
        return [
            message._replace(partition=self._choose(topic, message, _check(topic, message, now_ms)))
            for message in messages
        ]

    def publish_in_transaction(
        self,
        topic: Topic,
        placed: Sequence[Outgoing],
        producer: tuple[int, int],
        now_ms: int,
        commit: Commit,
    ) -> list[Published]:
        """Messages that were placed, as the one write of a transaction to this
        topic: by a producer, its id and an epoch that nothing was written in."""
        chosen: dict[int, list[int]] = {}
        for number, message in enumerate(placed):
            assert message.partition is not None
            chosen.setdefault(message.partition, []).append(number)
        # Their times were checked when they were placed, and are not again: they may be too
        # old by now, and the transaction has begun.
        sizes = [_size(topic, message) for message in placed]
        published: list[Published] = [Published(-1, -1)] * len(placed)
        spot = _spot_of(topic)
        for index, numbers in chosen.items():
            partition = self._topics.partition(topic, index)
            sequence = 0
            for piece in _pieces(numbers, sizes):
                records = [
                    NewRecord(
                        placed[number].key,
                        placed[number].value,
                        placed[number].headers,
                        now_ms
                        if placed[number].timestamp_ms is None
                        else _time_of(placed[number], now_ms),
                    )
                    for number in piece
                ]
                batch = build_batch(
                    records,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=sequence,
                    transactional=True,
                )
                sequence += len(piece)
                offset = self._append(partition, batch, now_ms, commit, spot)
                for step, number in enumerate(piece):
                    published[number] = Published(index, offset + step)
        return published

    def publish_values(
        self,
        topic: Topic,
        values: Sequence[bytes],
        headers: Headers,
        partition: int | None,
        now_ms: int,
        commit: Commit,
    ) -> PublishedRuns:
        """The fast way, for values and nothing else."""
        check_open(topic)
        if headers:
            _check(topic, Outgoing(b"", headers=headers), now_ms)
        block = encode_headers(headers) if headers else NO_HEADERS
        most = topic.settings.record_bytes_max - len(block)
        lengths = list(map(len, values))
        if lengths and max(lengths) > most:
            raise too_large(topic.name, max(lengths) + len(block), topic.settings.record_bytes_max)
        runs: list[tuple[int, int, int]] = []
        spot = _spot_of(topic)
        for start in range(0, len(values), BATCH_RECORDS):
            numbers = list(range(start, min(start + BATCH_RECORDS, len(values))))
            for piece in _pieces(numbers, lengths):
                size = sum(lengths[piece[0] : piece[-1] + 1])
                index = partition
                if index is None:
                    index = self._place(topic, size, len(piece))
                target = self._topics.partition(topic, index)
                batch = build_values_batch(values[piece[0] : piece[-1] + 1], now_ms, headers=block)
                offset = self._append(target, batch, now_ms, commit, spot)
                runs.append((index, offset, len(piece)))
        return PublishedRuns(runs)

    def _append(
        self,
        partition: Partition,
        batch: bytearray,
        now_ms: int,
        commit: Commit,
        spot: Spot | None,
    ) -> int:
        if spot is not None:
            batch = _converted(batch, partition.topic.settings, now_ms, spot)
        appended = partition.append(batch, read_header(batch), now_ms)
        commit.data.append((partition, appended.next_offset))
        count = appended.next_offset - appended.first_offset
        commit.published.append((partition, count, len(batch)))
        return appended.first_offset

    def _choose(self, topic: Topic, message: Outgoing, size: int) -> int:
        if message.partition is not None:
            return self._topics.partition(topic, message.partition).index
        if message.key is not None:
            return partition_of_key(message.key, topic.partitions)
        if topic.settings.dedup:
            dedup_id = _dedup_id(message)
            if dedup_id is not None:
                # The same id must meet its first one.
                return partition_of_key(dedup_id, topic.partitions)
        return self._place(topic, size, 1)

    def _place(self, topic: Topic, size: int, count: int) -> int:
        kind: type[StickyPartitioner] | type[RoundRobinPartitioner] = StickyPartitioner
        if topic.settings.partitioner == "round-robin":
            kind = RoundRobinPartitioner
        partitioner = self._partitioners.get(topic.id)
        if partitioner is None or type(partitioner) is not kind:
            partitioner = self._partitioners[topic.id] = kind()
        return partitioner.next(topic.partitions, size, count)

    def forget(self, topic: Topic) -> None:
        self._partitioners.pop(topic.id, None)


def _spot_of(topic: Topic) -> Spot | None:
    """What a call may compress; None where batches are appended as they are made."""
    return None if is_as_it_came(topic.settings) else Spot(OWN_SPOT_BYTES)


def _converted(batch: bytearray, settings: TopicSettings, now_ms: int, spot: Spot) -> bytearray:
    """Compressed, and with the time of appending, where the topic wants that."""
    codec = CODECS.get(settings.compression)
    header = read_header(batch)
    if codec and spot.takes(batch, header, settings.compression):
        batch = recompress_batch(read_block(batch, header), header, codec)
    if settings.timestamp_type == "LogAppendTime":
        stamp_append_time(batch, now_ms)
    return batch


def check_open(topic: Topic, *, letters: bool = False) -> None:
    """InvalidName for what only Headrace itself writes to; `letters`: not for dead letters."""
    if topic.is_internal:
        raise InvalidName("internal topics are not written to from outside")
    if topic.source_id is not None and not letters:
        raise InvalidName(f"{topic.name!r} is written by Headrace alone; publish to its source")


def _check(topic: Topic, message: Outgoing, now_ms: int) -> int:
    if message.timestamp_ms is not None:
        check_time(topic.settings, _time_of(message, now_ms), now_ms)
    return _size(topic, message)


def _size(topic: Topic, message: Outgoing) -> int:
    settings = topic.settings
    return check_message(message, topic.name, settings.record_bytes_max, dedup=settings.dedup)


def _pieces(numbers: list[int], sizes: Sequence[int]) -> list[list[int]]:
    """Cut so that no batch grows beyond its size."""
    if not numbers:
        return []
    if len(numbers) <= BATCH_RECORDS and sum(map(sizes.__getitem__, numbers)) <= BATCH_BYTES:
        return [numbers]
    pieces: list[list[int]] = [[]]
    total = 0
    for number in numbers:
        if pieces[-1] and (total + sizes[number] > BATCH_BYTES or len(pieces[-1]) >= BATCH_RECORDS):
            pieces.append([])
            total = 0
        pieces[-1].append(number)
        total += sizes[number]
    return pieces


def _time_of(message: Outgoing, now_ms: int) -> int:
    given = message.timestamp_ms
    if given is None or any(name in _COUNTS_FROM_APPEND for name, _ in message.headers):
        return now_ms
    return given


def _dedup_id(message: Outgoing) -> bytes | None:
    """The last one counts, as in a batch."""
    found = None
    for name, value in message.headers:
        if name == DEDUP_ID:
            found = value
    return found


def _drop_duplicates(
    partition: Partition,
    messages: Sequence[Outgoing],
    numbers: list[int],
    published: list[Published | None],
    now_ms: int,
) -> list[int]:
    """Answer those that were published before; the rest is to be appended."""
    fresh: list[int] = []
    seen: set[bytes] = set()
    for number in numbers:
        dedup_id = _dedup_id(messages[number])
        if dedup_id is not None:
            first = partition.find_duplicate(dedup_id, now_ms)
            if first is not None:
                published[number] = Published(partition.index, first, True)
                continue
            if dedup_id in seen:
                continue
            seen.add(dedup_id)
        fresh.append(number)
    return fresh


def _settle_duplicates(
    partition: Partition,
    messages: Sequence[Outgoing],
    published: list[Published | None],
    index: int,
    now_ms: int,
) -> None:
    """Duplicates within one call: they get the place of the first."""
    if partition.dedup is None:
        return
    for number, place in enumerate(published):
        dedup_id = _dedup_id(messages[number]) if place is None else None
        if dedup_id is not None:
            first = partition.find_duplicate(dedup_id, now_ms)
            if first is not None:
                published[number] = Published(index, first, True)
