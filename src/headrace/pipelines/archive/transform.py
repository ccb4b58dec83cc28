"""The archive as functions of DataFrames.

    records ─┬─> raw      every record as it is, whatever its value
             ├─> typed    decoded values, a column for each field
             └─> bad      values that cannot be decoded, with the reason

Columns of `typed` that are not the value's own begin with an underscore, so that a
field may be called `offset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from headrace.core.errors import InvalidArgument
from headrace.pipelines.rollup.transform import date_of
from headrace.pipelines.schema import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_COLUMNS = (
    "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
)  # fmt: skip
RAW_SCHEMA = (
    "date string, topic string, partition int, offset long, timestamp timestamp, "
    "timestampType int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>, batch long"
)
BAD_SCHEMA = (
    "date string, topic string, partition int, offset long, timestamp timestamp, value binary, "
    "problem string"
)
# What the connector calls a decoded value, and the reason why there is none.
DECODED = "decoded"
DECODE_ERROR = "decodeError"

_TYPED_OWN = schema_of(
    "_date string, _topic string, _partition int, _offset long, _timestamp timestamp, _key binary"
)


def raw_rows(records: DataFrame, batch: int) -> DataFrame:
    return records.select(
        *RECORD_COLUMNS,
        F.lit(batch).cast("long").alias("batch"),
        date_of("timestamp").alias("date"),
    )


def typed_schema(records: StructType) -> StructType:
    """The columns of `typed` for records whose values the connector decodes."""
    decoded = records[DECODED].dataType
    assert isinstance(decoded, StructType)
    own = {name.lower() for name in _TYPED_OWN.fieldNames()}
    for field in decoded.fields:
        if field.name.lower() in own:
            raise InvalidArgument(
                f"value_schema has a field {field.name!r}, which is a column of the archive's "
                'own; rename it, or keep the raw table alone with value_format = "raw"'
            )
    return StructType([*_TYPED_OWN.fields, *(StructField(f.name, f.dataType) for f in decoded)])


def typed_rows(records: DataFrame) -> DataFrame:
    return records.where(F.col(DECODE_ERROR).isNull() & F.col(DECODED).isNotNull()).select(
        date_of("timestamp").alias("_date"),
        *(F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")),
        F.col("key").alias("_key"),
        f"{DECODED}.*",
    )


def bad_rows(records: DataFrame) -> DataFrame:
    """Also a record without a value: `typed` has no row for it."""
    return records.where(F.col(DECODE_ERROR).isNotNull() | F.col(DECODED).isNull()).select(
        date_of("timestamp").alias("date"),
        "topic", "partition", "offset", "timestamp", "value",
        F.coalesce(DECODE_ERROR, F.lit("value is empty")).alias("problem"),
    )  # fmt: skip


def below(records: DataFrame, ends: dict[str, int]) -> DataFrame:
    """The records before the given ends, by "topic/partition"."""
    if not ends:
        return records.where(F.lit(False))
    pairs = [F.lit(part) for item in sorted(ends.items()) for part in item]
    end = F.try_element_at(
        F.create_map(*pairs), F.concat("topic", F.lit("/"), F.col("partition").cast("string"))
    )
    return records.where(F.col("offset") < F.coalesce(end, F.lit(0)))
