"""Gathering: one look at everything that is not counted as it happens.

    time       whatever came due in the queues happens, as for anybody who asks
    queues     views of partitions   --.
    streams    the table of cursors  ---+-- summed up by topic, and by group and topic
    topics     logs and segments     --'
    the rest   transactions, connections, the disk, the process

Ten thousand partitions take longer than others should wait, so it is done in slices,
and what is summed up is not one moment's: partitions are looked at one after the
other.

Ages are read from the log. What is not in memory a thread brings there, and where the
next message is the same as last time, its age is known. One look reads only so many:
others are told as they were, and come first the next time.
"""

from __future__ import annotations

import logging
import sys
from time import perf_counter

from headrace.compiled import is_compiled
from headrace.core import limits
from headrace.core.event_log import log_event
from headrace.core.values import DEAD_LETTER_SUFFIX, SPARK_PROGRESS, SPARK_SINK_PREFIX
from headrace.engine.age import published_ms, ready_offset, waiting_ms
from headrace.engine.catalog import DEAD_LETTER_GROUP
from headrace.engine.coordinator.transaction import State
from headrace.engine.cursor import Cursor
from headrace.engine.lane import LANE_COUNT
from headrace.engine.partition import Partition
from headrace.engine.queue import QueueView
from headrace.engine.scanner import NORMAL
from headrace.engine.window import READY
from headrace.server.metrics import families as f
from headrace.server.metrics.ages import STREAM, Ages
from headrace.server.metrics.bounded import Places
from headrace.server.metrics.counting import OTHER
from headrace.server.metrics.families import Samples
from headrace.server.metrics.process import read_process
from headrace.server.metrics.sums import (
    QueueSums,
    SinkSums,
    StreamSums,
    TopicSums,
    depth_of,
    empty_samples,
)
from headrace.server.passing import pass_time
from headrace.server.service import Service
from headrace.server.slices import Slices
from headrace.server.version import VERSION

logger = logging.getLogger("headrace")

# Between two slices of work.
PAUSE_SECONDS = 0.001


