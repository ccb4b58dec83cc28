"""The columns, as Spark's and as Arrow's.

Those of Spark's Kafka source, by the same names and types, and two more when values
are decoded. The schema is given to Spark as DDL: it parses the user's own part of it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from headrace.core.errors import InvalidOption
from headrace.spark.decoded_schema import decoded_ddl
from headrace.spark.decoding_options import DECODE_ERROR, DECODED
from headrace.spark.options import Shape
from headrace.spark.view_schema import VIEW_DDL

_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
# What Arrow reads from JSON as Spark would, beside structs and arrays of them.
_FROM_JSON: Final = (
    BooleanType, IntegralType, FractionalType, StringType, CharType, VarcharType,
    TimestampType, TimestampNTZType,
)  # fmt: skip


def table_ddl(shape: Shape) -> str:
    if shape.view != "stream":
        return VIEW_DDL[shape.view]
    columns = [f"{name} {_TYPES[name]}" for name in shape.columns]
    if shape.decoding is not None:
        columns.append(f"{DECODED} STRUCT<{decoded_ddl(shape.decoding)}>")
        if not shape.decoding.to_dead_letters:
            columns.append(f"{DECODE_ERROR} STRING")
    return ", ".join(columns)


def column_names(shape: Shape) -> list[str]:
    names = list(shape.columns)
    if shape.decoding is not None:
        names.append(DECODED)
        if not shape.decoding.to_dead_letters:
            names.append(DECODE_ERROR)
    return names


def arrow_schema(shape: Shape, schema: StructType) -> pa.Schema:
    """What Arrow batches look like. InvalidOption when the user gave a schema of their own
    that has other columns."""
    names = column_names(shape)
    if schema.fieldNames() != names:
        raise InvalidOption(
            f"the schema has columns {', '.join(schema.fieldNames())}, and this read gives "
            f"{', '.join(names)}; leave schema() out, and choose by option 'columns'"
        )
    if shape.decoding is not None and shape.decoding.format == "json":
        _check_json_types(schema[DECODED].dataType, "")
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        raise InvalidOption(
            f"option 'valueSchema' has a type that is not decoded to here ({error}); make it "
            "STRING and convert it in Spark"
        ) from None


def _check_json_types(type: DataType, where: str) -> None:
    """InvalidOption for what Arrow does not read from JSON as Spark would."""
    if isinstance(type, StructType):
        names = type.fieldNames()
        for field in type:
            if names.count(field.name) > 1:
                raise InvalidOption(
                    f"option 'valueSchema' has {field.name!r} twice in one struct; keep one"
                )
            _check_json_types(field.dataType, f"{where}.{field.name}".lstrip("."))
    elif isinstance(type, ArrayType):
        _check_json_types(type.elementType, f"{where}[]")
    elif isinstance(type, MapType):
        # To make it STRING would make every record bad: an object is no string.
        raise InvalidOption(
            f"option 'valueSchema': {where} is a MAP, which JSON is not decoded to here; make it a "
            "STRUCT of the keys that you need, or leave it out and take it from the bytes: "
            f"from_json(CAST(value AS STRING), '{where.split('.')[0]} MAP<STRING, STRING>')"
        )
    elif isinstance(type, DateType):
        raise InvalidOption(
            f"option 'valueSchema': {where} is a DATE, which JSON is not decoded to here; make it "
            f"STRING, and cast it in Spark: CAST(decoded.{where} AS DATE)"
        )
    elif isinstance(type, BinaryType):
        raise InvalidOption(
            f"option 'valueSchema': {where} is BINARY, which JSON is not decoded to here; make it "
            f"STRING, and convert it in Spark: unbase64(decoded.{where})"
        )
    elif not isinstance(type, _FROM_JSON):
        raise InvalidOption(
            f"option 'valueSchema': {where} is {type.simpleString().upper()}, which JSON is not "
            "decoded to here; make it STRING and convert it in Spark, or leave it out and take it "
            "from the bytes in 'value'"
        )
