"""Reading on and on: where a micro-batch ends, what it reads, and what was lost.

    initialOffset ─> latestOffset(start, limit) ─> partitions(start, end) ─> read
                          ^                                                     │
                          └──────────────── end is the next start ◄─────────────┘

Spark's checkpoint owns the truth; a progress group only shows it. A batch that was
planned and not finished is planned again after a restart, from the checkpoint alone, so
what was lost is looked for in `partitions` too.

    a partition was added           it is read from its beginning
    retention deleted what was due  DataLost, or what is left (failOnDataLoss=false)
    the topic was made again        DataLost, or the new one from its beginning
    a topic or partition is gone    DataLost, or it is left out
    the position is beyond the end  DataLost, or on from the end

Rejected: trusting offsets alone to notice a topic that was made again. The new one may
have more records than the old one had.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client.kafka.cluster import EARLIEST, LATEST, KafkaCluster, TopicInfo
from headrace.client.kafka.offsets import commit_offsets
from headrace.core.errors import DataLost, HeadraceError
from headrace.core.values import SPARK_PROGRESS
from headrace.spark.limits import limit_rows
from headrace.spark.offsets import Position, TopicPosition, decode_position, encode_position
from headrace.spark.options import ReadOptions
from headrace.spark.plain_errors import told_plainly
from headrace.spark.planning import Planner, connect_servers, directory_of, stream_starts
from headrace.spark.rows import read_range
from headrace.spark.schema import arrow_schema
from headrace.spark.splits import OffsetRange, Split, cut

logger = logging.getLogger(__name__)

_REMEDY = (
    "start the query with a new checkpoint, or set option 'failOnDataLoss' to false to go on "
    "with what there is"
)


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(options.shape, schema)
        self._connected: KafkaCluster | None = None
        # Where a query that reads what there is now ends.
        self._target: Position | None = None
        self._triggered_at = time.monotonic()
        # What the progress group was told last.
        self._shown: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors get a copy; sockets stay here.
        return self.__dict__ | {"_connected": None}

    def _planner(self) -> Planner:
        if self._options.path is not None:
            # Looked at anew each time: it may have been written to since.
            with directory_of(self._options) as directory:
                return Planner(self._options, directory)
        if self._connected is None:
            self._connected = connect_servers(self._options)
        return Planner(self._options, self._connected)

    # Where it begins and ends.

    @told_plainly
    def initialOffset(self) -> dict[str, Any]:
        planner = self._planner()
        topics = planner.existing_topics()
        return encode_position(planner.position(topics, stream_starts(planner, self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @told_plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._latest(self._planner().topics())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return encode_position(self._target or self._latest(self._planner().topics()))

    @told_plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planner = self._planner()
        # Spark asks where the next batch ends when the last one is done, and only then. It
        # calls `commit` when it has found rows for the next one, which may be never.
        self._show(start)
        if self._target is not None:
            latest = self._target
        else:
            latest = self._latest(planner.topics())
        begin = self._begin(decode_position(start), latest)
        end = {
            name: TopicPosition(
                topic.id,
                {
                    index: max(offset, begin[name].partitions[index])
                    for index, offset in topic.partitions.items()
                },
            )
            for name, topic in latest.items()
        }
        if self._is_too_little(begin, end, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limit_rows(begin, end, limit.max_rows)
        self._triggered_at = time.monotonic()
        return encode_position(end)

    def _latest(self, topics: Mapping[str, TopicInfo]) -> Position:
        planner = self._planner()
        return planner.position(topics, planner.offsets(topics.values(), LATEST))

    def _is_too_little(self, begin: Position, end: Position, limit: ReadLimit) -> bool:
        """Whether it is worth waiting for more. Never for a query that ends."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_ms = (time.monotonic() - self._triggered_at) * 1000
        if waited_ms >= self._options.max_trigger_delay_ms:
            return False
        return rows_between(begin, end) < least

    # What was lost, and what is new.

    def _begin(self, start: Position, now: Position) -> Position:
        """Where each partition that exists is read from next."""
        for name, topic in start.items():
            if name not in now:
                self._lose(self._gone(name))
                continue
            if _is_other(topic.id, now[name].id):
                self._lose(f"topic {name!r} was deleted and made again")
                continue
            for index in topic.partitions:
                if index not in now[name].partitions:
                    self._lose(f"{name}:{index} does not exist any more")
        fresh = {
            name: [
                index
                for index in topic.partitions
                if name not in start
                or _is_other(start[name].id, topic.id)
                or index not in start[name].partitions
            ]
            for name, topic in now.items()
        }
        earliest = self._earliest(fresh)
        return {
            name: TopicPosition(
                topic.id,
                {
                    index: earliest[name, index]
                    if index in fresh[name]
                    else self._within(name, index, start[name].partitions[index], latest)
                    for index, latest in topic.partitions.items()
                },
            )
            for name, topic in now.items()
        }

    def _gone(self, name: str) -> str:
        wanted = self._options.topics.named()
        if wanted is not None and name not in wanted:
            return f"topic {name!r} is in the checkpoint and is not asked for any more"
        return f"topic {name!r} does not exist any more"

    def _within(self, name: str, index: int, offset: int, latest: int) -> int:
        if offset > latest and self._target is not None:
            # A query that began at the end may have begun behind its target, which is
            # older: the topic has the last word.
            place = TopicInfo(name, "", (index,), False)
            latest = self._planner().offsets([place], LATEST)[name, index]
        if offset <= latest:
            return offset
        self._lose(f"{name}:{index} ends at offset {latest}, before {offset}, where it was read to")
        return latest

    def _earliest(self, places: Mapping[str, list[int]]) -> dict[tuple[str, int], int]:
        planner = self._planner()
        topics = [
            TopicInfo(name, "", tuple(indexes), False)
            for name, indexes in places.items()
            if indexes
        ]
        return planner.offsets(topics, EARLIEST)

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{what}; {_REMEDY}")
        logger.warning("headrace: %s; the query goes on with what there is", what)

    # What is read.

    @told_plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = self._options
        ranges = self._ranges(decode_position(start), decode_position(end))
        if ranges and options.decoding is not None and options.decoding.to_dead_letters:
            from headrace.spark.letters import ensure_letters

            assert self._connected is not None
            topics = self._planner().topics()
            ensure_letters(
                self._connected, {name: len(each.partitions) for name, each in topics.items()}
            )
        return [
            Split(each)
            for each in cut(ranges, options.min_partitions, options.max_records_per_partition)
        ]

    def _ranges(self, start: Position, end: Position) -> list[OffsetRange]:
        planner = self._planner()
        topics = planner.topics()
        there: dict[str, list[int]] = {}
        for name, topic in end.items():
            if name not in topics:
                self._lose(f"topic {name!r} does not exist any more")
            elif _is_other(topic.id, topics[name].id):
                self._lose(f"topic {name!r} was deleted and made again")
            else:
                there[name] = [n for n in topic.partitions if n in topics[name].partitions]
                if len(there[name]) < len(topic.partitions):
                    self._lose(f"topic {name!r} has fewer partitions than before")
        earliest = self._earliest(there)
        ranges = []
        for (name, index), first in earliest.items():
            before = start.get(name)
            known = before is not None and not _is_other(before.id, end[name].id)
            begin = before.partitions.get(index, 0) if known and before is not None else 0
            stop = end[name].partitions[index]
            if begin < first and begin < stop:
                self._lose(
                    f"{name}:{index} begins at offset {first}: what was there from {begin} on "
                    "was deleted before it was read"
                )
            ranges.append(OffsetRange(name, end[name].id, index, max(begin, first), stop))
        return sorted(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Split):
            yield from read_range(self._options, self._schema, partition.range)

    # What is told to others.

    def commit(self, end: dict[str, Any]) -> None:
        self._show(end)

    def _show(self, done: dict[str, Any]) -> None:
        """Commit to the progress group how far the query is."""
        group = self._options.progress_group
        if group is None or self._connected is None or done == self._shown:
            return
        offsets = {
            (name, index): offset
            for name, topic in decode_position(done).items()
            for index, offset in topic.partitions.items()
        }
        try:
            commit_offsets(self._connected, group, offsets, SPARK_PROGRESS)
        except HeadraceError as error:
            # It is only shown there; the checkpoint has it.
            logger.warning("headrace: progress was not committed to %r: %s", group, error)
        else:
            self._shown = done

    def stop(self) -> None:
        if self._connected is not None:
            self._connected.close()


def rows_between(begin: Position, end: Position) -> int:
    return sum(
        max(0, offset - begin[name].partitions[index])
        for name, topic in end.items()
        for index, offset in topic.partitions.items()
    )


def _is_other(before: str, now: str) -> bool:
    """Whether these are ids of two topics. Brokers without ids cannot tell."""
    return bool(before and now) and before != now
