"""What a replay reads: the offsets that there are, and the records of a chunk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.job import raw_table
from headrace.pipelines.archive.reading import seam, starting_offsets
from headrace.pipelines.ledger import check_written
from headrace.pipelines.replay.plan import Ranges
from headrace.pipelines.replay.settings import ReplaySettings
from headrace.pipelines.running import read_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
