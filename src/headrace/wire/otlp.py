"""Metrics in OTLP's protobuf, as Kafka's clients push them (KIP-714): numbers by name.

    MetricsData > ResourceMetrics (1) > ScopeMetrics (2) > Metric (2)
        name (1), gauge (5) or sum (7) > NumberDataPoint (1)
            attributes (7) > key (1), value (2) > string (1), int (3)
            a double (4) or an integer (6)

Histograms and summaries are passed over: no client of Kafka's sends them. So is every field
that is not here, as protobuf wants it.

Rejected: the library of protobuf. It comes with gRPC, which a node can do without, and its
messages take many times the memory of what is wanted of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import error as StructError
from struct import unpack_from
from typing import NamedTuple

from headrace.core import limits
from headrace.core.errors import MalformedMessage

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, int | memoryview]


class Point(NamedTuple):
    """One number of one metric; attributes are sorted."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float


def decode_metrics(data: bytes, points_max: int) -> list[Point]:
    """The first `points_max` of them, without those whose names are very long.
    MalformedMessage for what is not OTLP."""
    try:
        return _decode(memoryview(data), points_max)
    except (IndexError, StructError, UnicodeDecodeError, ValueError) as error:
        raise MalformedMessage(f"these are no metrics in OTLP: {error}") from error


def _decode(data: memoryview, points_max: int) -> list[Point]:
    points: list[Point] = []
    for resource in _messages(data, 1):
        for scope in _messages(resource, 2):
            for metric in _messages(scope, 2):
                points += _points(metric, points_max - len(points))
                if len(points) >= points_max:
                    return points
    return points


def _points(metric: memoryview, points_max: int) -> list[Point]:
    name = ""
    found: list[memoryview] = []
    for number, kind, value in _fields(metric):
        if kind != _BYTES or not isinstance(value, memoryview):
            continue
        if number == 1:
            name = str(value, "utf-8")
        elif number in (5, 7):
            found += _messages(value, 1)
    points = []
    for each in found[:points_max]:
        number_of = _number(each)
        attributes = tuple(sorted(_attributes(each)))
        size = len(name) + sum(len(key) + len(text) for key, text in attributes)
        if number_of is not None and size <= limits.TELEMETRY_POINT_CHARACTERS_MAX:
            points.append(Point(name, attributes, number_of))
    return points


def _number(point: memoryview) -> float | None:
    for number, kind, value in _fields(point):
        if kind == _FIXED64 and isinstance(value, memoryview):
            if number == 4:
                (double,) = unpack_from("<d", value)
                return float(double)
            if number == 6:
                (integer,) = unpack_from("<q", value)
                return float(integer)
    return None


def _attributes(point: memoryview) -> Iterator[tuple[str, str]]:
    for attribute in _messages(point, 7):
        key, text = "", ""
        for number, _, value in _fields(attribute):
            if number == 1 and isinstance(value, memoryview):
                key = str(value, "utf-8")
            elif number == 2 and isinstance(value, memoryview):
                text = _text(value)
        yield key, text


def _text(value: memoryview) -> str:
    for number, kind, found in _fields(value):
        if number == 1 and isinstance(found, memoryview):
            return str(found, "utf-8")
        if number == 3 and kind == _VARINT and isinstance(found, int):
            return str(found - (1 << 64) if found >> 63 else found)
    return ""


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, kind, value in _fields(data):
        if number == wanted and kind == _BYTES and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[Field]:
    position, size = 0, len(data)
    while position < size:
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, kind, value
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"there is no kind {kind} of field")
        if length > size - position:
            raise ValueError("a field goes beyond its message")
        yield number, kind, data[position : position + length]
        position += length


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
