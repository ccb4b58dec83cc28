"""How values are decoded, if at all.

valueFormat   raw | json | avro | protobuf
valueSchema   json: DDL; avro: the schema's JSON; protobuf: a descriptor set,
              as the path of a file on the driver or in base64
valueMessage  protobuf: the message's full name
valueFraming  none, or confluent for values behind a registry's five bytes
valueSchemaId the ids that the registry gave to schemas that `valueSchema` reads
timeZone      json: the zone of times that do not name one; the session's, unless given
badRecords    column: the reason stands beside the row, in `decodeError`
              dead-letters: the record goes to the topic's dead letters instead
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.core.errors import InvalidOption
from headrace.spark.option_values import choice

FORMATS = ("raw", "json", "avro", "protobuf")
_OF_DECODED = (
    "valueSchema", "valueMessage", "valueFraming", "valueSchemaId", "timeZone", "badRecords",
)  # fmt: skip
DECODED = "decoded"
DECODE_ERROR = "decodeError"


class Decoding(NamedTuple):
    format: str
    schema: str
    message: str | None
    framing: str
    to_dead_letters: bool
    # What option 'timeZone' says, and what holds where neither it nor the session does.
    time_zone: str | None = None
    driver_zone: str = "UTC"
    # Of framed values, those that the schema reads.
    schema_ids: tuple[int, ...] = ()


def parse_decoding(given: Mapping[str, str]) -> Decoding | None:
    """None when values stay as they are."""
    format = choice(given, "valueFormat", FORMATS)
    if format == "raw":
        for name in _OF_DECODED:
            if name in given:
                raise InvalidOption(
                    f"option {name!r} needs 'valueFormat'; set it to json, avro or protobuf"
                )
        return None
    schema = given.get("valueSchema", "").strip()
    if not schema:
        raise InvalidOption(
            f"option 'valueSchema' is missing: valueFormat {format!r} needs it; set it to "
            + {
                "json": "DDL such as 'id BIGINT, name STRING'",
                "avro": "the Avro schema's JSON",
                "protobuf": "the path of a descriptor set, or its bytes in base64",
            }[format]
        )
    if format == "protobuf" and "valueMessage" not in given:
        raise InvalidOption(
            "option 'valueMessage' is missing: set it to the full name of the message"
        )
    if format != "protobuf" and "valueMessage" in given:
        raise InvalidOption("option 'valueMessage' is for valueFormat 'protobuf'; leave it out")
    framing = choice(given, "valueFraming", ("none", "confluent"))
    schema_ids = _schema_ids(given, framing)
    if format == "protobuf":
        schema = _descriptors(schema)
    bad = choice(given, "badRecords", ("column", "dead-letters"))
    zone = given.get("timeZone", "").strip() or None
    if zone is not None:
        _check_zone(zone, format)
    return Decoding(
        format,
        schema,
        given.get("valueMessage"),
        framing,
        bad == "dead-letters",
        zone,
        _driver_zone() if format == "json" else "UTC",
        schema_ids,
    )


def _schema_ids(given: Mapping[str, str], framing: str) -> tuple[int, ...]:
    """Two schemas may have the same bytes for other fields, and only the id tells them
    apart. So it has to be said which one was given."""
    text = given.get("valueSchemaId")
    if framing == "none":
        if text is not None:
            raise InvalidOption(
                "option 'valueSchemaId' is of framed values; set 'valueFraming' to confluent, or "
                "leave it out"
            )
        return ()
    if text is None:
        raise InvalidOption(
            "option 'valueSchemaId' is missing: set it to the id that the registry gave to the "
            "schema, or to several with commas where the schema reads them all; those of a "
            "topic's values are conv(hex(substring(value, 2, 4)), 16, 10)"
        )
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**31 for part in parts):
        raise InvalidOption(
            f"option 'valueSchemaId' is {text!r}; give one id or several with commas, as in 7 or "
            "7,12"
        )
    return tuple(sorted(set(map(int, parts))))


def _check_zone(zone: str, format: str) -> None:
    from headrace.spark.zones import zone_named

    if format != "json":
        raise InvalidOption("option 'timeZone' is for valueFormat 'json'; leave it out")
    zone_named(zone)


def _driver_zone() -> str:
    # What reads values as they are has no use for it.
    from headrace.spark.zones import zone_of_machine

    return zone_of_machine()


def _descriptors(schema: str) -> str:
    """The descriptor set in base64, read from its file if that is what was given:
    executors need not have the file."""
    if os.path.isfile(schema):
        return base64.b64encode(Path(schema).read_bytes()).decode()
    try:
        base64.b64decode(schema, validate=True)
    except ValueError:
        raise InvalidOption(
            f"option 'valueSchema': {schema!r} is neither a file here nor base64; make one with: "
            "protoc --include_imports --descriptor_set_out=FILE"
        ) from None
    return schema
