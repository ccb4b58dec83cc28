"""Metrics in Avro, decoded where the executors are.

Spark's own Avro is a jar from Maven; fastavro comes with pip and is as strict. The
result has texts for time and value, as JSON's parser gives them, so that one set
of checks holds for both.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from datetime import datetime
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


def metric_decoder(schema: dict[str, Any]) -> Callable[[bytes | None], dict[str, Any] | None]:
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
                return _metric(record)
        return None

    return decode


def _starts(payload: bytes) -> tuple[int, ...]:
    if len(payload) > _REGISTRY_HEADER.size and payload[0] == 0:
        return (_REGISTRY_HEADER.size, 0)
    return (0,)


def _metric(record: dict[str, Any]) -> dict[str, Any]:
    labels = record.get("labels")
    return {
        "series": _text(record.get("series")),
        "name": _text(record.get("name")),
        "labels": {str(key): _text(value) for key, value in labels.items()}
        if isinstance(labels, dict)
        else None,
        "ts": _text(record.get("ts")),
        "value": _text(record.get("value")),
    }


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.isoformat() if isinstance(value, datetime) else str(value)
