"""Values in Avro, decoded where the executors are.

Spark's own Avro is a jar from Maven; fastavro comes with pip and is as strict.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any

from headrace.core.errors import InvalidArgument
from headrace.core.extras import require

# A client of a schema registry writes a zero and the schema's number first.
_REGISTRY_HEADER = struct.Struct(">bI")


def read_avro_schema(path: str) -> dict[str, Any]:
    """InvalidArgument names the file when it is no Avro schema of a record."""
    schema_module = require("fastavro.schema", "pipelines")
    try:
        schema = schema_module.load_schema(path)
    except Exception as error:
        raise InvalidArgument(f"avro_schema {path!r} is no Avro schema: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidArgument(f"avro_schema {path!r} must describe a record")
    return schema


def record_decoder(schema: dict[str, Any]) -> Callable[[bytes | None], dict[str, Any] | None]:
    def decode(payload: bytes | None) -> dict[str, Any] | None:
        from fastavro import schemaless_reader

        if payload is None:
            return None
        for start in _starts(payload):
            source = io.BytesIO(payload[start:])
            try:
                record = schemaless_reader(source, schema, None)
            except Exception:
                # Bytes from outside can break a decoder in any way; whatever the
                # way, it means that they are not of this schema.
                continue
            if source.read(1) == b"" and isinstance(record, dict):
                return record
        return None

    return decode


def _starts(payload: bytes) -> tuple[int, ...]:
    if len(payload) > _REGISTRY_HEADER.size and payload[0] == 0:
        return (_REGISTRY_HEADER.size, 0)
    return (0,)


def as_text(value: Any) -> str | None:
    if value is None:
        return None
    return value.isoformat() if isinstance(value, datetime) else str(value)


def as_json(record: dict[str, Any] | None) -> str | None:
    """A decoded record as JSON; what JSON has no word for becomes text."""
    return None if record is None else json.dumps(record, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if isinstance(value, date | time) else str(value)
