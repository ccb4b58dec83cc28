"""The columns of views, as DDL."""

from __future__ import annotations

from typing import Final

_HEADERS: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

VIEW_DDL: Final = {
    "dead-letters": (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, groupName STRING, "
        "reason STRING, error STRING, attempts INT, redrives INT, createdAt TIMESTAMP, "
        f"failedAt TIMESTAMP, letterPartition INT, letterOffset BIGINT, {_HEADERS}"
    ),
    "delayed": (
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
        f"timestamp TIMESTAMP, deliverAt TIMESTAMP, {_HEADERS}"
    ),
}
