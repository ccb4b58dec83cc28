"""Dead letters: a given-up record, copied whole, with headers that tell its story.

The same headers bring it back. Where the record is still in its place, a redrive makes it
ready again there (`engine/revival.py`); else it copies the letter to the topic it came
from, marked for the one group in which it failed. Other queue groups pass the copy over;
a stream sees it as a new record.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from headrace.core.values import DeadLetter, Headers, MessageId
from headrace.record import NewRecord, Record
from headrace.record.attribute_headers import (
    DELAY,
    DELIVER_AT,
    DLQ_ATTEMPTS,
    DLQ_CREATED_AT,
    DLQ_ERROR,
    DLQ_FAILED_AT,
    DLQ_GROUP,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REASON,
    DLQ_TOPIC,
    ORIGIN,
    REDRIVE_GROUP,
    REDRIVES,
)

_STORY: Final = frozenset((
    DLQ_TOPIC, DLQ_PARTITION, DLQ_OFFSET, DLQ_GROUP, DLQ_REASON, DLQ_ERROR, DLQ_ATTEMPTS,
    DLQ_CREATED_AT, DLQ_FAILED_AT, ORIGIN,
))  # fmt: skip
# A redriven message is due at once.
_WAITS: Final = frozenset((DELIVER_AT, DELAY))


class Story(NamedTuple):
    topic: str
    partition: int
    group: str
    reason: str
    error: str | None
    attempts: int
    failed_at_ms: int
    # How often the record was redriven where it is; a copy says so itself.
    redrives: int = 0


class Origin(NamedTuple):
    topic_id: bytes
    partition: int
    group_id: int
    move: int
    offset: int


def origin_of(topic_id: bytes, partition: int, group_id: int, move: int, offset: int) -> bytes:
    return f"{topic_id.hex()}/{partition}/{group_id}/{move}/{offset}".encode()


def read_origin(record: Record) -> Origin | None:
    """Where a dead letter, or a redriven copy, was copied from. Anybody may write such a
    header, so what it says has to be looked up."""
    for name, value in record.headers:
        if name == ORIGIN and value is not None:
            topic_id, *numbers = value.split(b"/")
            is_whole = len(numbers) == 4 and all(
                each.isdigit() and len(each) < 20 for each in numbers
            )
            with contextlib.suppress(ValueError):
                if is_whole:
                    return Origin(bytes.fromhex(topic_id.decode("ascii")), *map(int, numbers))
    return None


def bury(record: Record, story: Story, origin: bytes) -> NewRecord:
    """The dead letter of a record."""
    gone = _STORY | {REDRIVES} if story.redrives else _STORY
    # The story comes first: of very many headers some are not read again.
    headers: list[tuple[str, bytes | None]] = [
        (DLQ_TOPIC, story.topic.encode()),
        (DLQ_PARTITION, b"%d" % story.partition),
        (DLQ_OFFSET, b"%d" % record.offset),
        (DLQ_GROUP, story.group.encode()),
        (DLQ_REASON, story.reason.encode()),
        (DLQ_ATTEMPTS, b"%d" % story.attempts),
        (DLQ_CREATED_AT, b"%d" % record.timestamp_ms),
        (DLQ_FAILED_AT, b"%d" % story.failed_at_ms),
        (ORIGIN, origin),
    ]
    if story.error is not None:
        headers.append((DLQ_ERROR, story.error.encode("utf-8", "replace")))
    if story.redrives:
        headers.append((REDRIVES, b"%d" % story.redrives))
    headers += [header for header in record.headers if header[0] not in gone]
    return NewRecord(record.key, record.value, tuple(headers), record.timestamp_ms)


def revive(record: Record, letter: DeadLetter, origin: bytes, now_ms: int) -> NewRecord:
    """The record that goes back to the topic it came from."""
    gone = _STORY | _WAITS | {REDRIVES, REDRIVE_GROUP}
    headers: Headers = (
        (REDRIVE_GROUP, letter.group.encode()),
        (REDRIVES, b"%d" % (letter.redrives + 1)),
        (ORIGIN, origin),
        *(header for header in record.headers if header[0] not in gone),
    )
    return NewRecord(record.key, record.value, headers, now_ms)


def read_letter(topic: str, partition: int, record: Record) -> DeadLetter:
    """What a record of a dead-letter topic tells. Whatever is missing, since
    anybody may write to such a topic, is empty."""
    found = {name: value for name, value in record.headers if value is not None}

    def text(name: str) -> str:
        return found.get(name, b"").decode("utf-8", "replace")

    def number(name: str) -> int:
        digits = found.get(name, b"")
        return int(digits) if digits.isdigit() and len(digits) < 20 else 0

    return DeadLetter(
        topic=topic,
        partition=partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(header for header in record.headers if header[0] not in _STORY),
        source=MessageId(text(DLQ_TOPIC), number(DLQ_PARTITION), number(DLQ_OFFSET)),
        group=text(DLQ_GROUP),
        reason=text(DLQ_REASON),
        error=text(DLQ_ERROR) if DLQ_ERROR in found else None,
        attempts=number(DLQ_ATTEMPTS),
        created_at_ms=number(DLQ_CREATED_AT) or record.timestamp_ms,
        failed_at_ms=number(DLQ_FAILED_AT),
        redrives=number(REDRIVES),
    )
