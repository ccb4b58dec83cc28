"""The table `latest`: the last value of each key.

    files of the table ──┬─ have no changed key ────────────────> stay as they are
                         └─ have one ─┬─ other rows ──┐
                                      └─ its rows ────┤
    changes of the batch ─────────── the last by key ─┴─────────> new files

Executors find the files that hold a changed key by reading the key's columns alone, and
write those anew. The log takes new for old files in one commit, with the batch's number:
a batch that comes again changes nothing. A batch without changes is committed too, so that
one which was taken without this table can be told. An older record never overwrites a newer
one, since rows of the table and of the batch are compared by offset.

Rejected: MERGE by delta-rs. It writes the same files anew, and faster, but
in the driver's process and memory, and for Delta tables alone (docs/pipelines.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headrace.core.errors import InvalidArgument
from headrace.pipelines.archive.changes import (
    DELETED,
    Emptied,
    changes_of,
    emptied,
    last_by_key,
    survives,
)
from headrace.pipelines.compaction import COMPACTED_BYTES
from headrace.pipelines.datafiles import DataFile, file_prefix, write_files
from headrace.pipelines.evolution import evolve
from headrace.pipelines.evolving import REMEDY, TRIES, busy
from headrace.pipelines.file_reading import FILE, read_with_paths
from headrace.pipelines.schema import arrow_schema
from headrace.pipelines.settings import StreamSettings
from headrace.pipelines.table import LakeTable, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# In the metadata of the columns that name a row: they cannot become others later.
_MARK = {"headrace.key": "true"}


class Changes(NamedTuple):
    """What one batch does to the table."""

    last: DataFrame
    cuts: list[Emptied]


def latest_table(settings: StreamSettings, typed: StructType, keys: Sequence[str]) -> LakeTable:
    """`typed` are the columns of the typed table."""
    fields = [
        StructField(f.name, f.dataType, True, _MARK if f.name in keys else {})
        for f in typed.fields
        if f.name != "_date"
    ]
    return open_table(
        settings.table_path("latest"),
        settings.format,
        StructType(fields),
        partition_by=(),
        time="_timestamp",
        storage=settings.storage,
    )


def keys_of(schema: StructType) -> list[str]:
    return [field.name for field in schema.fields if field.metadata == _MARK]


def check_keys(table: LakeTable) -> None:
    """InvalidArgument when the table follows other keys, or has to have fields that rows
    of the settings have not."""
    stored = table.stored_schema()
    if stored is None:
        return
    there, wanted = keys_of(stored), keys_of(table.schema)
    if there != wanted:
        raise InvalidArgument(
            f"{table.location} follows {_named(there)} and the settings say {_named(wanted)}; "
            f"{REMEDY}"
        )
    left_out = [name for name in evolve(stored, table.schema).unused if "." in name]
    if left_out:
        raise InvalidArgument(
            f"{table.location}: value_schema leaves out {', '.join(map(repr, left_out))}, and a "
            f"table that follows keys needs all fields of a struct; {REMEDY}"
        )


def _named(keys: Sequence[str]) -> str:
    names = ("the record's key" if name == "_key" else name for name in keys)
    return " and ".join("the topic" if name == "_topic" else name for name in names)


def create(table: LakeTable) -> None:
    """The marks go with the columns into the log."""
    import pyarrow as pa

    keys = keys_of(table.schema)
    fields = [
        field.with_metadata(_MARK) if field.name in keys else field
        for field in arrow_schema(table.schema)
    ]
    table.create(pa.schema(fields))


def find_changes(records: DataFrame, keys: Sequence[str]) -> Changes:
    """Of decoded records with row keys. `last` is kept in memory: unpersist it."""
    cuts = emptied(records)
    return Changes(last_by_key(changes_of(records), keys).persist(), cuts)


def upsert(table: LakeTable, changes: Changes, writer: str, batch: int) -> bool:
    """Put the batch's changes into the table; False when they are in."""
    if table.has(writer, batch):
        return False
    create(table)
    for _ in range(TRIES):
        schema = table.stored_schema() or table.schema
        old = files_with(table, changes)
        written = write(table, schema, old, changes, file_prefix(writer, batch))
        if table.log.commit(
            written, old, transaction=(writer, batch), data_change=True, columns=schema
        ):
            return True
        if table.has(writer, batch):
            return False
    raise busy(table)


def files_with(table: LakeTable, changes: Changes) -> list[DataFile]:
    """The table's files that have a row which these changes touch."""
    files = table.files()
    if not files or changes.cuts:
        return files
    keys = keys_of(table.schema)
    columns = StructType([f for f in table.schema if f.name in keys])
    rows = read_with_paths(changes.last.sparkSession, table.store, files, columns)
    touched = rows.join(changes.last.select(*keys), keys, "left_semi")
    paths = {row[FILE] for row in touched.select(FILE).distinct().collect()}
    return [file for file in files if file.path in paths]


def write(
    table: LakeTable,
    schema: StructType,
    old: Sequence[DataFile],
    changes: Changes,
    prefix: str,
) -> list[DataFile]:
    """New files with the rows of the old ones, as they are after the changes."""
    spark = changes.last.sparkSession
    rows = after(table.read_files(spark, old, schema), changes, keys_of(table.schema))
    # Not many more files than before: a small batch should not leave many small ones.
    tasks = max(
        int(spark.conf.get("spark.sql.shuffle.partitions") or 1),
        sum(file.size for file in old) // COMPACTED_BYTES + 1,
    )
    chosen = rows.select(*schema.fieldNames()).coalesce(tasks)
    return write_files(chosen, table.store, table.shape, prefix)


def after(rows: DataFrame, changes: Changes, keys: Sequence[str]) -> DataFrame:
    """A pure function: the table's rows, as they are after the changes."""
    changed = changes.last.select(*keys)
    others = rows.join(changed, list(keys), "left_anti")
    touched = rows.join(changed, list(keys), "left_semi").withColumn(DELETED, F.lit(False))
    # A column of the table that the settings leave out is null in rows of the batch.
    both = touched.unionByName(changes.last, allowMissingColumns=True)
    new = last_by_key(both, keys).where(~F.col(DELETED)).drop(DELETED)
    return survives(others.unionByName(new), changes.cuts)
