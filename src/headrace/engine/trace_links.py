"""Links between a message, its dead letter and what that was redriven as.

    origin  --dead-letter-->  letter  --redriven-to-->  copy
            <----origin-----          <-redriven-from--
            <--redriven-to--  where the message was made ready again in its place

Backwards the record itself says where it comes from, in its headers. Forwards the event
of the move says which partition the copy went to and where that ended then: from there
on the copy is searched for by its origin, as a recovery does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from headrace.core import limits
from headrace.core.errors import CorruptBatch, CorruptLog, InvalidArgument
from headrace.core.trace_values import TraceLink
from headrace.core.values import MessageId
from headrace.engine import dead_letter
from headrace.engine.broker import Broker
from headrace.engine.partition import Partition
from headrace.engine.state_reading import SegmentTwins
from headrace.engine.timeline import Timeline
from headrace.log.compaction import Step, some
from headrace.record import Record, read_header, read_parts
from headrace.record.attribute_headers import DLQ_TOPIC, ORIGIN, REDRIVE_GROUP

T = TypeVar("T")
Steps = Generator[Step, int | None, T]

_ORIGIN = ORIGIN.encode()


def links_in(broker: Broker, partition: Partition, record: Record) -> list[TraceLink]:
    """What the record itself says of where it comes from."""
    headers = {name: value for name, value in record.headers if value is not None}
    # By the topic's own id: another one may have its name by now.
    from_id = _id_of_origin(broker, headers.get(ORIGIN, b""))
    if from_id is None:
        return []
    if partition.topic.source_id is not None and DLQ_TOPIC in headers:
        return [TraceLink("origin", str(from_id))]
    if REDRIVE_GROUP in headers:
        return [TraceLink("redriven-from", str(from_id))]
    return []


def _id_of_origin(broker: Broker, origin: bytes) -> MessageId | None:
    """Anybody may write such a header, so it may be anything."""
    with contextlib.suppress(ValueError, InvalidArgument):
        topic_id, index, _, _, offset = origin.decode("ascii").split("/")
        topic = broker.topics.catalog.topics_by_id.get(bytes.fromhex(topic_id))
        if topic is not None:
            return MessageId.parse(f"{topic.name}:{index}:{offset}")
    return None


def follow_copies(
    broker: Broker,
    partition: Partition,
    timelines: Mapping[int, Timeline],
    records: Mapping[int, Record],
) -> Steps[dict[int, list[TraceLink]]]:
    """Find what was made of messages elsewhere, and say so in their timelines too. What
    went in one move is searched for together."""
    moves: dict[tuple[int, int], list[int]] = {}
    for offset, timeline in timelines.items():
        for copy in timeline.copies:
            if copy.event.in_place:
                continue
            moves.setdefault((copy.event.group, copy.event.move), []).append(offset)
    found: dict[tuple[int, int, int], int] = {}
    for (group, move), offsets in moves.items():
        event = next(
            each.event
            for each in timelines[offsets[0]].copies
            if (each.event.group, each.event.move) == (group, move)
        )
        target = broker.topics.find(event.target_topic, event.target_partition)
        if target is None:
            continue
        topic = partition.topic
        wanted = {
            dead_letter.origin_of(topic.id, partition.index, group, move, offset): offset
            for offset in offsets
        }
        search = _CopySearch(target, event.target_end, wanted)
        with contextlib.closing(search):
            while (yield search.step) is not None:
                pass
        found.update({(group, move, offset): place for offset, place in search.found.items()})
    return {
        offset: _linked(broker, offset, timeline, found, records.get(offset))
        for offset, timeline in timelines.items()
    }


def _linked(
    broker: Broker,
    offset: int,
    timeline: Timeline,
    found: Mapping[tuple[int, int, int], int],
    record: Record | None,
) -> list[TraceLink]:
    links: list[TraceLink] = []
    for event, told in timeline.copies:
        topic = broker.topics.catalog.topics_by_id.get(event.target_topic)
        if topic is None:
            continue
        place = f"{topic.name}:{event.target_partition}"
        copy = found.get((event.group, event.move, offset))
        if event.in_place and record is not None:
            origin = dead_letter.read_origin(record)
            copy = None if origin is None else origin.offset
        if copy is not None:
            place = f"{place}:{copy}"
            links.append(TraceLink("redriven-to" if event.redrive else "dead-letter", place))
        timeline.events[told] = timeline.events[told]._replace(to=place)
    return links


class _CopySearch:
    """For the copies that a move made, from where the target ended when it began.
    `found` has the offset there by the offset here."""

    def __init__(self, target: Partition, start: int, wanted: dict[bytes, int]) -> None:
        self._wanted = wanted
        start = max(start, target.log.start_offset)
        self._twins = SegmentTwins(target.log, start, target.high_watermark)
        self._work = self._run()
        self.found: dict[int, int] = {}

    def step(self, most_bytes: int) -> int | None:
        return some(self._work, most_bytes)

    def close(self) -> None:
        self._twins.close()

    def _run(self) -> Iterator[int]:
        gone_over = 0
        for data in self._twins.pieces():
            try:
                self._look_through(data)
            except CorruptBatch as error:
                raise CorruptLog(f"a batch with copies cannot be read: {error}") from error
            gone_over += len(data)
            if len(self.found) == len(self._wanted) or gone_over > limits.TRACE_LINK_BYTES_MAX:
                return
            yield len(data)

    def _look_through(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            header = read_header(data, position)
            end = position + header.size_bytes
            # Copies are written uncompressed, so a search of bytes finds their mark.
            if not header.is_control and data.find(_ORIGIN, position, end) >= 0:
                # Anybody may write the like, and nonsense around it.
                with contextlib.suppress(CorruptBatch):
                    for record in chain.from_iterable(read_parts(data[position:end], header)):
                        for name, value in record.headers:
                            if name == ORIGIN and value in self._wanted:
                                # The first is ours.
                                self.found.setdefault(self._wanted[value], record.offset)
            position = end
