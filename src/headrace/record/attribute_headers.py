"""The headers that carry queue attributes: their names, bounds, and writing.

    attribute_headers(priority="high", delay_ms=60_000)
        -> (("headrace-priority", b"1"), ("headrace-delay-ms", b"60000"))

Writing is strict: our own callers get InvalidArgument before anything is stored.
Reading, in `attributes`, is lenient.

Rejected: one binary header for all of them. Ten bytes are not worth that a shell
script with a Kafka client cannot set a priority.
"""

from __future__ import annotations

from typing import Final

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.values import Headers

PREFIX: Final = "headrace-"
PRIORITY: Final = "headrace-priority"
DELIVER_AT: Final = "headrace-deliver-at"
DELAY: Final = "headrace-delay-ms"
TTL: Final = "headrace-ttl-ms"
MAX_ATTEMPTS: Final = "headrace-max-attempts"
VISIBILITY: Final = "headrace-visibility-ms"
DEDUP_ID: Final = "headrace-dedup-id"
REDRIVE_GROUP: Final = "headrace-redrive-group"
# What dead letters and redriven copies tell of where they come from.
DLQ_TOPIC: Final = "headrace-dlq-topic"
DLQ_PARTITION: Final = "headrace-dlq-partition"
DLQ_OFFSET: Final = "headrace-dlq-offset"
DLQ_GROUP: Final = "headrace-dlq-group"
DLQ_REASON: Final = "headrace-dlq-reason"
DLQ_ERROR: Final = "headrace-dlq-error"
DLQ_ATTEMPTS: Final = "headrace-dlq-attempts"
DLQ_CREATED_AT: Final = "headrace-dlq-created-at"
DLQ_FAILED_AT: Final = "headrace-dlq-failed-at"
# Which move made this copy, so that a recovery does not copy twice.
ORIGIN: Final = "headrace-origin"
REDRIVES: Final = "headrace-redrives"
# All that mean something to a node. Another one that begins like these is its publisher's.
MEANT: Final = frozenset((
    PRIORITY, DELIVER_AT, DELAY, TTL, MAX_ATTEMPTS, VISIBILITY, DEDUP_ID, REDRIVE_GROUP,
    DLQ_TOPIC, DLQ_PARTITION, DLQ_OFFSET, DLQ_GROUP, DLQ_REASON, DLQ_ERROR, DLQ_ATTEMPTS,
    DLQ_CREATED_AT, DLQ_FAILED_AT, ORIGIN, REDRIVES,
))  # fmt: skip

LANES: Final = ("critical", "high", "normal", "low", "background")
LANE_NORMAL: Final = 2

NUMBER_BOUNDS: Final = {
    DELIVER_AT: (0, limits.TIMESTAMP_MS_MAX),
    DELAY: (0, limits.TIMESTAMP_MS_MAX),
    TTL: (1, limits.TIMESTAMP_MS_MAX),
    MAX_ATTEMPTS: (1, limits.ATTEMPTS_MAX),
    VISIBILITY: (1, limits.VISIBILITY_MS_MAX),
}
LANE_OF: Final = {
    word.encode(): lane for lane, name in enumerate(LANES) for word in (name, str(lane))
}


def publisher_headers(headers: Headers) -> Headers:
    """As every door shows them: without those that mean something to a node."""
    for name, _ in headers:
        if name in MEANT:
            return tuple([each for each in headers if each[0] not in MEANT])
    return headers


def parse_priority(value: str | int) -> int:
    """The lane that a name or a number from 0 to 4 stands for."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(LANES):
        return value
    if isinstance(value, str):
        lane = LANE_OF.get(value.lower().encode(errors="replace"))
        if lane is not None:
            return lane
    raise InvalidArgument(
        f"priority must be one of {', '.join(LANES)} or 0 to {len(LANES) - 1}, not {value!r}"
    )


def attribute_headers(
    *,
    priority: str | int | None = None,
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
    ttl_ms: int | None = None,
    max_attempts: int | None = None,
    visibility_ms: int | None = None,
    dedup_id: bytes | None = None,
    redrive_group: str | None = None,
) -> tuple[tuple[str, bytes], ...]:
    """The headers that say this, in a fixed order; none for what is not given.

    InvalidArgument when a value is out of its range, or when a message is asked
    to wait both for a moment and for a delay.
    """
    if deliver_at_ms is not None and delay_ms is not None:
        raise InvalidArgument("give either deliver_at_ms or delay_ms, not both")
    headers: list[tuple[str, bytes]] = []
    if priority is not None:
        headers.append((PRIORITY, str(parse_priority(priority)).encode()))
    for name, argument, number in (
        (DELIVER_AT, "deliver_at_ms", deliver_at_ms),
        (DELAY, "delay_ms", delay_ms),
        (TTL, "ttl_ms", ttl_ms),
        (MAX_ATTEMPTS, "max_attempts", max_attempts),
        (VISIBILITY, "visibility_ms", visibility_ms),
    ):
        if number is not None:
            headers.append((name, _write_number(name, argument, number)))
    if dedup_id is not None:
        headers.append((DEDUP_ID, check_dedup_id(dedup_id)))
    if redrive_group is not None:
        headers.append((REDRIVE_GROUP, _write_group(redrive_group)))
    return tuple(headers)


# Callers need not be type-checked, so the writers take any object and look.


def _write_number(name: str, argument: str, number: object) -> bytes:
    low, high = NUMBER_BOUNDS[name]
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        raise InvalidArgument(
            f"{argument} must be a whole number from {low} to {high}, not {number!r}"
        )
    return b"%d" % number


def check_dedup_id(dedup_id: object) -> bytes:
    """InvalidArgument when it is none that a topic takes."""
    if not isinstance(dedup_id, bytes) or not 1 <= len(dedup_id) <= limits.DEDUP_ID_BYTES_MAX:
        size = f"{len(dedup_id)} bytes" if isinstance(dedup_id, bytes) else f"{dedup_id!r:.80}"
        raise InvalidArgument(
            f"dedup_id must be 1 to {limits.DEDUP_ID_BYTES_MAX} bytes, not {size}; of a longer one "
            "give a hash"
        )
    return dedup_id


def _write_group(group: object) -> bytes:
    if not isinstance(group, str) or not 1 <= len(group) <= limits.NAME_CHARACTERS_MAX:
        raise InvalidArgument(
            f"redrive_group must be 1 to {limits.NAME_CHARACTERS_MAX} characters, not {group!r}"
        )
    try:
        return group.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"redrive_group {group!r} is not valid Unicode") from error
