"""Messages: published, as they are, in batches or together with acks; read and followed
by offset."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import HeadraceError, InvalidArgument, OffsetOutOfRange
from headrace.core.values import CursorMove, PlacedBatch, Publication, StreamRecord
from headrace.server.grpc.measured import MeasuredCall
from headrace.server.grpc.shown import given, outgoing, shown_places, shown_record
from headrace.server.looking import publish_batches
from headrace.server.publishing import publish_all
from headrace.server.settling import acknowledged
from headrace.server.tailing import Tail
from headrace.server.times import offset_at
from headrace.server.transacting import transact
from headrace.wire.grpc.generated import headrace_pb2 as pb

READ_RECORDS = 500
# Records that go out between two looks at what else there is to do.
AT_ONCE = 200


def wait_in(request: Any) -> int:
    if not 0 <= request.wait_ms <= limits.REMOTE_WATCH_MS_MAX:
        raise InvalidArgument(
            f"wait_ms is 0 to {limits.REMOTE_WATCH_MS_MAX}, not {request.wait_ms}; ask again "
            "to wait longer"
        )
    return int(request.wait_ms)


class Messages:
    async def publish(self, request: Any, call: MeasuredCall) -> Any:
        messages = [outgoing(each) for each in request.messages]
        places = await publish_all(call.calls, request.topic, messages)
        return shown_places(places)

    async def publish_batch(self, request: Any, call: MeasuredCall) -> Any:
        placed = PlacedBatch(request.topic, request.partition, bytearray(request.batch))
        [outcome] = await publish_batches(call.calls, [placed])
        if isinstance(outcome, HeadraceError):
            raise outcome
        return pb.PublishBatchResponse(first_offset=outcome.offset, duplicate=outcome.duplicate)

    async def transact(self, request: Any, call: MeasuredCall) -> Any:
        publications = [
            Publication(each.topic, [outgoing(message) for message in each.messages])
            for each in request.publications
        ]
        moves = [
            CursorMove(each.group, [(at.topic, at.partition, at.offset) for at in each.positions])
            for each in request.commits
        ]
        _check_once("topic", [each.topic for each in publications])
        _check_once("group", [each.group for each in moves])
        acks = acknowledged(call.calls, request.acks)
        published = await transact(call.calls, publications, moves, acks)
        return pb.TransactResponse(publications=map(shown_places, published))

    async def read(self, request: Any, call: MeasuredCall) -> Any:
        count = given(request, "count")
        count = READ_RECORDS if count is None else count
        if not 1 <= count <= limits.LEASE_MESSAGES_MAX:
            raise InvalidArgument(f"count is 1 to {limits.LEASE_MESSAGES_MAX}, not {count}")
        next_offset = request.offset

        async def attempt() -> list[StreamRecord]:
            nonlocal next_offset
            records, next_offset = await call.calls.run(
                Face.read, request.topic, request.partition, next_offset,
                count_max=count, bytes_max=limits.GRPC_ANSWER_BYTES_MAX,
            )  # fmt: skip
            return records

        found = await call.calls.wait_for_some(attempt, [request.topic], wait_in(request))
        return pb.ReadResponse(records=map(shown_record, found), next_offset=next_offset)

    async def offset_at(self, request: Any, call: MeasuredCall) -> Any:
        offset = await offset_at(call.calls, request.topic, request.partition, request.timestamp_ms)
        return pb.OffsetAtResponse(offset=offset)

    async def tail(self, request: Any, call: MeasuredCall) -> AsyncIterator[Any]:
        tail = await _begin(request, call)
        while True:
            found = await call.calls.wait_for_some(
                lambda: tail.read(AT_ONCE, limits.SOCKET_FEED_BYTES_MAX),
                [request.topic], limits.REMOTE_WATCH_MS_MAX,
            )  # fmt: skip
            if found:
                # Whoever does not read makes this wait, and nothing piles up.
                yield _take_shown(found)


async def _begin(request: Any, call: MeasuredCall) -> Tail:
    info = await call.calls.run(Face.topic, request.topic)
    earliest = request.start == pb.START_EARLIEST
    positions = {
        each.partition: each.start_offset if earliest else each.high_watermark
        for each in info.partitions
    }
    for partition, offset in request.positions.items():
        if partition not in positions:
            raise InvalidArgument(
                f"{info.name} has partitions 0 to {len(positions) - 1}, not {partition}"
            )
        end = info.partitions[partition].high_watermark
        if not 0 <= offset <= end:
            raise OffsetOutOfRange(
                f"offset {offset} of {info.name}:{partition} is outside of 0 to {end}"
            )
        positions[partition] = offset
    return Tail(call.calls, info.name, info.id, positions)


def _take_shown(found: list[StreamRecord]) -> Any:
    """An answer with what was found, which is let go: the answer may wait for long."""
    answer = pb.TailResponse(records=map(shown_record, found))
    found.clear()
    return answer


def _check_once(noun: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise InvalidArgument(f"name each {noun} once in a transaction")
