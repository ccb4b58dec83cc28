"""Positions: from the words people use to offsets in partitions.

    "earliest"            the first record that is still there
    "latest"              behind the last one: only what comes from now on
    42                    that offset
    datetime, 17e8        the first record at or after that moment
    {0: 42, 1: 7}         an offset for each partition of the one topic
    {("orders", 0): 42}   an offset for each partition of several topics

A whole number is an offset and a number with a fraction is a moment, as in
`time.time()`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from headrace.client.backend import Backend, Place
from headrace.client.times import instant_ms
from headrace.core.errors import InvalidArgument, OffsetOutOfRange, UnknownPartition
from headrace.core.values import PartitionInfo

Position = int | str | datetime | float
Start = Position | Mapping[int, int] | Mapping[tuple[str, int], int]


def offset_of(backend: Backend, place: Place, position: object) -> int:
    """The offset that a position means in one partition; OffsetOutOfRange when
    it is negative or behind the end."""
    topic, partition = place
    bounds = partition_of(backend, place)
    if position == "earliest":
        return bounds.start_offset
    if position == "latest":
        return bounds.last_stable_offset
    if isinstance(position, datetime | float):
        return backend.offset_at(topic, partition, instant_ms("position", position))
    if isinstance(position, bool) or not isinstance(position, int):
        raise InvalidArgument(
            f"a position is an offset, 'earliest', 'latest' or a datetime, not {position!r}"
        )
    if not 0 <= position <= bounds.high_watermark:
        raise OffsetOutOfRange(
            f"{topic}:{partition} has offsets from {bounds.start_offset} to "
            f"{bounds.high_watermark}; {position} is not among them"
        )
    return position


def starting_offsets(backend: Backend, places: list[Place], start: object) -> dict[Place, int]:
    """Where each of these partitions starts. A mapping that leaves some out
    leaves them at their beginning."""
    if not isinstance(start, Mapping):
        return {place: offset_of(backend, place, start) for place in places}
    given = _by_place(start, places)
    return {place: offset_of(backend, place, given.get(place, "earliest")) for place in places}


def partition_of(backend: Backend, place: Place) -> PartitionInfo:
    topic, partition = place
    for info in backend.topic(topic).partitions:
        if info.partition == partition:
            return info
    raise UnknownPartition(f"topic {topic} has no partition {partition}")


def _by_place(start: Mapping[Any, Any], places: list[Place]) -> dict[Place, Any]:
    topics = {topic for topic, _ in places}
    given: dict[Place, Any] = {}
    for where, position in start.items():
        if isinstance(where, int) and len(topics) == 1:
            [topic] = topics
            where = (topic, where)
        if where not in places:
            raise UnknownPartition(
                f"{where!r} is not one of the stream's partitions; name one by its number, or as "
                "(topic, partition) when there are several topics"
            )
        given[where] = position
    return given
