"""What a message may be, checked before it is a record.

Whoever makes batches asks here: the node for messages that come one by one, and a
producer of the SDK before it makes a batch that the node will not open.
"""

from __future__ import annotations

from headrace.core import limits
from headrace.core.errors import InvalidArgument, RecordTooLarge
from headrace.core.values import Outgoing
from headrace.record.attribute_headers import DEDUP_ID, check_dedup_id

# What a record costs beside its key, value and headers; a bound, not a count.
RECORD_OVERHEAD = 64
HEADER_OVERHEAD = 8


def check_message(message: Outgoing, topic: str, record_bytes_max: int, *, dedup: bool) -> int:
    """The record's size, or what is wrong with it. `dedup`: the topic drops duplicates."""
    value, key, headers, timestamp_ms, _ = message
    if value is not None and not isinstance(value, bytes):
        raise InvalidArgument(f"a value is bytes here, not {type(value).__name__}")
    size = RECORD_OVERHEAD + (0 if value is None else len(value))
    if key is not None:
        if not isinstance(key, bytes):
            raise InvalidArgument(f"a key is bytes here, not {type(key).__name__}")
        if len(key) > limits.KEY_BYTES_MAX:
            raise RecordTooLarge(f"a key has at most {limits.KEY_BYTES_MAX} bytes, not {len(key)}")
        size += len(key)
    if headers:
        if len(headers) > limits.HEADERS_MAX:
            raise InvalidArgument(
                f"a record has at most {limits.HEADERS_MAX} headers, not {len(headers)}"
            )
        block = sum(len(name) + len(content or b"") for name, content in headers)
        if block > limits.HEADER_BYTES_MAX:
            raise RecordTooLarge(
                f"headers have at most {limits.HEADER_BYTES_MAX} bytes together, not {block}"
            )
        for name, content in headers:
            if name == DEDUP_ID:
                _check_dedup_id(topic, content, dedup=dedup)
        size += block + HEADER_OVERHEAD * len(headers)
    if timestamp_ms is not None and not 0 <= timestamp_ms <= limits.TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"a timestamp is in ms since 1970, not {timestamp_ms}")
    if size - RECORD_OVERHEAD > record_bytes_max:
        raise too_large(topic, size - RECORD_OVERHEAD, record_bytes_max)
    return size


def _check_dedup_id(topic: str, dedup_id: bytes | None, *, dedup: bool) -> None:
    if not dedup:
        raise InvalidArgument(
            f"topic {topic!r} does not drop duplicates, so a dedup_id means nothing there; "
            "leave it out, or set dedup=true for the topic"
        )
    check_dedup_id(dedup_id)


def too_large(topic: str, size: int, record_bytes_max: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"the record has {size} bytes and topic {topic!r} takes at most {record_bytes_max}; raise "
        "record_bytes_max or store the payload elsewhere"
    )
