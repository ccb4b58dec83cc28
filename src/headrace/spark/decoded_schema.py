"""The columns of decoded values, as Spark's DDL.

Avro's by `avro_schema`. Protobuf's are those of the same name; enums are STRING, map
fields ARRAY<STRUCT<key, value>>, whole numbers without a sign what holds them.
Whatever has no counterpart is refused by name when the query is planned.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.spark.avro_schema import NESTING_MAX, avro_ddl, no_type, parse_avro
from headrace.spark.decoding import message_class
from headrace.spark.decoding_options import Decoding

# Protobuf's numbers for types of fields.
_PROTOBUF: Final = {
    1: "DOUBLE", 2: "FLOAT", 3: "BIGINT", 4: "BIGINT", 5: "INT", 6: "BIGINT", 7: "BIGINT",
    8: "BOOLEAN", 9: "STRING", 12: "BINARY", 13: "BIGINT", 14: "STRING", 15: "INT", 16: "BIGINT",
    17: "INT", 18: "BIGINT",
}  # fmt: skip


def decoded_ddl(decoding: Decoding) -> str:
    """What stands between the brackets of STRUCT<...>."""
    if decoding.format == "json":
        return decoding.schema
    if decoding.format == "avro":
        return avro_ddl(parse_avro(decoding.schema))
    return _message_fields(message_class(decoding).DESCRIPTOR, 0)


def _message_fields(message: Any, depth: int) -> str:
    if depth > NESTING_MAX:
        raise no_type(f"{message.full_name!r}, which contains itself,")
    return ", ".join(f"`{field.name}`: {_field_type(field, depth)}" for field in message.fields)


def _field_type(field: Any, depth: int) -> str:
    if field.message_type is not None:
        one = f"STRUCT<{_message_fields(field.message_type, depth + 1)}>"
    else:
        one = _PROTOBUF[field.type]
    return f"ARRAY<{one}>" if field.is_repeated else one
