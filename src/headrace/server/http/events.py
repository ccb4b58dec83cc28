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
from collections.abc import AsyncIterator, Mapping

from starlette.responses import Response, StreamingResponse

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.values import StreamRecord, TopicInfo
from headrace.core.wording import counted
from headrace.server.http.route import Call, encode
from headrace.server.http.search import has_texts
from headrace.server.http.shown import shown_record
from headrace.server.loop_calls import Watch
from headrace.server.tailing import Tail
from headrace.wire.http import bodies

EVENTS_TYPE = "text/event-stream"
# A comment goes out this often when nothing else does, so that nobody on the way
# takes the silence for an end.
SILENCE_SECONDS = 15.0
AT_ONCE = 200


async def tail(call: Call) -> Response:
    topic = call.path["topic"]
    info = await call.run(Face.topic, topic)
    is_whole = call.query.partition is None
    tail = Tail(call.calls, topic, info.id, _positions(call, info), is_whole=is_whole)
    return StreamingResponse(
        _events(call, topic, tail), media_type=EVENTS_TYPE, headers={"cache-control": "no-store"}
    )


def _positions(call: Call, info: TopicInfo) -> dict[int, int]:
    query: bodies.EventsQuery = call.query
    known = {each.partition: each for each in info.partitions}
    if query.partition is not None:
        if query.partition not in known:
            raise InvalidArgument(
                f"{info.name} has {counted(len(known), 'partition')}, counted from 0"
            )
        known = {query.partition: known[query.partition]}
    elif query.offset is not None:
        raise InvalidArgument("an offset is one of a partition; give the partition too")
    last = call.request.headers.get("last-event-id")
    if last:
        # What it says of partitions that are not read is left alone.
        given = _parse(last)
        return {index: given.get(index, each.start_offset) for index, each in known.items()}
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


async def _events(call: Call, topic: str, tail: Tail) -> AsyncIterator[bytes]:
    yield b": tailing " + topic.encode() + b"\n\n"
    matches = has_texts(call.query)
    with Watch(call.service, [topic]) as watch, contextlib.suppress(asyncio.CancelledError):
        while not call.service.closing.done():
            watch.news.clear()
            try:
                records = await tail.read(AT_ONCE, limits.REMOTE_ANSWER_BYTES_MAX)
            except HeadraceError as error:
                told = encode({"code": error.code, "detail": str(error)})
                yield b"event: error\ndata: " + told + b"\n\n"
                return
            shown = list(filter(matches, records))
            if shown:
                yield _shown(shown, tail.positions)
            elif records:
                # Much may be read before something fits, and others have their turn.
                await asyncio.sleep(0)
            elif not await watch.wait(SILENCE_SECONDS):
                yield b": still here\n\n"


def _shown(records: list[StreamRecord], positions: Mapping[int, int]) -> bytes:
    """Records of one partition, each with where to go on after it."""
    events = []
    for record in records:
        at = {**positions, record.partition: record.offset + 1}
        id = ",".join(f"{index}:{offset}" for index, offset in sorted(at.items()))
        events.append(
            b"id: " + id.encode() + b"\nevent: message\ndata: " + encode(shown_record(record))
            + b"\n\n"
        )  # fmt: skip
    return b"".join(events)
