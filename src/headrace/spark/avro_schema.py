"""A record's Avro schema, and its fields as Spark's DDL.

    Avro                           Spark
    boolean int long float ...     BOOLEAN INT BIGINT FLOAT ...
    record, array, map             STRUCT, ARRAY, MAP<STRING, ...>
    enum, fixed                    STRING, BINARY
    ["null", x]                    x
    timestamp-millis/-micros       TIMESTAMP
    local-timestamp-millis/-micros TIMESTAMP_NTZ
    date, decimal(p, s)            DATE, DECIMAL(p, s)

Any other logical type is left out, and its value is what it is stored as: a time of the
day is an INT, a UUID a STRING. So does Spark's own from_avro.
"""

from __future__ import annotations

import json
from typing import Any, Final

from headrace.core.errors import InvalidOption

_TYPES: Final = {
    "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "bytes": "BINARY", "string": "STRING",
}  # fmt: skip
_LOGICAL: Final = {
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
    ("int", "date"): "DATE",
}
_DECIMALS: Final = (("bytes", "decimal"), ("fixed", "decimal"))
# Of Spark's decimals.
_DIGITS_MAX: Final = 38
NESTING_MAX: Final = 10


def parse_avro(text: str) -> Any:
    """With the full name wherever a type is named or referred to. InvalidOption for what
    is no schema of a record."""
    from fastavro import parse_schema

    try:
        schema = parse_schema(_with_known_logical_types(json.loads(text)))
    except Exception as error:
        # Of what is no schema it raises anything: KeyError, TypeError and its own.
        what = f"{type(error).__name__}: {error}"[:300]
        raise InvalidOption(f"option 'valueSchema' is not an Avro schema ({what})") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidOption("option 'valueSchema': an Avro schema of type record is needed")
    return schema


def _with_known_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_known_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_known_logical_types(value) for name, value in schema.items()}
    # A list, since these may be anything, and what cannot be hashed is in no dict.
    if (found.get("type"), found.get("logicalType")) not in [*_LOGICAL, *_DECIMALS]:
        found.pop("logicalType", None)
    return found


def avro_ddl(schema: Any) -> str:
    """What stands between the brackets of STRUCT<...>."""
    return _Types().fields(schema, "")


class _Types:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}
        self._depth = 0

    def fields(self, record: dict[str, Any], path: str) -> str:
        self._named[record["name"]] = record
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise no_type(f"{record['name']!r}, which contains itself,")
        found = []
        for field in record["fields"]:
            name = field["name"]
            found.append(f"`{name}`: {self._type(field['type'], f'{path}.{name}'.lstrip('.'))}")
        self._depth -= 1
        return ", ".join(found)

    def _type(self, schema: Any, path: str) -> str:
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise no_type(f"{path!r}, a union of more than one type beside null,")
            return self._type(others[0], path)
        if isinstance(schema, dict):
            return self._complex_type(schema, path)
        if schema in self._named:
            return self._type(self._named[schema], path)
        if schema in _TYPES:
            return _TYPES[schema]
        raise no_type(f"{path!r}, which is always {schema},")

    def _complex_type(self, schema: dict[str, Any], path: str) -> str:
        kind = schema["type"]
        if kind in ("enum", "fixed"):
            self._named[schema["name"]] = schema
        logical = (kind, schema.get("logicalType"))
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if logical in _DECIMALS:
            return _decimal(schema, path)
        match kind:
            case "record":
                return f"STRUCT<{self.fields(schema, path)}>"
            case "array":
                return f"ARRAY<{self._type(schema['items'], f'{path}[]')}>"
            case "map":
                return f"MAP<STRING, {self._type(schema['values'], f'{path}[]')}>"
            case "enum":
                return "STRING"
            case "fixed":
                return "BINARY"
        return self._type(kind, path)


def _decimal(schema: dict[str, Any], path: str) -> str:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not precision:
        raise no_type(f"{path!r}, a decimal without its precision,")
    if precision > _DIGITS_MAX:
        raise no_type(f"{path!r}, a decimal of {precision} digits,")
    return f"DECIMAL({precision}, {scale})"


def no_type(what: str) -> InvalidOption:
    return InvalidOption(f"option 'valueSchema': {what} has no type in Spark; decode it there")
