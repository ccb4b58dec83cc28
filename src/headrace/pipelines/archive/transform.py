"""The archive as functions of DataFrames.

    records ─┬─> raw      every record as it is, whatever its value
             ├─> typed    decoded values, a column for each field
             └─> bad      values that cannot be decoded, with the reason

Columns of `typed` that are not the value's own begin with an underscore, so that a
field may be called `offset`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructField, StructType

from headrace.core.errors import InvalidArgument
from headrace.pipelines.avro import AvroSchema, as_json, frame_problem, record_decoder
from headrace.pipelines.evolution import required
from headrace.pipelines.rollup.transform import date_of
from headrace.pipelines.schema import arrow_type, schema_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
# A decoded value, and the reason why there is none.
DECODED = "decoded"
DECODE_ERROR = "decode_error"
_CORRUPT = "_corrupt_record"

# Of change events: what happened to the row, and when.
OP = "change_op"
CHANGED_AT = "changed_at"

# Names that are used while changes of rows are put together.
_RESERVED = ("_deleted", "_row", "_file")
_EVENT_OWN = schema_of("_op string, _changed_at timestamp")
_TYPED_OWN = schema_of(
    "_date string, _topic string, _partition int, _offset long, _timestamp timestamp, _key binary"
)


def no_records(spark: SparkSession) -> DataFrame:
    """What tells the columns of values, without any."""
    return spark.createDataFrame([], "value binary")


def check_not_required(columns: str) -> None:
    """InvalidArgument when a column is NOT NULL, which Spark's decoding does not heed."""
    found = required(StructType.fromDDL(columns))
    if found:
        raise InvalidArgument(
            f"value_schema says NOT NULL of {', '.join(map(repr, found))}, but each column of the "
            "typed table may be null; leave NOT NULL out, and ask for values in the query"
        )


def check_can_be_stored(columns: str) -> None:
    """InvalidArgument when a column has a type that the lake's files have not."""
    wanted = StructType.fromDDL(columns)
    assert isinstance(wanted, StructType)
    for field in wanted.fields:
        try:
            arrow_type(field.dataType)
        except InvalidArgument:
            raise InvalidArgument(
                f"value_schema has a column {field.name!r} of type {field.dataType.simpleString()},"
                " which cannot be stored in the lake; say another type, such as TIMESTAMP or STRING"
            ) from None


def decode(records: DataFrame, columns: str, avro_schema: AvroSchema | None) -> DataFrame:
    """Adds `decoded`, with the columns given in Spark's words, and `decode_error`. A
    value that is null has neither."""
    wanted = StructType.fromDDL(columns)
    assert isinstance(wanted, StructType)
    found, error = parsed(records, wanted, avro_schema)
    return records.withColumns({DECODED: F.when(error.isNull(), found), DECODE_ERROR: error})


def parsed(
    records: DataFrame, columns: StructType, avro_schema: AvroSchema | None
) -> tuple[Column, Column]:
    """Each value as a struct, and the reason why it is none."""
    if avro_schema is None:
        text = F.try_validate_utf8(F.col("value").cast("string"))
    else:
        text = F.udf(_avro_text(avro_schema), "string", useArrow=True)("value")
    # Spark says by this column that a text is not JSON, or not of these types.
    found = F.from_json(text, StructType([*columns, StructField(_CORRUPT, StringType())]))
    is_object = F.startswith(F.ltrim(text), F.lit("{"))
    fits = is_object & found[_CORRUPT].isNull()
    kind, unreadable = "JSON", F.lit("value is not text")
    if avro_schema is not None:
        kind = "Avro"
        unreadable = F.coalesce(frame_problem(avro_schema), F.lit("value is not Avro"))
    error = F.when(
        F.col("value").isNotNull(),
        F.when(text.isNull(), unreadable)
        .when(~is_object, f"value is not a {kind} object")
        .when(~fits, f"value is not {kind} of the given columns"),
    )
    return F.when(fits, found.dropFields(_CORRUPT)), error


def null_is_bad(records: DataFrame) -> DataFrame:
    """Where a value that is null means nothing."""
    reason = F.when(F.col("value").isNull(), "value is empty")
    return records.withColumn(DECODE_ERROR, F.coalesce(F.col(DECODE_ERROR), reason))


