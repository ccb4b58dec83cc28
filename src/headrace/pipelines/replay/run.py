"""Runs a replay: chunk by chunk, at the asked-for pace, and on from where it was."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.wording import counted, shown_bytes
from headrace.pipelines.failing import as_one_line
from headrace.pipelines.registry import Say
from headrace.pipelines.replay.plan import Plan, load_plan
from headrace.pipelines.replay.reading import bounds_of, read_ranges
from headrace.pipelines.replay.settings import ReplaySettings
from headrace.pipelines.running import until_told
from headrace.pipelines.session import spark_session
from headrace.pipelines.settings import split_servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.replay.transform import Looked

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
