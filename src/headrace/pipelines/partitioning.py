"""How a table's files are put into folders, and how a value is written in a path.

    partition_by   folders
    day            date=2026-11-15/                what tables have by default
    hour           date=2026-11-15/hour=08/
    none           no folders
    COLUMN         country=DE/

Values are escaped as Hive does it, which Spark and Delta's readers undo: a slash is
%2F, a null has a name of its own. The log has every value as it is; a value that is
too long for a folder's name is cut there, with a number that tells it from others.

An empty text becomes null: neither Hive's folders nor Delta's log tell the two apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.core.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
# Of a folder's name, in bytes; file systems take 255.
FOLDER_BYTES_MAX = 200
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}

# What `partition_by` may say besides a column's name.
PARTITIONINGS = ("day", "hour", "none")
DAY = "date"
HOUR = "hour"
_HOUR_US = 3_600_000_000


def partition_columns(choice: str, day: str) -> tuple[str, ...]:
    """The columns that `partition_by` asks for. `day` is the table's column of days; that
    of hours is named after it, so `_date` has `_hour` beside it."""
    if choice == "day":
        return (day,)
    if choice == "hour":
        return (day, hour_column(day))
    return () if choice == "none" else (choice,)


def hour_column(day: str) -> str:
    return "_" * (len(day) - len(day.lstrip("_"))) + HOUR


def follows_time(partition_by: Sequence[str]) -> bool:
    """Whether rows that come together are of few partitions: of days and hours, or of one."""
    return all(name.lstrip("_") in (DAY, HOUR) for name in partition_by)


def with_partitions(schema: StructType, partition_by: Sequence[str]) -> StructType:
    """The schema with the column of hours, where there is none; InvalidArgument when the
    table has no such column, or one that folders cannot be named after."""
    from pyspark.sql.types import StringType, StructField, StructType

    if not schema.fields:
        # Of a table that is only read, with the columns that its log has.
        return schema
    fields = list(schema.fields)
    for name in partition_by:
        found = next((field for field in fields if field.name == name), None)
        if found is None and name.lstrip("_") == HOUR:
            fields.append(StructField(name, StringType()))
        elif found is None:
            raise InvalidArgument(
                f"partition_by names the column {name!r}, which the table does not have; it has "
                f"{', '.join(schema.fieldNames())}"
            )
        elif not _names_folders(found.dataType):
            raise InvalidArgument(
                f"partition_by names the column {name!r}, which is {found.dataType.simpleString()}"
                "; folders can be named after texts, whole numbers, dates and booleans"
            )
    if len(partition_by) >= len(fields):
        raise InvalidArgument(
            "partition_by names every column of the table, so its files would be empty"
        )
    return StructType(fields)


def _names_folders(kind: DataType) -> bool:
    from pyspark.sql import types

    return isinstance(
        kind,
        types.StringType
        | types.ByteType
        | types.ShortType
        | types.IntegerType
        | types.LongType
        | types.DateType
        | types.BooleanType,
    )


def with_hours(frame: DataFrame, schema: StructType, time_column: str) -> DataFrame:
    """The frame with the hour of its time column, where the schema wants one that the frame
    does not have; 00 to 23 in UTC, whatever the session's time zone."""
    from pyspark.sql import functions as F

    for name in schema.fieldNames():
        if name.lstrip("_") == HOUR and name not in frame.columns:
            hours = F.floor(F.unix_micros(time_column) / F.lit(_HOUR_US))
            text = F.lpad(F.pmod(hours, F.lit(24)).cast("int").cast("string"), 2, "0")
            frame = frame.withColumn(name, text)
    return frame


def folder_of(partition: Mapping[str, str | None]) -> str:
    """Where files of this partition lie, below the table."""
    return "/".join(_folder(name, value) for name, value in partition.items())


def is_in_its_folder(path: str, partition: Mapping[str, str | None]) -> bool:
    """Whether Spark reads the partition's values from the path as they are."""
    folder, _, _ = path.rpartition("/")
    whole = "/".join(f"{_escaped(name)}={_value(value)}" for name, value in partition.items())
    return folder == whole


def _folder(name: str, value: str | None) -> str:
    whole = f"{_escaped(name)}={_value(value)}"
    if len(whole.encode()) <= FOLDER_BYTES_MAX:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    room = FOLDER_BYTES_MAX - len(digest) - 1
    kept = ""
    for part in _parts(name, value):
        room -= len(part.encode())
        if room < 0:
            break
        kept += part
    return f"{kept}~{digest}"


def _parts(name: str, value: str | None) -> list[str]:
    """Character by character, an escaped one in one piece."""
    return [*map(_escape, name), "=", *map(_escape, value or "")]


def _value(value: str | None) -> str:
    if value is None:
        return NULL_FOLDER
    if value == NULL_FOLDER:
        # A text that happens to be the name of null.
        return f"%5F{_escaped(value[1:])}"
    return _escaped(value)


def _escaped(text: str) -> str:
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    return f"%{ord(character):02X}" if character in _ESCAPED else character


def partition_text(value: Any) -> str | None:
    """A partition's value as the log writes it."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def partition_array(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """The column of a file's rows, which all have the same value."""
    import pyarrow as pa

    if text is None:
        return pa.nulls(rows, kind)
    return pa.repeat(pa.scalar(text, pa.string()).cast(kind), rows)
