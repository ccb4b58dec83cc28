"""The columns of decoded values, as Spark's DDL.

    Avro                         Spark
    boolean int long float ...   BOOLEAN INT BIGINT FLOAT ...
    record, array, map           STRUCT, ARRAY, MAP<STRING, ...>
    ["null", x]                  x
    timestamp-millis/-micros     TIMESTAMP;  date: DATE;  decimal(p, s): DECIMAL(p, s)

Protobuf: the same by type; enums are STRING, map fields ARRAY<STRUCT<key, value>>.
Whatever has no counterpart is refused by name when the query is planned.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.core.errors import InvalidOption
from headrace.spark.decoding import message_class, parse_avro
from headrace.spark.decoding_options import Decoding

_AVRO: Final = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "bytes": "BINARY", "string": "STRING",
}  # fmt: skip
_LOGICAL: Final = {
    "timestamp-millis": "TIMESTAMP", "timestamp-micros": "TIMESTAMP", "date": "DATE",
    "uuid": "STRING",
}  # fmt: skip
# Protobuf's numbers for types of fields.
_PROTOBUF: Final = {
    1: "DOUBLE", 2: "FLOAT", 3: "BIGINT", 4: "BIGINT", 5: "INT", 6: "BIGINT", 7: "BIGINT",
    8: "BOOLEAN", 9: "STRING", 12: "BINARY", 13: "BIGINT", 14: "STRING", 15: "INT", 16: "BIGINT",
    17: "INT", 18: "BIGINT",
}  # fmt: skip
_NESTING_MAX: Final = 10


def decoded_ddl(decoding: Decoding) -> str:
    """What stands between the brackets of STRUCT<...>."""
    if decoding.format == "json":
        return decoding.schema
    if decoding.format == "avro":
        schema = parse_avro(decoding.schema)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise InvalidOption("option 'valueSchema': an Avro schema of type record is needed")
        return _AvroTypes().fields(schema)
    return _message_fields(message_class(decoding).DESCRIPTOR, 0)


class _AvroTypes:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._depth = 0

    def fields(self, record: dict[str, Any]) -> str:
        self._named[record["name"]] = record
        self._depth += 1
        if self._depth > _NESTING_MAX:
            raise _unknown(f"{record['name']!r}, which contains itself")
        found = ", ".join(
            f"`{field['name']}`: {self.type_of(field['type'])}" for field in record["fields"]
        )
        self._depth -= 1
        return found

    def type_of(self, schema: Any) -> str:
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise _unknown("a union of more than one type beside null")
            return self.type_of(others[0])
        if isinstance(schema, str):
            if schema in _AVRO:
                return _AVRO[schema]
            if schema in self._named:
                return self.type_of(self._named[schema])
            raise _unknown(repr(schema))
        kind = schema["type"]
        logical = schema.get("logicalType")
        if logical == "decimal":
            return f"DECIMAL({schema['precision']}, {schema.get('scale', 0)})"
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if kind == "record":
            return f"STRUCT<{self.fields(schema)}>"
        if kind == "array":
            return f"ARRAY<{self.type_of(schema['items'])}>"
        if kind == "map":
            return f"MAP<STRING, {self.type_of(schema['values'])}>"
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
            return "STRING" if kind == "enum" else "BINARY"
        return self.type_of(kind)


def _message_fields(message: Any, depth: int) -> str:
    if depth > _NESTING_MAX:
        raise _unknown(f"{message.full_name!r}, which contains itself")
    return ", ".join(f"`{field.name}`: {_field_type(field, depth)}" for field in message.fields)


def _field_type(field: Any, depth: int) -> str:
    if field.message_type is not None:
        one = f"STRUCT<{_message_fields(field.message_type, depth + 1)}>"
    else:
        one = _PROTOBUF[field.type]
    return f"ARRAY<{one}>" if field.is_repeated else one


def _unknown(what: str) -> InvalidOption:
    return InvalidOption(f"option 'valueSchema': {what} has no type in Spark; decode it there")