class Gathering:
    def __init__(self, service: Service, *, free_bytes_min: int, by_partition: bool) -> None:
        self._service = service
        self._broker = service.broker
        self._free_bytes_min = free_bytes_min
        self._by_partition = by_partition
        self._topics: Places[str] = Places(limits.METRIC_TOPICS_MAX)
        self._groups: Places[tuple[str, str]] = Places(limits.METRIC_GROUP_TOPICS_MAX)
        self._partitions: Places[tuple[str, int]] = Places(limits.METRIC_PARTITIONS_MAX)
        self._lags: Places[tuple[str, str, int]] = Places(limits.METRIC_PARTITIONS_MAX)
        self._ages = Ages(service)

    async def gather(self) -> Samples:
        began = perf_counter()
        samples = empty_samples()
        places = (self._topics, self._groups, self._partitions, self._lags)
        for each in places:
            each.begin()
        look = _Look(self._service, samples)
        self._ages.begin(look.now_ms)
        await pass_time(self._service, look.now_ms, look.rest)
        await self._look_at_topics(look)
        await self._look_at_streams(look)
        await self._look_at_sinks(look)
        self._look_at_transactions(look)
        for each in places:
            each.end()
        self._ages.end()
        self._write_counts(samples)
        await self._look_at_node(samples)
        samples[f.GATHERED].append(((), perf_counter() - began))
        return samples

    # Topics and queues.

    async def _look_at_topics(self, look: _Look) -> None:
        topics: dict[str, TopicSums] = {}
        queues: dict[tuple[str, str], QueueSums] = {}
        letters: dict[str, list[int]] = {}
        stopped = unreadable = 0
        for partition in list(self._broker.topics):
            await look.rest()
            if not partition.is_leader:
                continue
            topic = partition.topic.name
            label = topic if self._topics.has(topic) else OTHER
            topics.setdefault(label, TopicSums()).add(partition)
            unreadable += partition.records.unreadable.count
            stopped += partition.is_stopped
            if self._by_partition:
                self._write_partition(look.samples, partition)
            for view in list(partition.views.values()):
                if view.name == DEAD_LETTER_GROUP:
                    source = label.removesuffix(DEAD_LETTER_SUFFIX)
                    found = letters.setdefault(source, [0, 0])
                    found[0] += view.window.counts[NORMAL << 4 | READY]
                    found[1] += view.totals["redriven"]
                    continue
                pair = (view.name, topic)
                pair = pair if self._groups.has(pair) else (OTHER, OTHER)
                sums = queues.get(pair)
                if sums is None:
                    sums = queues[pair] = QueueSums()
                sums.add(view)
                await self._age_lanes(look, partition, view, sums)
                if self._by_partition:
                    self._write_lag(look.samples, view.name, partition, "queue", depth_of(view))
                await look.rest()
        for name, each in topics.items():
            each.write(look.samples, name)
        for (group, topic), queue in queues.items():
            queue.write(look.samples, group, topic)
            await look.rest()
        for name, (waiting, redriven) in letters.items():
            look.samples[f.LETTERS].append(((name,), waiting))
            look.samples[f.REDRIVEN].append(((name,), redriven))
        look.samples[f.STOPPED].append(((), stopped))
        look.samples[f.UNREADABLE].append(((), unreadable))

    async def _age_lanes(
        self, look: _Look, partition: Partition, view: QueueView, sums: QueueSums
    ) -> None:
        counts = view.window.counts
        for lane in range(LANE_COUNT):
            if not counts[lane << 4 | READY]:
                continue
            offset = ready_offset(view, lane)
            if offset is not None:
                asked = (partition, view.name, lane)
                waited = await self._ages.waited_ms(asked, offset, waiting_ms)
                sums.waited_ms[lane] = max(sums.waited_ms[lane], waited)

    def _write_partition(self, samples: Samples, partition: Partition) -> None:
        if not self._partitions.has((partition.topic.name, partition.index)):
            return
        labels = (partition.topic.name, str(partition.index))
        samples[f.START_OFFSET].append((labels, partition.log.start_offset))
        samples[f.END_OFFSET].append((labels, partition.high_watermark))
        samples[f.PARTITION_SIZE].append((labels, partition.log.size_bytes))

    def _write_lag(
        self, samples: Samples, group: str, partition: Partition, kind: str, lag: int
    ) -> None:
        name, index = partition.topic.name, partition.index
        if self._by_partition and self._lags.has((group, name, index)):
            samples[f.PARTITION_LAG].append(((group, name, str(index), kind), lag))

    # Streams.

    async def _look_at_streams(self, look: _Look) -> None:
        cursors, topics = self._broker.cursors, self._broker.topics
        streams: dict[tuple[str, str], StreamSums] = {}
        for group in sorted(cursors.groups()):
            if group.startswith(SPARK_SINK_PREFIX):
                # Its offsets are numbers of batches, and lag would mean nothing.
                continue
            table = cursors.of(group)
            is_spark = any(each.metadata == SPARK_PROGRESS for each in table.values())
            kind = "spark" if is_spark else "stream"
            for name in cursors.topics_of(group):
                await look.rest()
                topic = topics.catalog.topics.get(name)
                if topic is None:
                    continue
                pair = (group, name)
                pair = pair if self._groups.has(pair) else (OTHER, OTHER)
                sums = streams.setdefault(pair, StreamSums())
                sums.kind = kind if pair[0] != OTHER else "stream"
                for partition in list(topics.partitions(topic)):
                    await look.rest()
                    cursor = table.get((topic.id, partition.index))
                    if partition.is_leader:
                        lag = await self._add_stream(look, group, partition, cursor, sums)
                        self._write_lag(look.samples, group, partition, kind, lag)
        for (group, name), each in streams.items():
            each.write(look.samples, group, name, look.now_ms)

    async def _look_at_sinks(self, look: _Look) -> None:
        """Spark's, by the marker that each of their tasks keeps."""
        cursors = self._broker.cursors
        sinks: dict[str, SinkSums] = {}
        for group in sorted(cursors.groups()):
            await look.rest()
            if group.startswith(SPARK_SINK_PREFIX):
                sink = group.removeprefix(SPARK_SINK_PREFIX).rpartition(".")[0]
                sinks.setdefault(sink, SinkSums()).add(cursors.of(group).values())
        shown: dict[str, SinkSums] = {}
        for sink, each in sinks.items():
            label = sink if self._groups.has((SPARK_SINK_PREFIX, sink)) else OTHER
            shown.setdefault(label, SinkSums()).join(each)
        for label, each in shown.items():
            each.write(look.samples, label)

    async def _add_stream(
        self,
        look: _Look,
        group: str,
        partition: Partition,
        cursor: Cursor | None,
        sums: StreamSums,
    ) -> int:
        start = partition.log.start_offset
        if cursor is not None:
            sums.position += max(0, cursor.offset)
            sums.committed_ms = max(sums.committed_ms or 0, cursor.at_ms)
            start = max(start, cursor.offset)
        lag = max(0, partition.high_watermark - start)
        sums.lag += lag
        if lag:
            asked = (partition, group, STREAM)
            waited = await self._ages.waited_ms(asked, start, published_ms)
            sums.waited_ms = max(sums.waited_ms, waited)
        return lag

    # Transactions.

    def _look_at_transactions(self, look: _Look) -> None:
        samples, table = look.samples, self._broker.transactions
        unfinished = table.unfinished()
        ongoing = [each for each in unfinished if each.state is State.ONGOING]
        for state, count in (
            ("ongoing", len(ongoing)),
            ("ending", len(unfinished) - len(ongoing)),
        ):
            samples[f.OPEN_TRANSACTIONS].append(((state,), count))
        begun = min((each.started_at_ms for each in unfinished), default=look.now_ms)
        oldest = max(0, look.now_ms - begun) / 1000
        samples[f.OLDEST_TRANSACTION].append(((), oldest))
        for outcome, count in table.ended.items():
            samples[f.ENDED_TRANSACTIONS].append(((outcome,), count))
        holders: list[tuple[int, Partition, int]] = []
        for place in {place for each in unfinished for place in each.partitions}:
            partition = self._broker.topics.find(*place)
            opened = [] if partition is None else partition.open_transactions()
            if partition is not None and opened:
                holders.append((opened[0].since_ms, partition, opened[0].producer_id))
        holders.sort(key=lambda each: each[0])
        del holders[limits.METRIC_HOLDERS_MAX :]
        owners = table.owners(producer_id for _, _, producer_id in holders) if holders else {}
        for since_ms, partition, producer_id in holders:
            labels = (partition.topic.name, str(partition.index), owners.get(producer_id, ""))
            samples[f.HELD].append((labels, max(0, look.now_ms - since_ms) / 1000))

    # What was counted, and the node.

    def _write_counts(self, samples: Samples) -> None:
        counts = self._service.counts
        counts.forget_topics(self._broker.topics.catalog.topics)
        for (topic, door), row in counts.rows.items():
            labels = (topic, door)
            samples[f.MESSAGES_IN].append((labels, row.messages_in))
            samples[f.BYTES_IN].append((labels, row.bytes_in))
            samples[f.MESSAGES_OUT].append((labels, row.messages_out))
            samples[f.BYTES_OUT].append((labels, row.bytes_out))
        for (door, api), endpoint in counts.endpoints.items():
            if any(endpoint.latency.counts):
                samples[f.REQUESTS].append(((door, api), endpoint.latency.copy()))
            for code, count in endpoint.errors.items():
                samples[f.REQUEST_ERRORS].append(((door, api, code), count))
        for cut, count in counts.cuts.items():
            samples[f.CUTS].append((cut, count))
        samples[f.SYNCS].append(((), counts.syncs.copy()))
        samples[f.LOOP_LAG].append(((), counts.loop_lag.copy()))

    async def _look_at_node(self, samples: Samples) -> None:
        for what, size in self._service.held_bytes.items():
            samples[f.HELD_BYTES].append(((what,), size()))
        if self._service.client_samples is not None:
            samples[f.CLIENT_METRIC] += self._service.client_samples()
        loop = self._service.loop
        for door, count in self._service.connections.items():
            try:
                # In a thread: grpc's library takes 20 ms.
                samples[f.CONNECTIONS].append(((door,), await loop.run_in_executor(None, count)))
            except Exception:
                # A library that counts for us; all the rest is worth telling.
                log_event(
                    logger, logging.ERROR, "connections were not counted", exc_info=True, door=door
                )
        free = await loop.run_in_executor(None, self._service.disk.free_bytes)
        samples[f.DISK_FREE].append(((), free))
        samples[f.DISK_FLOOR].append(((), self._free_bytes_min))
        python = ".".join(map(str, sys.version_info[:3]))
        code = "true" if is_compiled() else "false"
        samples[f.BUILD].append(((VERSION, python, code), 1))
        for name, value in (await loop.run_in_executor(None, read_process)).items():
            for family in f.PROCESS:
                if family.name == name:
                    samples[family].append(((), value))


class _Look:
    """One look: its time, and what it has found."""

    def __init__(self, service: Service, samples: Samples) -> None:
        self.samples = samples
        self.now_ms = service.clock.now_ms()
        self.rest = Slices(PAUSE_SECONDS).rest
