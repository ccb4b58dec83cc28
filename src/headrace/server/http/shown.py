"""From the values that the calls give to the bodies of answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from msgspec import UNSET

from headrace.core.errors import InvalidArgument
from headrace.core.limits import TIMESTAMP_MS_MAX
from headrace.core.values import (
    DeadLetter,
    DelayedMessage,
    Delivery,
    GroupInfo,
    MessageId,
    Outgoing,
    Published,
    PublishedRuns,
    StreamRecord,
    TopicInfo,
)
from headrace.record.attribute_headers import (
    LANE_OF,
    LANES,
    PRIORITY,
    attribute_headers,
    publisher_headers,
)
from headrace.record.content_type import CONTENT_TYPE
from headrace.wire.http import bodies, group_bodies
from headrace.wire.http.content import (
    shown_bytes,
    shown_headers,
    shown_value,
    stored_bytes,
    stored_headers,
    stored_value,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Messages of one answer share theirs, more often than not.
@lru_cache(maxsize=256)
def moment(milliseconds: int | None) -> str | None:
    """ISO 8601 in UTC; the first or the last moment that can be written for what lies
    beyond."""
    if milliseconds is None:
        return None
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        at = (datetime.min if milliseconds < 0 else datetime.max).replace(tzinfo=UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_of(milliseconds: int) -> str:
    return moment(milliseconds) or ""


def milliseconds_at(name: str, given: str | float) -> int:
    """A moment that somebody gave, or InvalidArgument that names it."""
    if isinstance(given, str):
        try:
            at = datetime.fromisoformat(given)
        except ValueError as error:
            raise InvalidArgument(
                f"{name} is a moment as in 2030-01-31T12:00:00Z, or seconds since 1970, "
                f"not {given!r}"
            ) from error
        if at.tzinfo is None:
            raise InvalidArgument(f"{name} needs a zone, as in {given}Z")
        milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
    else:
        milliseconds = _milliseconds(name, given)
    if not 0 <= milliseconds <= TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"{name} must lie after 1970, not at {given}")
    return milliseconds


def milliseconds_in(name: str, seconds: float | None) -> int | None:
    return None if seconds is None else _milliseconds(name, seconds)


def _milliseconds(name: str, seconds: float) -> int:
    try:
        return round(seconds * 1000)
    except (OverflowError, ValueError) as error:
        raise InvalidArgument(f"{name} is not a time: {seconds}") from error


# In.


def outgoing(message: bodies.NewMessage) -> Outgoing:
    return outgoing_of(message, *stored_value(message.value, message.encoding))


def outgoing_of(
    message: bodies.NewMessage, value: bytes | None, content_type: bytes | None
) -> Outgoing:
    """The message with this value in place of its own."""
    headers = stored_headers(message.headers) if message.headers else ()
    if content_type is not None and CONTENT_TYPE not in message.headers:
        headers = (*headers, (CONTENT_TYPE, content_type))
    key = message.key
    return Outgoing(
        value,
        None if key is None else stored_bytes(
            "key", key, message.key_encoding or message.keyEncoding
        ),
        headers + _attributes(message),
        None,
        message.partition,
    )  # fmt: skip


def _attributes(message: bodies.NewMessage) -> tuple[tuple[str, bytes], ...]:
    if (
        message.priority is None
        and message.delay is None
        and message.deliver_at is None
        and message.deliverAt is None
        and message.ttl is None
        and message.max_attempts is None
        and message.maxAttempts is None
        and message.visibility is None
        and message.dedup_id is None
        and message.dedupId is None
    ):
        # As most are.
        return ()
    deliver_at = message.deliver_at if message.deliver_at is not None else message.deliverAt
    attempts = message.max_attempts if message.max_attempts is not None else message.maxAttempts
    dedup_id = message.dedup_id if message.dedup_id is not None else message.dedupId
    return attribute_headers(
        priority=message.priority,
        deliver_at_ms=None if deliver_at is None else milliseconds_at("deliver_at", deliver_at),
        delay_ms=milliseconds_in("delay", message.delay),
        ttl_ms=milliseconds_in("ttl", message.ttl),
        max_attempts=attempts,
        visibility_ms=milliseconds_in("visibility", message.visibility),
        dedup_id=None if dedup_id is None else dedup_id.encode(),
    )


# Out.


def shown_places(topic: str, places: Sequence[Published]) -> list[bodies.Place]:
    if isinstance(places, PublishedRuns):
        return [
            bodies.Place(id=f"{topic}:{partition}:{offset}", partition=partition, offset=offset)
            for partition, first, count in places.runs
            for offset in range(first, first + count)
        ]
    return [shown_place(topic, each) for each in places]


def shown_place(topic: str, place: Published) -> bodies.Place:
    partition, offset, is_duplicate = place
    return bodies.Place(
        id=f"{topic}:{partition}:{offset}",
        partition=partition,
        offset=offset,
        duplicate=True if is_duplicate else UNSET,
    )


def shown_record(record: StreamRecord) -> bodies.ShownMessage:
    value, encoding = shown_value(record.value, record.headers)
    key, key_encoding = shown_bytes(record.key)
    return bodies.ShownMessage(
        id=f"{record.topic}:{record.partition}:{record.offset}",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=moment_of(record.timestamp_ms),
        key=key,
        value=value,
        headers=shown_headers(publisher_headers(record.headers)),
        encoding=encoding or UNSET,
        key_encoding=key_encoding or UNSET,
        priority=_priority(record),
    )


def _priority(record: StreamRecord) -> str:
    for name, value in record.headers:
        if name == PRIORITY and value is not None:
            return LANES[LANE_OF.get(value.lower(), 2)]
    return "normal"


def shown_delivery(delivery: Delivery) -> bodies.LeasedMessage:
    value, encoding = shown_value(delivery.value, delivery.headers)
    key, key_encoding = shown_bytes(delivery.key)
    return bodies.LeasedMessage(
        id=f"{delivery.topic}:{delivery.partition}:{delivery.offset}",
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        timestamp=moment_of(delivery.created_at_ms),
        key=key,
        value=value,
        headers=shown_headers(publisher_headers(delivery.headers)),
        encoding=encoding or UNSET,
        key_encoding=key_encoding or UNSET,
        priority=LANES[delivery.lane],
        state="leased",
        receipt=delivery.receipt.encode(),
        attempt=delivery.attempt,
        max_attempts=delivery.max_attempts,
        deadline=moment_of(delivery.deadline_ms),
        error=delivery.error,
    )


def shown_delayed(message: DelayedMessage) -> bodies.ShownDelayed:
    value, encoding = shown_value(message.value, message.headers)
    key, key_encoding = shown_bytes(message.key)
    return bodies.ShownDelayed(
        id=str(MessageId(message.topic, message.partition, message.offset)),
        partition=message.partition,
        offset=message.offset,
        deliver_at=moment_of(message.deliver_at_ms),
        timestamp=moment_of(message.timestamp_ms),
        key=key,
        value=value,
        headers=shown_headers(publisher_headers(message.headers)),
        encoding=encoding or UNSET,
        key_encoding=key_encoding or UNSET,
    )


def shown_letter(letter: DeadLetter) -> bodies.ShownLetter:
    value, encoding = shown_value(letter.value, letter.headers)
    key, key_encoding = shown_bytes(letter.key)
    return bodies.ShownLetter(
        id=str(MessageId(letter.topic, letter.partition, letter.offset)),
        source=str(letter.source),
        group=letter.group,
        reason=letter.reason,
        error=letter.error,
        attempts=letter.attempts,
        redrives=letter.redrives,
        created_at=moment_of(letter.created_at_ms),
        failed_at=moment_of(letter.failed_at_ms),
        key=key,
        value=value,
        headers=shown_headers(publisher_headers(letter.headers)),
        encoding=encoding or UNSET,
        key_encoding=key_encoding or UNSET,
    )


def shown_topic(info: TopicInfo) -> bodies.ShownTopic:
    return bodies.ShownTopic(
        name=info.name,
        id=info.id,
        partitions=[bodies.ShownPartition(**each._asdict()) for each in info.partitions],
        settings=info.settings,
    )


def topic_summary(info: TopicInfo) -> bodies.TopicSummary:
    return bodies.TopicSummary(
        name=info.name,
        partitions=len(info.partitions),
        messages=sum(each.high_watermark - each.start_offset for each in info.partitions),
        size_bytes=sum(each.size_bytes for each in info.partitions),
    )


def shown_group(info: GroupInfo) -> group_bodies.ShownGroup:
    return group_bodies.ShownGroup(
        name=info.name,
        kind=info.kind,
        topics=list(info.topics),
        consumers=list(info.consumers),
        settings=info.settings,
    )
