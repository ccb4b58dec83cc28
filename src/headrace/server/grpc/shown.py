"""From the values that the calls give to messages of the .proto, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.values import (
    DeadLetter,
    DelayedMessage,
    Delivery,
    GroupInfo,
    Headers,
    MessageId,
    Outgoing,
    Published,
    PublishedRuns,
    StreamRecord,
    TopicInfo,
)
from headrace.record.attribute_headers import LANES, attribute_headers, publisher_headers
from headrace.wire.grpc.generated import headrace_pb2 as pb

# Attributes of a message that are headers in the log.
_ATTRIBUTES = (
    "priority", "deliver_at_ms", "delay_ms", "ttl_ms", "max_attempts", "visibility_ms", "dedup_id",
)  # fmt: skip
PAGE_ITEMS = 100


# In.


def given(message: Any, name: str) -> Any:
    """The field's value, None where it was left out."""
    return getattr(message, name) if message.HasField(name) else None


def outgoing(message: Any) -> Outgoing:
    # Asked for each by its name, a message's fields cost more than all the rest.
    fields = message.ListFields()
    if len(fields) == 1 and fields[0][0].name == "value":
        return Outgoing(fields[0][1])
    found = {field.name: value for field, value in fields}
    attributes = {name: found[name] for name in _ATTRIBUTES if name in found}
    headers: Headers = tuple(
        (each.name, given(each, "value")) for each in found.get("headers", ())
    )  # fmt: skip
    return Outgoing(
        found.get("value"),
        found.get("key"),
        headers + attribute_headers(**attributes) if attributes else headers,
        found.get("timestamp_ms"),
        found.get("partition"),
    )


def id_in(message: Any) -> MessageId:
    return MessageId(message.topic, message.partition, message.offset)


def page_limit(request: Any) -> int:
    limit: int | None = given(request, "limit")
    if limit is None:
        return PAGE_ITEMS
    if not 1 <= limit <= limits.PAGE_ITEMS_MAX:
        raise InvalidArgument(f"a page has 1 to {limits.PAGE_ITEMS_MAX} items, not {limit}")
    return limit


# Out.


def shown_places(places: Sequence[Published]) -> Any:
    answer = pb.PublishResponse()
    add = answer.places.add
    if isinstance(places, PublishedRuns):
        for partition, first, count in places.runs:
            for offset in range(first, first + count):
                add(partition=partition, offset=offset)
    else:
        for partition, offset, duplicate in places:
            add(partition=partition, offset=offset, duplicate=duplicate)
    return answer


def settings_text(settings: Mapping[str, Any]) -> dict[str, str]:
    """As one would type them."""
    return {name: _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def shown_headers(headers: Headers) -> list[Any]:
    return [pb.Header(name=name, value=value) for name, value in headers]


def shown_id(id: MessageId) -> Any:
    return pb.MessageId(topic=id.topic, partition=id.partition, offset=id.offset)


def shown_topic(info: TopicInfo) -> Any:
    return pb.Topic(
        name=info.name,
        id=info.id,
        partitions=[pb.Partition(**each._asdict()) for each in info.partitions],
        settings=settings_text(info.settings),
    )


def shown_group(info: GroupInfo) -> Any:
    return pb.Group(
        name=info.name,
        kind=info.kind,
        topics=info.topics,
        settings=settings_text(info.settings),
        consumers=info.consumers,
    )


def shown_record(record: StreamRecord | DelayedMessage) -> Any:
    return pb.Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=record.key,
        value=record.value,
        headers=shown_headers(publisher_headers(record.headers)),
    )


def shown_deliveries(deliveries: Iterable[Delivery]) -> list[Any]:
    return [
        pb.Delivery(
            id=pb.MessageId(topic=each.topic, partition=each.partition, offset=each.offset),
            receipt=each.receipt.encode(),
            key=each.key,
            value=each.value,
            headers=shown_headers(publisher_headers(each.headers)),
            created_at_ms=each.created_at_ms,
            attempt=each.attempt,
            max_attempts=each.max_attempts,
            delivered_at_ms=each.delivered_at_ms,
            deadline_ms=each.deadline_ms,
            failed_at_ms=each.failed_at_ms,
            error=each.error,
            priority=LANES[each.lane],
        )
        for each in deliveries
    ]


def shown_letter(letter: DeadLetter) -> Any:
    return pb.DeadLetter(
        id=pb.MessageId(topic=letter.topic, partition=letter.partition, offset=letter.offset),
        source=shown_id(letter.source),
        group=letter.group,
        reason=letter.reason,
        error=letter.error,
        attempts=letter.attempts,
        created_at_ms=letter.created_at_ms,
        failed_at_ms=letter.failed_at_ms,
        redrives=letter.redrives,
        key=letter.key,
        value=letter.value,
        headers=shown_headers(publisher_headers(letter.headers)),
    )
