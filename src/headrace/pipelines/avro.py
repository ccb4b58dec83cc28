"""Values in Avro, decoded where the executors are.

    0 | id of the schema, 4 bytes | the value      as clients of a schema registry write it

Bytes of one schema may be read by another, with values in the wrong fields, and only the
id tells the two apart. So a framed value is taken when its id is one of those that were
given, and a plain one when none was.

Spark's own Avro is a jar from Maven; fastavro comes with pip and is as strict.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.core.errors import InvalidArgument
from headrace.core.extras import require

if TYPE_CHECKING:
    from pyspark.sql import Column

_FRAME_BYTES = 5


class AvroSchema(NamedTuple):
    record: dict[str, Any]
    # Those that the registry gave to schemas which `record` reads; none for plain values.
    ids: tuple[int, ...] = ()


def check_schema_ids(ids: Sequence[int], key: str, format: str) -> None:
    """InvalidArgument unless these can be ids of Avro schemas; `key` is the setting that
    says which format values have."""
    if ids and format != "avro":
        raise InvalidArgument(
            f'avro_schema_ids is given but {key} is "{format}"; say "avro", or remove it'
        )
    for id in ids:
        if not 0 <= id < 2**31:
            raise InvalidArgument(f"avro_schema_ids has {id}, which is no id of a schema")


def read_avro_schema(path: str, ids: Sequence[int] = ()) -> AvroSchema:
    """InvalidArgument names the file when it is no Avro schema of a record."""
    schema_module = require("fastavro.schema", "pipelines")
    try:
        schema = schema_module.load_schema(path)
    except Exception as error:
        raise InvalidArgument(f"avro_schema {path!r} is no Avro schema: {error}") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidArgument(f"avro_schema {path!r} must describe a record")
    return AvroSchema(schema, tuple(sorted(set(ids))))


def record_decoder(schema: AvroSchema) -> Callable[[bytes | None], dict[str, Any] | None]:
    def decode(payload: bytes | None) -> dict[str, Any] | None:
        from fastavro import schemaless_reader

        if payload is None:
            return None
        source = io.BytesIO(payload)
        if schema.ids:
            frame = source.read(_FRAME_BYTES)
            if frame[:1] != b"\0" or int.from_bytes(frame[1:], "big") not in schema.ids:
                return None
        try:
            record = schemaless_reader(source, schema.record, None)
        except Exception:
            # Bytes from outside can break a decoder in any way; whatever the
            # way, it means that they are not of this schema.
            return None
        return record if source.read(1) == b"" and isinstance(record, dict) else None

    return decode


def frame_problem(schema: AvroSchema) -> Column:
    """What is wrong with the frame of a `value` that could not be decoded; null when it is
    not the frame."""
    from pyspark.sql import functions as F

    value = F.col("value")
    is_framed = (F.length(value) > _FRAME_BYTES) & (F.hex(F.substring(value, 1, 1)) == "00")
    id = F.conv(F.hex(F.substring(value, 2, 4)), 16, 10)
    if not schema.ids:
        maybe = F.lit("value is not Avro; if it is framed, its schema has id ")
        return F.when(is_framed, F.concat(maybe, id, F.lit(", for avro_schema_ids")))
    known = ", ".join(map(str, schema.ids))
    says = (F.lit("value's schema has id "), id, F.lit(f", and avro_schema_ids is {known}"))
    is_known = id.isin(*map(str, schema.ids))
    not_framed = F.lit("value is not framed as a schema registry does")
    return F.when(~is_framed, not_framed).when(~is_known, F.concat(*says))


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
