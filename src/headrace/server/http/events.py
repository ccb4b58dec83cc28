"""Server-sent events: a topic as it grows, for `curl -N` and for a browser.

    GET /topics/orders/events

    id: 0:17,1:4             where to go on, for each partition
    event: message
    data: {"id": "orders:0:16", ...}

A client that comes back with Last-Event-ID, as browsers do by themselves, misses
nothing that is still there. Nothing is kept for it here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.responses import Response, StreamingResponse

from headrace.calls import Face
from headrace.core.errors import HeadraceError, InvalidArgument, OffsetOutOfRange
from headrace.core.values import TopicInfo
from headrace.server.http.route import Call, encode
from headrace.server.http.shown import shown_record
from headrace.server.loop_calls import Watch
from headrace.wire.http import bodies

EVENTS_TYPE = "text/event-stream"
# A comment goes out this often when nothing else does, so that nobody on the way
# takes the silence for an end.
SILENCE_SECONDS = 15.0
AT_ONCE = 200


async def tail(call: Call) -> Response:
    topic_id, positions = await _begin(call)
    return StreamingResponse(
        _events(call, call.path["topic"], topic_id, positions),
        media_type=EVENTS_TYPE,
        headers={"cache-control": "no-store"},
    )


async def _begin(call: Call) -> tuple[str, dict[int, int]]:
    """Which topic it is, and where each of its partitions begins."""
    info = await call.run(Face.topic, call.path["topic"])
    return info.id, _positions(call, info)


def _positions(call: Call, info: TopicInfo) -> dict[int, int]:
    query: bodies.EventsQuery = call.query
    known = {each.partition: each for each in info.partitions}
    if query.partition is not None:
        if query.partition not in known:
            raise InvalidArgument(f"{info.name} has {len(known)} partitions, counted from 0")
        known = {query.partition: known[query.partition]}
    elif query.offset is not None:
        raise InvalidArgument("an offset is one of a partition; give the partition too")
    last = call.request.headers.get("last-event-id")
    if last:
        return {**{index: each.start_offset for index, each in known.items()}, **_parse(last)}
    if query.offset is not None:
        return dict.fromkeys(known, query.offset)
    if query.start == "earliest":
        return {index: each.start_offset for index, each in known.items()}
    return {index: each.high_watermark for index, each in known.items()}


def _parse(last: str) -> dict[int, int]:
    try:
        pairs = [pair.split(":") for pair in last.split(",")]
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError as error:
        raise InvalidArgument("Last-Event-ID is not one that came from here") from error


async def _events(
    call: Call, topic: str, topic_id: str, positions: dict[int, int]
) -> AsyncIterator[bytes]:
    yield b": tailing " + topic.encode() + b"\n\n"
    with Watch(call.service, [topic]) as watch, contextlib.suppress(asyncio.CancelledError):
        while True:
            watch.news.clear()
            found = False
            for partition in sorted(positions):
                try:
                    events = await _read(call, topic, topic_id, partition, positions)
                except HeadraceError as error:
                    told = encode({"code": error.code, "detail": str(error)})
                    yield b"event: error\ndata: " + told + b"\n\n"
                    return
                if events:
                    found = True
                    yield events
            if not found and not await watch.wait(SILENCE_SECONDS):
                yield b": still here\n\n"


async def _read(
    call: Call, topic: str, topic_id: str, partition: int, positions: dict[int, int]
) -> bytes:
    try:
        records, positions[partition] = await call.run(
            Face.read, topic, partition, positions[partition], count_max=AT_ONCE, topic_id=topic_id
        )
    except OffsetOutOfRange:
        # Deleted meanwhile: on with what is there.
        info = await call.run(Face.partition_info, topic, partition)
        positions[partition] = max(
            info.start_offset, min(positions[partition], info.high_watermark)
        )
        return b""
    events = []
    for record in records:
        at = {**positions, partition: record.offset + 1}
        id = ",".join(f"{index}:{offset}" for index, offset in sorted(at.items()))
        events.append(
            b"id: " + id.encode() + b"\nevent: message\ndata: " + encode(shown_record(record))
            + b"\n\n"
        )  # fmt: skip
    return b"".join(events)
