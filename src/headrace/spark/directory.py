"""A directory as a source: read straight from its segments, in parallel.

It answers what a cluster answers, so planning and decoding are the same. Every task
opens the one partition that it reads, for reading only. Nobody may have the directory
open meanwhile: what a writer appends or deletes under a reader's eyes does not fit
together. Who has it open is told to be asked instead, by `servers`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Self

from headrace.client.kafka.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    FoundOffset,
    Place,
    TopicInfo,
)
from headrace.client.kafka.fetching import Fetched
from headrace.core.errors import DataLost, InUse, InvalidArgument, InvalidOption
from headrace.engine.catalog import Catalog, Topic
from headrace.engine.partition import Partition
from headrace.inspect import read_catalog
from headrace.platform.directory import LOCK, check_format
from headrace.platform.disk import RealDisk
from headrace.record import split_batches
from headrace.spark.splits import OffsetRange
from headrace.wire.kafka.generated.fetch_response import AbortedTransaction

_READ_BYTES: Final = 2 * 1024 * 1024


class Directory:
    """Opened for a moment of planning, or for one range."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._disk = RealDisk(path)
        self._found: Catalog | None = None

    def __enter__(self) -> Self:
        self._check_free()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _check_free(self) -> None:
        try:
            check_format(self._disk)
        except InvalidArgument as error:
            raise InvalidOption(f"option 'path': {self._path}: {error}") from None
        try:
            # Tasks of one query ask at the same moment, so nothing is taken.
            self._disk.check_unlocked(LOCK)
        except InUse as error:
            raise InvalidOption(
                f"option 'path': {error}; let the process that has it open serve it, and set "
                "'servers' instead"
            ) from None

    def _catalog(self) -> Catalog:
        if self._found is None:
            self._found = read_catalog(self._path, _now_ms())
        return self._found

    def _topic(self, name: str) -> Topic | None:
        for topic in self._catalog().topics.values():
            if topic.name == name:
                return topic
        return None

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        wanted = None if names is None else set(names)
        return {
            topic.name: TopicInfo(
                topic.name, topic.id.hex(), tuple(range(topic.partitions)), topic.is_internal
            )
            for topic in self._catalog().topics.values()
            if wanted is None or topic.name in wanted
        }

    def offsets(
        self, wanted: Mapping[Place, int], isolation_level: int = READ_COMMITTED
    ) -> dict[Place, FoundOffset]:
        return {place: self._offset(place, at, isolation_level) for place, at in wanted.items()}

    def _offset(self, place: Place, at: int, isolation_level: int) -> FoundOffset:
        partition = self._open(*place)
        try:
            end = _end_of(partition, isolation_level)
            if at == EARLIEST:
                return FoundOffset(partition.log.start_offset, -1)
            if at == LATEST:
                return FoundOffset(end, -1)
            found = partition.log.offset_for_timestamp(at)
            if found is None or found[0] >= end:
                return FoundOffset(-1, -1)
            return FoundOffset(*found)
        finally:
            partition.close_files()

    def _open(self, name: str, index: int) -> Partition:
        topic = self._topic(name)
        if topic is None:
            raise DataLost(f"topic {name!r} is not in {self._path} any more")
        return Partition(self._disk, topic, index, _now_ms(), read_only=True)

    def fetch(self, range: OffsetRange, isolation_level: int) -> Iterator[Fetched]:
        """The batches that hold the range."""
        partition = self._open(range.topic, range.partition)
        try:
            if partition.topic.id.hex() != range.id:
                raise DataLost(f"topic {range.topic!r} was deleted and made again")
            position = range.start
            while position < range.end:
                records = memoryview(partition.log.read(position, _READ_BYTES, range.end))
                if not records:
                    return
                next_offset = _next_offset(records)
                aborted: list[AbortedTransaction] = []
                if isolation_level == READ_COMMITTED:
                    aborted = [
                        AbortedTransaction(each.producer_id, each.first_offset)
                        for each in partition.aborted_between(position, next_offset)
                    ]
                yield Fetched(records, aborted, next_offset)
                position = next_offset
        finally:
            partition.close_files()


def _next_offset(records: memoryview) -> int:
    return max(header.next_offset for _, header in split_batches(records))


def _end_of(partition: Partition, isolation_level: int) -> int:
    if isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _now_ms() -> int:
    return int(time.time() * 1000)
