"""Runs a replay: chunk by chunk, at the asked-for pace, and on from where it was."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.cli.arguments import parse_moment_ms
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.settings import check_between
from headrace.core.values import check_name
from headrace.core.wording import counted
from headrace.pipelines.archive.job import raw_table
from headrace.pipelines.archive.reading import seam, starting_offsets
from headrace.pipelines.ledger import check_written
from headrace.pipelines.registry import Say
from headrace.pipelines.replay.plan import Plan, Ranges, load_plan
from headrace.pipelines.running import read_batch, until_told
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import StreamSettings, missing, split_servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ReplaySettings(StreamSettings):
    source: Literal["topic", "lake"] = "topic"
    # The archive's instance, where its settings gave it a name of its own.
    archive: str = ""
    to_topic: str = ""
    to_servers: str = ""
    # Moments of publishing: from `start` on, and before `end`.
    start: str = ""
    end: str = ""
    # SQL on a record's columns and on `text`, its value as text.
    where: str = ""
    key: str = ""
    value: str = ""
    # Records a second; 0 is as fast as it goes.
    rate: float = 0.0
    chunk_rows: int = 10_000
    state: str = ""
    exactly_once: bool = True

    def __post_init__(self) -> None:
        StreamSettings.__post_init__(self)
        check_between("rate", self.rate, 0, None)
        check_between("chunk_rows", self.chunk_rows, 1, 1_000_000)
        for name in ("start", "end"):
            self.moment_ms(name)

    def check(self) -> None:
        if self.source == "lake" and not self.lake:
            raise missing("lake", "which archive to read", "lake/orders")
        if self.lake:
            self.check_lake()
        if not self.topic:
            raise missing("topic", "which topic to replay", "orders")
        self.check_place()
        if not self.servers:
            raise InvalidArgument("a replay needs a node; say where with servers = ...")
        if not self.to_topic:
            raise missing("to_topic", "where the records go", f"{self.topic}-again")
        check_name("topic", self.to_topic)
        if self.to_topic == self.topic and self.source == "topic" and not self.end:
            raise InvalidArgument(
                "to_topic is the topic that is read; name another, or say with end = ... up to "
                "which moment, or what is replayed would be replayed again by the next run"
            )

    @property
    def instance(self) -> str:
        return self.name or f"replay-{self.topic}-{self.to_topic}"

    @property
    def state_path(self) -> str:
        return self.state or f"{self.instance}.state.json"

    def moment_ms(self, name: str) -> int | None:
        text = getattr(self, name)
        try:
            return parse_moment_ms(text) if text else None
        except ValueError as error:
            raise InvalidArgument(f"{name}: {error}") from None

    def about(self) -> str:
        place = self.lake if self.source == "lake" else self.servers
        chosen = [each for each in (self.start, self.end, self.where, self.key, self.value) if each]
        return " | ".join([f"{self.source} {place} {self.topic} to {self.to_topic}", *chosen])


Settings = ReplaySettings


def run(settings: ReplaySettings, *, master: str | None, say: Say) -> int:
    about = settings.about()
    plan = load_plan(settings.state_path, about)
    if plan is not None and plan.chunk < plan.chunks:
        say(f"going on from chunk {plan.chunk} of {plan.chunks}")
    with spark_session(settings, master) as spark, until_told() as stopped:
        if plan is None:
            bounds = bounds_of(spark, settings)
            plan = Plan(bounds, settings.chunk_rows, about, run=uuid.uuid4().hex)
            plan.save(settings.state_path)
        replay(spark, settings, plan, say=say, stopped=stopped)
    whole = plan.chunk >= plan.chunks
    if whole and plan.run and settings.exactly_once:
        _forget_marker(settings, plan)
    say(
        f"{counted(plan.records, 'record')} written to "
        f"{settings.to_topic}{'' if whole else ' so far'}"
    )
    return 0


def replay(
    spark: SparkSession,
    settings: ReplaySettings,
    plan: Plan,
    *,
    say: Say,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    while plan.chunk < plan.chunks and not stopped():
        started = time.monotonic()
        count = _write_chunk(spark, settings, plan)
        plan.chunk += 1
        plan.records += count
        plan.save(settings.state_path)
        say(f"chunk {plan.chunk} of {plan.chunks}: {counted(count, 'record')}")
        if settings.rate:
            _wait(started + count / settings.rate, stopped)


def _sink(settings: ReplaySettings, plan: Plan) -> str:
    return f"{settings.instance}-{plan.run}" if plan.run else settings.instance


def _forget_marker(settings: ReplaySettings, plan: Plan) -> None:
    """The state says that all is written, so nobody will ask for the marker again."""
    from headrace.client.kafka.cluster import KafkaCluster
    from headrace.client.kafka.offsets import delete_group
    from headrace.spark.sink import marker_group

    servers = split_servers(settings.to_servers or settings.servers)
    with suppress(HeadraceError), KafkaCluster(servers) as cluster:
        # Chunks are written by one task, the first.
        delete_group(cluster, marker_group(_sink(settings, plan), 0))


def _wait(until: float, stopped: Callable[[], bool]) -> None:
    """Till then, or till told to stop; a look every now and then."""
    pause = threading.Event()
    while (left := until - time.monotonic()) > 0 and not stopped():
        pause.wait(min(left, 0.5))


def _write_chunk(spark: SparkSession, settings: ReplaySettings, plan: Plan) -> int:
    from headrace.pipelines.replay import transform

    records = read_ranges(spark, settings, plan.ranges(plan.chunk))
    # One task: a chunk that is repeated has to come as one again, and in order.
    chosen = transform.replayed(
        records, where=settings.where, key=settings.key, value=settings.value
    ).coalesce(1)
    chosen = chosen.persist()
    try:
        count = chosen.count()
        if count:
            options = {
                "kafka.bootstrap.servers": settings.to_servers or settings.servers,
                "topic": settings.to_topic,
            }
            if settings.exactly_once:
                options |= {
                    "exactlyOnce": "true",
                    "sinkId": _sink(settings, plan),
                    "batchId": str(plan.chunk),
                }
            chosen.write.format("headrace").mode("append").options(**options).save()
    finally:
        chosen.unpersist()
    return count


def read_ranges(spark: SparkSession, settings: ReplaySettings, ranges: Ranges) -> DataFrame:
    from headrace.pipelines.archive.transform import RECORD_COLUMNS
    from headrace.pipelines.replay import transform

    if settings.source == "lake":
        start_ms, end_ms = settings.moment_ms("start"), settings.moment_ms("end")
        records = raw_table(settings).read(
            spark,
            None if start_ms is None else start_ms * 1000,
            None if end_ms is None else end_ms * 1000,
            bounds=[
                {"partition": (partition, partition + 1), "offset": offsets}
                for (_, partition), offsets in sorted(ranges.items())
            ],
        )
        return transform.between(transform.within(records, ranges), start_ms, end_ms).select(
            *RECORD_COLUMNS
        )
    starts = {f"{topic}/{partition}": start for (topic, partition), (start, _) in ranges.items()}
    ends = {f"{topic}/{partition}": end for (topic, partition), (_, end) in ranges.items()}
    assigned: dict[str, list[int]] = {}
    for topic, partition in ranges:
        assigned.setdefault(topic, []).append(partition)
    records = read_batch(
        spark,
        settings,
        assign=json.dumps(assigned),
        startingOffsets=starting_offsets(starts),
        endingOffsets=starting_offsets(ends),
    )
    return transform.between(records, settings.moment_ms("start"), settings.moment_ms("end"))


def bounds_of(spark: SparkSession, settings: ReplaySettings) -> Ranges:
    """Which offsets there are to look at, as of now."""
    return _lake_bounds(spark, settings) if settings.source == "lake" else _topic_bounds(settings)


def _lake_bounds(spark: SparkSession, settings: ReplaySettings) -> Ranges:
    from headrace.pipelines.archive.transform import below, of_topic
    from headrace.pipelines.replay import transform

    writer = settings.archive or f"archive-{settings.topic}"
    check_written(settings.lake, settings.format, writer, settings.storage)
    ends = seam(settings, writer)
    # An archive may begin far behind offset 0, and every chunk costs a job.
    places = raw_table(settings).read(spark, columns=("topic", "partition", "offset"))
    return transform.spans(of_topic(below(places, ends), settings.topic))


def _topic_bounds(settings: ReplaySettings) -> Ranges:
    from headrace.client.kafka.cluster import EARLIEST, LATEST, KafkaCluster

    start_ms = settings.moment_ms("start")
    with KafkaCluster(settings.bootstrap) as cluster:
        topics = cluster.topics([settings.topic])
        if settings.topic not in topics:
            raise InvalidArgument(f"there is no topic {settings.topic!r} on {settings.servers}")
        places = [(settings.topic, partition) for partition in topics[settings.topic].partitions]
        latest = cluster.offsets(dict.fromkeys(places, LATEST))
        first = cluster.offsets(dict.fromkeys(places, EARLIEST if start_ms is None else start_ms))
    # A record before `end` may lie behind one that is not, so all are looked at;
    # before the first one from `start` on there is none.
    return {
        place: (first[place].offset, latest[place].offset)
        for place in places
        if 0 <= first[place].offset < latest[place].offset
    }
