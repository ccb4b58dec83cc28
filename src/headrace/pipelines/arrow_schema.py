"""Spark's types as Arrow's: what the files of a table have.

Everything may be null, since whether a column ever is null is an accident of the
query that made it, and a table must take the next query too. Timestamps are UTC
in microseconds, whatever the session's time zone.

Rejected: pyspark's own conversion. It is internal, and its arguments change from
version to version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(field.name, arrow_type(field.dataType)) for field in schema.fields])


def arrow_type(kind: DataType) -> pa.DataType:
    import pyarrow as pa
    from pyspark.sql import types as spark_types

    plain: dict[type[DataType], pa.DataType] = {
        spark_types.StringType: pa.string(),
        spark_types.BinaryType: pa.binary(),
        spark_types.BooleanType: pa.bool_(),
        spark_types.ByteType: pa.int8(),
        spark_types.ShortType: pa.int16(),
        spark_types.IntegerType: pa.int32(),
        spark_types.LongType: pa.int64(),
        spark_types.FloatType: pa.float32(),
        spark_types.DoubleType: pa.float64(),
        spark_types.DateType: pa.date32(),
        spark_types.TimestampType: pa.timestamp("us", tz="UTC"),
    }
    if type(kind) in plain:
        return plain[type(kind)]
    if isinstance(kind, spark_types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark_types.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, spark_types.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, spark_types.StructType):
        return pa.struct([(field.name, arrow_type(field.dataType)) for field in kind.fields])
    raise InvalidArgument(
        f"a column of type {kind.simpleString()} cannot be stored in the lake; cast it to another"
    )
