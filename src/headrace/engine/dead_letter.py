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

TOPIC: Final = "headrace-dlq-topic"
PARTITION: Final = "headrace-dlq-partition"
OFFSET: Final = "headrace-dlq-offset"
GROUP: Final = "headrace-dlq-group"
REASON: Final = "headrace-dlq-reason"
ERROR: Final = "headrace-dlq-error"
ATTEMPTS: Final = "headrace-dlq-attempts"
CREATED_AT: Final = "headrace-dlq-created-at"
FAILED_AT: Final = "headrace-dlq-failed-at"
# Which move made this copy, so that a recovery does not copy twice.
ORIGIN: Final = "headrace-origin"
REDRIVES: Final = "headrace-redrives"
REDRIVE_GROUP: Final = "headrace-redrive-group"

_STORY: Final = frozenset(
    (TOPIC, PARTITION, OFFSET, GROUP, REASON, ERROR, ATTEMPTS, CREATED_AT, FAILED_AT, ORIGIN)
)
# A redriven message is due at once.
_WAITS: Final = frozenset(("headrace-deliver-at", "headrace-delay-ms"))


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
        (TOPIC, story.topic.encode()),
        (PARTITION, b"%d" % story.partition),
        (OFFSET, b"%d" % record.offset),
        (GROUP, story.group.encode()),
        (REASON, story.reason.encode()),
        (ATTEMPTS, b"%d" % story.attempts),
        (CREATED_AT, b"%d" % record.timestamp_ms),
        (FAILED_AT, b"%d" % story.failed_at_ms),
        (ORIGIN, origin),
    ]
    if story.error is not None:
        headers.append((ERROR, story.error.encode("utf-8", "replace")))
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
        source=MessageId(text(TOPIC), number(PARTITION), number(OFFSET)),
        group=text(GROUP),
        reason=text(REASON),
        error=text(ERROR) if ERROR in found else None,
        attempts=number(ATTEMPTS),
        created_at_ms=number(CREATED_AT) or record.timestamp_ms,
        failed_at_ms=number(FAILED_AT),
        redrives=number(REDRIVES),
    )
