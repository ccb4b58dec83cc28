"""Messages: published, read, looked at."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from headrace.calls import Face
from headrace.core.errors import InvalidArgument, UnknownMessage
from headrace.core.values import MessageId, Outgoing, Publication, Published, StreamRecord
from headrace.record.attribute_headers import attribute_headers
from headrace.record.content_type import CONTENT_TYPE, content_type_of
from headrace.server.http.route import Call, decode_query, is_json
from headrace.server.http.shown import (
    milliseconds_at,
    milliseconds_in,
    outgoing,
    shown_place,
    shown_places,
    shown_record,
)
from headrace.server.publishing import publish_all
from headrace.server.settling import acknowledged
from headrace.server.times import offset_at
from headrace.server.transacting import transact
from headrace.wire.http import bodies
from headrace.wire.http.content import stored_value

RAW_TYPE = "application/octet-stream"


# Publishing.


async def produce(call: Call) -> bodies.Place:
    wanted: bodies.Produce = call.body
    message = bodies.NewMessage(
        value=wanted.value,
        key=wanted.key,
        encoding=wanted.encoding,
        headers=wanted.headers,
        partition=wanted.partition,
    )
    [place] = await call.run(Face.publish, wanted.topic, [outgoing(message)])
    return shown_place(wanted.topic, place)


async def publish(call: Call) -> bodies.Place | bodies.Places:
    topic = call.path["topic"]
    if not is_json(call.request):
        [place] = await call.run(Face.publish, topic, [await _raw(call)])
        return shown_place(topic, place)
    if call.request.query_params:
        raise InvalidArgument("a JSON body says everything itself; parameters are for raw bytes")
    if isinstance(call.body, bodies.PlainMessages):
        return await _publish_plain(call, topic, call.body)
    wanted: bodies.Publish = call.body
    if wanted.messages is None:
        [place] = await call.run(Face.publish, topic, [outgoing(wanted)])
        return shown_place(topic, place)
    if wanted != bodies.Publish(messages=wanted.messages):
        raise InvalidArgument("give `messages`, or the fields of one message, not both")
    messages = [outgoing(each) for each in wanted.messages]
    places = await publish_all(call.calls, topic, messages)
    return bodies.Places(messages=shown_places(topic, places))


async def _publish_plain(call: Call, topic: str, wanted: bodies.PlainMessages) -> bodies.Places:
    stored = [stored_value(each.value, None) for each in wanted.messages]
    kinds = {kind for _, kind in stored}
    places: Sequence[Published]
    if len(kinds) == 1 and None not in kinds:
        values = [value for value, _ in stored if value is not None]
        headers = tuple((CONTENT_TYPE, kind) for kind in kinds)
        places = await call.run(Face.publish_values, topic, values, headers=headers)
    else:
        messages = [
            Outgoing(value, headers=() if kind is None else ((CONTENT_TYPE, kind),))
            for value, kind in stored
        ]
        places = await call.run(Face.publish, topic, messages)
    return bodies.Places(messages=shown_places(topic, places))


async def publish_together(call: Call) -> bodies.AddressedPlaces:
    """For any number of topics, all of it or nothing."""
    wanted: bodies.AddressedMessages = call.body
    if not wanted.messages and not wanted.acks:
        raise InvalidArgument("give `messages` to publish, or `acks`, or both")
    by_topic: dict[str, list[Outgoing]] = {}
    order = []
    for each in wanted.messages:
        messages = by_topic.setdefault(each.topic, [])
        order.append((each.topic, len(messages)))
        messages.append(outgoing(each))
    places = await transact(
        call.calls,
        [Publication(topic, each) for topic, each in by_topic.items()],
        acks=acknowledged(call.calls, wanted.acks),
    )
    found = dict(zip(by_topic, places, strict=True))
    return bodies.AddressedPlaces(
        messages=[
            bodies.AddressedPlace(
                id=f"{topic}:{found[topic][number].partition}:{found[topic][number].offset}",
                topic=topic,
                partition=found[topic][number].partition,
                offset=found[topic][number].offset,
            )
            for topic, number in order
        ]
    )


async def _raw(call: Call) -> Outgoing:
    query: bodies.RawQuery = decode_query(bodies.RawQuery, call.request)
    kind = call.request.headers["content-type"].split(";", 1)[0].strip().lower()
    headers = () if kind == RAW_TYPE else ((CONTENT_TYPE, kind.encode()),)
    attributes = attribute_headers(
        priority=query.priority,
        deliver_at_ms=(
            None if query.deliver_at is None else milliseconds_at("deliver_at", query.deliver_at)
        ),
        delay_ms=milliseconds_in("delay", query.delay),
        ttl_ms=milliseconds_in("ttl", query.ttl),
        max_attempts=query.max_attempts,
        visibility_ms=milliseconds_in("visibility", query.visibility),
        dedup_id=None if query.dedup_id is None else query.dedup_id.encode(),
    )
    key = None if query.key is None else query.key.encode()
    value = await call.read_body()
    if not value:
        raise InvalidArgument(
            "the body is empty; send the value, or JSON with null or an empty string for `value`"
        )
    return Outgoing(value, key, headers + attributes, None, query.partition)


# Reading.


async def consume(call: Call) -> bodies.ReadMessages:
    query: bodies.ConsumeQuery = call.query
    topic = query.topic
    if topic is None:
        names = await call.run(Face.topic_names)
        if len(names) != 1:
            raise InvalidArgument(
                f"the parameter 'topic' can be left out only where there is one topic, and there "
                f"are {len(names)}; add topic=NAME"
            )
        topic = names[0]
    records, next_offset = await _read(
        call, topic, query.partition, query.offset, query.count, query.wait
    )
    return bodies.ReadMessages(messages=list(map(shown_record, records)), next_offset=next_offset)


async def read(call: Call) -> bodies.ReadMessages:
    query: bodies.MessagesQuery = call.query
    topic = call.path["topic"]
    if query.offset is not None and query.time is not None:
        raise InvalidArgument("give an offset or a time, not both")
    if query.time is not None:
        at_ms = milliseconds_at("time", query.time)
        offset = await offset_at(call.calls, topic, query.partition, at_ms)
    elif query.offset is not None:
        offset = query.offset
    else:
        offset = (await _partition(call, topic, query.partition)).start_offset
    records, next_offset = await _read(
        call, topic, query.partition, offset, query.count, query.wait
    )
    shown = list(map(shown_record, records))
    if query.group is not None:
        for each in shown:
            id = MessageId(each.topic, each.partition, each.offset)
            status = await call.run(Face.status, id, query.group)
            each.state, each.attempts = status.state, status.attempts
    return bodies.ReadMessages(messages=shown, next_offset=next_offset)


async def show(call: Call) -> bodies.ShownMessage | Response:
    """One message; its value alone where the client asks for bytes."""
    topic, partition, offset = place_in(call)
    records, _ = await call.run(Face.read, topic, partition, offset, count_max=1)
    record: StreamRecord | None = next(iter(records), None)
    if record is None or record.offset != offset:
        raise UnknownMessage(f"there is no message {topic}:{partition}:{offset}")
    accepted = call.request.headers.get("accept", "")
    if RAW_TYPE in accepted:
        kind = content_type_of(record.headers) or RAW_TYPE.encode()
        # A browser takes it for what its producer called it, and for nothing else.
        headers = {"x-content-type-options": "nosniff"}
        return Response(record.value or b"", headers=headers, media_type=kind.decode("latin-1"))
    return shown_record(record)


def place_in(call: Call) -> tuple[str, int, int]:
    """Topic, partition and offset, as the path has them."""
    path = call.path
    try:
        return path["topic"], int(path["partition"]), int(path["offset"])
    except ValueError as error:
        raise InvalidArgument(
            f"a partition and an offset are numbers, not {path['partition']}/{path['offset']}"
        ) from error


async def _partition(call: Call, topic: str, partition: int) -> bodies.ShownPartition:
    found = await call.run(Face.partition_info, topic, partition)
    return bodies.ShownPartition(**found._asdict())


async def _read(
    call: Call, topic: str, partition: int, offset: int, count: int, wait_seconds: float
) -> tuple[list[StreamRecord], int]:
    next_offset = offset

    async def attempt() -> list[StreamRecord]:
        nonlocal next_offset
        records, next_offset = await call.run(
            Face.read, topic, partition, next_offset, count_max=count
        )
        return list(records)

    records = await attempt()
    if not records and wait_seconds:
        wait_ms = round(wait_seconds * 1000)
        records = await call.unless_gone(call.calls.wait_for_some(attempt, [topic], wait_ms))
    return records, next_offset
