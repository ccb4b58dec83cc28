"""The columns, as Spark's and as Arrow's.

Those of Spark's Kafka source, by the same names and types, and two more when values
are decoded. The schema is given to Spark as DDL: it parses the user's own part of it.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.core.errors import InvalidOption
from headrace.spark.decoding_options import DECODE_ERROR, DECODED
from headrace.spark.options import Shape

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


def table_ddl(shape: Shape, decoded_ddl: str | None) -> str:
    columns = [f"{name} {_TYPES[name]}" for name in shape.columns]
    if shape.decoding is not None:
        columns.append(f"{DECODED} STRUCT<{decoded_ddl}>")
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
    """What batches look like. InvalidOption when the user gave a schema of their own
    that has other columns."""
    names = column_names(shape)
    if schema.fieldNames() != names:
        raise InvalidOption(
            f"the schema has columns {', '.join(schema.fieldNames())}, and this read gives "
            f"{', '.join(names)}; leave schema() out, and choose by option 'columns'"
        )
    return to_arrow_schema(schema, timezone="UTC")
