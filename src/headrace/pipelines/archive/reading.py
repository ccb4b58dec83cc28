"""One view of the lake and the live topic, without gap or overlap.

    partition 0   lake ──────────────────> end ──> live topic ──> latest
                                            ^
                                    the ledger's last row

The seam is an offset for each partition, so a record is on one side of it and
never on both. What a batch has put into the lake and not yet into the ledger
counts as live: its rows lie behind the seam.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive import transform
from headrace.pipelines.archive.job import raw_table, typed_table
from headrace.pipelines.archive.latest import latest_table
from headrace.pipelines.ledger import Ledger
from headrace.pipelines.running import read_batch
from headrace.pipelines.topics import read_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.settings import StreamSettings
    from headrace.pipelines.table import LakeTable


def read_lake(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    """The records that are in the lake, up to the seam."""
    ends = seam(settings)
    # The seam first: the lake only grows, so it holds all below it.
    return transform.below(raw_table(settings).read(spark), ends).select(*transform.RECORD_COLUMNS)


def read_typed(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    """The typed table with all the columns that it has, whatever the settings name."""
    return _read_whole(spark, settings, typed_table(settings, StructType()))


def read_latest(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    """The last row of each key."""
    return _read_whole(spark, settings, latest_table(settings, StructType(), ()))


def _read_whole(spark: SparkSession, settings: StreamSettings, table: LakeTable) -> DataFrame:
    stored = table.stored_schema()
    if stored is None:
        raise InvalidArgument(
            f"there is no table {table.location!r}; run the archive with value_format and "
            "value_schema (and upsert = true for `latest`), or correct lake = ..."
        )
    return table.read_files(spark, table.files(), stored)


def read_union(spark: SparkSession, settings: StreamSettings) -> DataFrame:
    """All records of the topics that the lake or the topics still have, each once."""
    ends = seam(settings)
    lake = transform.below(raw_table(settings).read(spark), ends)
    there = read_names(settings)
    # The connector takes no offsets of topics that it does not read, or that are gone.
    known = {place: end for place, end in ends.items() if place.rpartition("/")[0] in there}
    options = {}
    if known:
        options = {"startingOffsets": starting_offsets(known), "unlistedPartitions": "whole"}
    live = read_batch(spark, settings, **options)
    columns = transform.RECORD_COLUMNS
    return lake.select(*columns).unionByName(live.select(*columns))


def seam(settings: StreamSettings, archive: str | None = None) -> dict[str, int]:
    """Where the lake ends: "topic/partition" to the next offset. `archive` is the
    instance that wrote it, when the settings are not its own."""
    last = Ledger(
        settings.lake, settings.format, archive or settings.instance, settings.storage
    ).last()
    return dict(last.ends) if last else {}


def starting_offsets(ends: dict[str, int]) -> str:
    """In the connector's words. A partition that the lake does not know yet is
    left out, and begins at its earliest record with 'unlistedPartitions'."""
    topics: dict[str, dict[str, int]] = defaultdict(dict)
    for place, end in sorted(ends.items()):
        topic, _, partition = place.rpartition("/")
        topics[topic][partition] = end
    return json.dumps(topics)
