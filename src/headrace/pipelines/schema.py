"""The schemas of our tables: as words, as Spark's types, and as Arrow's.

    "at timestamp, labels map<string,string>, tags array<struct<key:string>>"

Words are read here and not by Spark, which needs a running JVM for it: a command
that only looks at a table should not have to start one.

Everything may be null, since whether a column ever is null is an accident of the
query that made it, and a table must take the next query too. Timestamps are UTC
in microseconds, whatever the session's time zone.

Rejected: pyspark's own conversion. It is internal, and its arguments change from
version to version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.core.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


def schema_of(words: str) -> StructType:
    """A table's schema from our own words for it."""
    from pyspark.sql.types import StructField, StructType

    fields = []
    for part in _split(words):
        name, kind = part.split(maxsplit=1)
        fields.append(StructField(name, _type_of(kind)))
    return StructType(fields)


def column_names(words: str) -> list[str]:
    """The columns that a schema in Spark's words has, as far as they can be told without
    Spark: `id BIGINT`, or `id: BIGINT`, and names in backticks."""
    found = []
    for part in _split(words):
        quoted = re.match(r"\s*`((?:[^`]|``)*)`", part)
        name = quoted[1].replace("``", "`") if quoted else re.split(r"[\s:]", part.strip())[0]
        found += [name] if name else []
    return found


def _type_of(words: str) -> DataType:
    from pyspark.sql import types as spark_types

    words = words.strip()
    plain: dict[str, type[DataType]] = {
        "string": spark_types.StringType,
        "binary": spark_types.BinaryType,
        "int": spark_types.IntegerType,
        "long": spark_types.LongType,
        "double": spark_types.DoubleType,
        "timestamp": spark_types.TimestampType,
    }
    if words in plain:
        return plain[words]()
    outer, _, inner = words.removesuffix(">").partition("<")
    parts = _split(inner)
    if outer == "array":
        return spark_types.ArrayType(_type_of(inner))
    if outer == "map":
        return spark_types.MapType(_type_of(parts[0]), _type_of(parts[1]))
    assert outer == "struct", f"{words!r} is not a type"
    pairs = [part.strip().split(":", 1) for part in parts]
    return spark_types.StructType(
        [spark_types.StructField(name, _type_of(kind)) for name, kind in pairs]
    )


def _split(words: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts, depth, is_quoted = [""], 0, False
    for character in words:
        is_quoted ^= character == "`"
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


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


def spark_schema(schema: pa.Schema) -> StructType:
    """The inverse of `arrow_schema`."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type(field.type)) for field in schema])


def spark_type(kind: pa.DataType) -> DataType:
    import pyarrow as pa
    from pyspark.sql import types as spark_types

    plain: dict[pa.DataType, type[DataType]] = {
        pa.string(): spark_types.StringType,
        pa.binary(): spark_types.BinaryType,
        pa.bool_(): spark_types.BooleanType,
        pa.int8(): spark_types.ByteType,
        pa.int16(): spark_types.ShortType,
        pa.int32(): spark_types.IntegerType,
        pa.int64(): spark_types.LongType,
        pa.float32(): spark_types.FloatType,
        pa.float64(): spark_types.DoubleType,
        pa.date32(): spark_types.DateType,
        pa.timestamp("us", tz="UTC"): spark_types.TimestampType,
    }
    if kind in plain:
        return plain[kind]()
    if pa.types.is_decimal(kind):
        return spark_types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return spark_types.ArrayType(spark_type(kind.value_type))
    if pa.types.is_map(kind):
        return spark_types.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return spark_types.StructType(
            [spark_types.StructField(field.name, spark_type(field.type)) for field in fields]
        )
    raise InvalidArgument(f"a file of the lake has a column of type {kind}, which is not ours")
