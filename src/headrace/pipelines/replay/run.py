"""Runs a replay: chunk by chunk, at the asked-for pace, and on from where it was."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from headrace.cli.arguments import parse_moment_ms
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.settings import check_between
from headrace.core.values import check_name
from headrace.core.wording import counted, shown_bytes
from headrace.pipelines.archive.job import raw_table
from headrace.pipelines.archive.reading import seam, starting_offsets
from headrace.pipelines.failing import as_one_line
from headrace.pipelines.ledger import check_written
from headrace.pipelines.registry import Say
from headrace.pipelines.replay.plan import Plan, Ranges, load_plan
from headrace.pipelines.running import read_batch, until_told
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import StreamSettings, missing, split_servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.replay.transform import Looked

Kept = Literal["timestamp", "key", "headers", "partition"]


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
    # What a record keeps of its own besides its value. Without its timestamp it gets the
    # time of writing, without its partition the one of its key.
    keep: tuple[str, ...] = ("key", "headers")
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
        for name in self.keep:
            if name not in get_args(Kept):
                raise InvalidArgument(f"keep takes {', '.join(get_args(Kept))}, and not {name!r}")

    def check(self) -> None:
        if self.source == "lake" and not self.lake:
            raise missing("lake", "which archive to read", "lake/orders")
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
        if self.keep != ReplaySettings.__dataclass_fields__["keep"].default:
            chosen.append(f"keep {', '.join(self.keep)}")
        return " | ".join([f"{self.source} {place} {self.topic} to {self.to_topic}", *chosen])


Settings = ReplaySettings


def run(settings: ReplaySettings, *, master: str | None, say: Say) -> int:
    about = settings.about()
    plan = load_plan(settings.state_path, about)
    if plan is not None and plan.chunk < plan.chunks:
        say(f"going on from chunk {plan.chunk} of {plan.chunks}")
    with spark_session(settings, master) as spark, until_told() as stopped:
        check_expressions(spark, settings)
        if plan is None:
            bounds = bounds_of(spark, settings)
            plan = Plan(bounds, settings.chunk_rows, about, run=uuid.uuid4().hex)
            plan.save(settings.state_path)
        replay(spark, settings, plan, say=say, stopped=stopped)
    whole = plan.chunk >= plan.chunks
    if whole and plan.run and settings.exactly_once:
        _forget_marker(settings, plan)
    say(
        f"{counted(plan.read, 'record')} read, {plan.records:,} written to "
        f"{settings.to_topic}{'' if whole else ' so far'}, {shown_bytes(plan.bytes)}"
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
        looked = _write_chunk(spark, settings, plan)
        plan.chunk += 1
        plan.read += looked.read
        plan.records += looked.written
        plan.bytes += looked.bytes
        plan.save(settings.state_path)
        say(f"chunk {plan.chunk} of {plan.chunks}: {counted(looked.written, 'record')}")
        if settings.rate:
            _wait(started + looked.written / settings.rate, stopped)


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


def _write_chunk(spark: SparkSession, settings: ReplaySettings, plan: Plan) -> Looked:
    from pyspark.errors import PySparkException

    from headrace.pipelines.replay import transform

    records = read_ranges(spark, settings, plan.ranges(plan.chunk))
    looked_at = _chosen(records, settings).persist()
    try:
        try:
            found = transform.looked_at(looked_at)
        except PySparkException as error:
            if not _is_of_the_expressions(settings, error):
                raise
            raise InvalidArgument(
                f"where, key or value does not fit a record: {as_one_line(error)}. Where a value "
                'may be of another form, use try_cast, as in: where = "try_cast('
                "get_json_object(text, '$.total') AS DOUBLE) > 10\""
            ) from error
        if found.written:
            _check_partition(settings, found.partition)
            # One task: a chunk that is repeated has to come as one again, and in order.
            again = transform.written(looked_at).coalesce(1)
            again.write.format("headrace").mode("append").options(
                **_sink_options(settings, plan)
            ).save()
    finally:
        looked_at.unpersist()
    return found


def _chosen(records: DataFrame, settings: ReplaySettings) -> DataFrame:
    from headrace.pipelines.replay import transform

    return transform.chosen(
        records,
        where=settings.where,
        key=settings.key,
        value=settings.value,
        keep=settings.keep,
    )


def _is_of_the_expressions(settings: ReplaySettings, error: Exception) -> bool:
    """Whether the user's SQL failed at a record, and not the reading of records: those errors
    have a condition of Spark's own, which a failed source has not."""
    from pyspark.errors import (
        ArithmeticException,
        ArrayIndexOutOfBoundsException,
        DateTimeException,
        IllegalArgumentException,
        SparkRuntimeException,
    )

    kinds = (
        ArithmeticException,
        ArrayIndexOutOfBoundsException,
        DateTimeException,
        IllegalArgumentException,
        SparkRuntimeException,
    )
    return bool(settings.where or settings.key or settings.value) and isinstance(error, kinds)


def check_expressions(spark: SparkSession, settings: ReplaySettings) -> None:
    """Before anything is written: InvalidArgument names the setting that is no SQL, or of a
    column that there is not."""
    from pyspark.errors import PySparkException

    from headrace.pipelines.archive.transform import RAW_SCHEMA
    from headrace.pipelines.replay import transform
    from headrace.pipelines.schema import schema_of

    nothing = spark.createDataFrame([], schema_of(RAW_SCHEMA))
    for name in ("where", "key", "value"):
        alone = dict.fromkeys(("where", "key", "value"), "")
        alone[name] = getattr(settings, name)
        try:
            transform.chosen(nothing, keep=settings.keep, **alone).schema  # noqa: B018
        except PySparkException as error:
            raise InvalidArgument(f"{name} is not SQL that fits: {as_one_line(error)}") from error


def _check_partition(settings: ReplaySettings, partition: int | None) -> None:
    """Before a chunk is written: whether the topic has a place for what keeps its partition."""
    from headrace.client.kafka.cluster import KafkaCluster

    if "partition" not in settings.keep or partition is None:
        return
    with KafkaCluster(split_servers(settings.to_servers or settings.servers)) as cluster:
        topic = cluster.topics([settings.to_topic]).get(settings.to_topic)
    if topic is not None and partition >= len(topic.partitions):
        raise InvalidArgument(
            f"{settings.to_topic} has {counted(len(topic.partitions), 'partition')}, and a record "
            f"of partition {partition} is to keep its own; give the topic {partition + 1}, or "
            "leave partition out of keep"
        )


def _sink_options(settings: ReplaySettings, plan: Plan) -> dict[str, str]:
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
    return options


def read_ranges(spark: SparkSession, settings: ReplaySettings, ranges: Ranges) -> DataFrame:
    from headrace.pipelines.archive.transform import RECORD_COLUMNS
    from headrace.pipelines.replay import transform

    if settings.source == "lake":
        start_ms, end_ms = settings.moment_ms("start"), settings.moment_ms("end")
        records = raw_table(settings).read(
            spark,
            None if start_ms is None else start_ms * 1000,
            None if end_ms is None else end_ms * 1000,
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
    from headrace.pipelines.archive.transform import below
    from headrace.pipelines.replay import transform

    writer = settings.archive or f"archive-{settings.topic}"
    check_written(settings.lake, settings.format, writer)
    ends = seam(settings, writer)
    # An archive may begin far behind offset 0, and every chunk costs a job.
    return transform.spans(below(raw_table(settings).read(spark), ends))


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
