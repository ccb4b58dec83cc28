"""Fits a table to new columns, before the first row of them is written.

    stored schema, wanted schema -> evolution.evolve -> nothing | the log | files and log

New columns are one entry in the table's log. Wider types are files written anew by
executors, which the log takes for the old ones in one commit together with the new
schema: a reader sees the table as it was or as it is, and no file of another type than
the schema says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.core.errors import InvalidArgument
from headrace.pipelines.datafiles import write_files
from headrace.pipelines.evolution import Evolution, as_stored, check, evolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from headrace.pipelines.table import LakeTable

# How often it is tried again while others change the table.
TRIES = 10
REMEDY = (
    "correct the settings (another name makes another column), or make the table anew: "
    "headrace pipeline rebuild"
)


def evolve_table(table: LakeTable, spark: SparkSession, *, writers: Sequence[str]) -> Evolution:
    """Make the table take rows of `table.schema`. InvalidArgument when it cannot, and
    then nothing has changed. `writers` are all that append to the table."""
    table.check_partitioning()
    for _ in range(TRIES):
        stored = table.stored_schema()
        if stored is None:
            return Evolution(table.schema)
        evolution = evolve(stored, table.schema)
        check(evolution, table.location, REMEDY)
        if table.log.schema() is None:
            # A log of before there were schemas in it.
            table.log.replace((), (), seen={}, schema=stored)
        if evolution.changes_nothing or _apply(table, spark, stored, evolution, writers):
            return evolution
    raise busy(table)


def check_table(table: LakeTable) -> None:
    """InvalidArgument when the table cannot be fitted to its schema."""
    table.check_partitioning()
    stored = table.stored_schema()
    if stored is not None:
        check(evolve(stored, table.schema), table.location, REMEDY)


def busy(table: LakeTable) -> InvalidArgument:
    return InvalidArgument(
        f"{table.location} was changed by others {TRIES} times while it was to be changed; "
        "try again when fewer write to it"
    )


def _apply(
    table: LakeTable,
    spark: SparkSession,
    stored: StructType,
    evolution: Evolution,
    writers: Sequence[str],
) -> bool:
    """False when somebody else changed the table meanwhile."""
    if not evolution.rewritten:
        return table.log.replace((), (), seen={}, schema=evolution.schema)
    seen = {each: last for each in writers if (last := table.last_batch(each)) is not None}
    files = table.files()
    rows = table.read_files(spark, files, as_stored(stored, evolution.schema))
    wider = rows.select(*(rows[f.name].cast(f.dataType).alias(f.name) for f in evolution.schema))
    written = write_files(wider, table.store, table.shape, "rewritten")
    return table.log.replace(written, files, seen=seen, schema=evolution.schema)