def no_folder_is_bad(records: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """Where the typed table is partitioned by a date: logs write its year with four digits."""
    decoded = records.schema[DECODED].dataType
    assert isinstance(decoded, StructType)
    years = [F.to_date(F.lit(day)) for day in ("0001-01-01", "9999-12-31")]
    for name in partition_by:
        if name in decoded.names and isinstance(decoded[name].dataType, DateType):
            reason = F.when(
                ~F.col(DECODED)[name].between(*years),
                f"{name!r} is of no year from 1 to 9999, and the table is partitioned by it",
            )
            records = records.withColumn(DECODE_ERROR, F.coalesce(F.col(DECODE_ERROR), reason))
    return records


def _avro_text(schema: AvroSchema) -> Callable[[bytes | None], str | None]:
    decoder = record_decoder(schema)
    return lambda payload: as_json(decoder(payload))


def raw_rows(records: DataFrame, batch: int) -> DataFrame:
    return records.select(
        *RECORD_COLUMNS,
        F.lit(batch).cast("long").alias("batch"),
        date_of("timestamp").alias("date"),
    )


def typed_schema(records: StructType) -> StructType:
    """The columns of `typed` for records that are decoded."""
    decoded = records[DECODED].dataType
    assert isinstance(decoded, StructType)
    columns = [*_TYPED_OWN.fields, *(_EVENT_OWN.fields if OP in records.names else ())]
    own = {*(field.name.lower() for field in columns), *_RESERVED}
    for field in decoded.fields:
        if field.name.lower() in own:
            raise InvalidArgument(
                f"value_schema has a field {field.name!r}, which is a column of the archive's "
                'own; leave it out, or keep the raw table alone with value_format = "raw"'
            )
    return StructType([*columns, *(StructField(f.name, f.dataType) for f in decoded)])


def typed_rows(records: DataFrame) -> DataFrame:
    good = F.col(DECODE_ERROR).isNull() & F.col("value").isNotNull()
    columns = {"_date": date_of("timestamp"), **typed_columns(records)}
    return records.where(good).select(*(columns[name].alias(name) for name in columns))


def typed_columns(records: DataFrame) -> dict[str, Column]:
    """The columns of `typed` but for the date, of decoded records."""
    decoded = records.schema[DECODED].dataType
    assert isinstance(decoded, StructType)
    place = ("topic", "partition", "offset", "timestamp", "key")
    event = {"_op": F.col(OP), "_changed_at": F.col(CHANGED_AT)} if OP in records.columns else {}
    values = {name: F.col(DECODED)[name] for name in decoded.fieldNames()}
    return {**{f"_{name}": F.col(name) for name in place}, **event, **values}


def bad_rows(records: DataFrame) -> DataFrame:
    return records.where(F.col(DECODE_ERROR).isNotNull()).select(
        date_of("timestamp").alias("date"),
        "topic", "partition", "offset", "timestamp", "value",
        F.col(DECODE_ERROR).alias("problem"),
    )  # fmt: skip


def bad_unless_typed(records: DataFrame, typed: DataFrame) -> DataFrame:
    """The records that are not in `typed`, each with the reason why it is bad."""
    place = ("topic", "partition", "offset")
    there = typed.select(*(F.col(f"_{name}").alias(name) for name in place))
    reason = F.coalesce(F.col(DECODE_ERROR), F.lit("value did not fit the columns of before"))
    missing = records.join(there, list(place), "left_anti")
    # A deletion is in neither table.
    wrong = F.col("value").isNotNull() | F.col(DECODE_ERROR).isNotNull()
    return missing.where(wrong).withColumn(DECODE_ERROR, reason)


def low_us(records: DataFrame) -> int | None:
    """The least timestamp, in microseconds."""
    [[least]] = records.agg(F.min(F.unix_micros("timestamp"))).collect()
    found: int | None = least
    return found


def below(records: DataFrame, ends: dict[str, int]) -> DataFrame:
    """The records before the given ends, by "topic/partition"."""
    return records.where(F.col("offset") < _end(ends))


def of_topic(records: DataFrame, topic: str) -> DataFrame:
    return records.where(F.col("topic") == topic)


def from_on(records: DataFrame, ends: dict[str, int]) -> DataFrame:
    """The others: those at the ends and after them."""
    return records.where(F.col("offset") >= _end(ends))


def _end(ends: dict[str, int]) -> Column:
    """The end of a record's partition; 0 where none is given."""
    if not ends:
        return F.lit(0)
    pairs = [F.lit(part) for item in sorted(ends.items()) for part in item]
    place = F.concat("topic", F.lit("/"), F.col("partition").cast("string"))
    return F.coalesce(F.try_element_at(F.create_map(*pairs), place), F.lit(0))


def ends(records: DataFrame) -> dict[str, int]:
    """The offset behind the last record, by "topic/partition"."""
    found = records.groupBy("topic", "partition").agg((F.max("offset") + 1).alias("end"))
    return {f"{row.topic}/{row.partition}": row.end for row in found.collect()}
