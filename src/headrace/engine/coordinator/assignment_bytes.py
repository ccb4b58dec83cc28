"""What classic consumers say of partitions: what they own, and what they are assigned.

    subscription   version i16, topics, user data, [v1] owned partitions, ...
    assignment     version i16, partitions, user data
    partitions     i32 how many topics; for each its name, i32 how many, i32 each
    user data      i32 length, -1 for none, and the bytes

A coordinator opens them in two cases only: when a group goes from one protocol to the other,
and for members of the classic protocol in a group to which the broker assigns. Later
versions only add at the end.

Rejected: the codec of `wire`. The coordinators know no wire, and this is all they need.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
# The newest version of an assignment that there is.
VERSION_MAX = 3

T = TypeVar("T")
# A topic by its name, and one partition of it.
NamedPartition = tuple[str, int]


class NoConsumer(Exception):
    """The bytes are not those of a consumer."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self._data, self._position)
        self._position += form.size
        return int(value)

    def count(self) -> int:
        """How many follow: never more than there are bytes for."""
        count = self.number(_INT)
        if not 0 <= count <= len(self._data) - self._position:
            raise NoConsumer("a count goes beyond the end")
        return count

    def take(self, size: int) -> bytes:
        if size < 0 or size > len(self._data) - self._position:
            raise NoConsumer("a length goes beyond the end")
        start, self._position = self._position, self._position + size
        return self._data[start : self._position]

    def text(self) -> str:
        return self.take(self.number(_SHORT)).decode()

    def skip_bytes(self) -> None:
        size = self.number(_INT)
        if size >= 0:
            self.take(size)

    def partitions(self) -> frozenset[NamedPartition]:
        found: set[NamedPartition] = set()
        for _ in range(self.count()):
            topic = self.text()
            found.update((topic, self.number(_INT)) for _ in range(self.count()))
        return frozenset(found)


def version_of(metadata: bytes) -> int:
    return _read(metadata, lambda reader, version: version)


def owned_partitions(metadata: bytes) -> frozenset[NamedPartition]:
    """What a member says it has: nothing where its version does not say, since such a
    member has given up everything before it joins."""
    return _read(metadata, _owned)


def assigned_partitions(assignment: bytes) -> frozenset[NamedPartition]:
    """Nothing where there was no assignment yet."""
    if not assignment:
        return frozenset()
    return _read(assignment, lambda reader, version: reader.partitions())


def encode_assignment(version: int, partitions: Iterable[NamedPartition]) -> bytes:
    """In this version, or the newest that there is."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_SHORT.pack(min(version, VERSION_MAX)), _INT.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts += [_SHORT.pack(len(name)), name, _INT.pack(len(numbers))]
        parts += [_INT.pack(number) for number in numbers]
    return b"".join((*parts, _INT.pack(-1)))


def _owned(reader: _Reader, version: int) -> frozenset[NamedPartition]:
    for _ in range(reader.count()):
        reader.text()
    reader.skip_bytes()
    return reader.partitions() if version >= 1 else frozenset()


def _read(data: bytes, read: Callable[[_Reader, int], T]) -> T:
    """NoConsumer for whatever is not in this form."""
    reader = _Reader(data)
    try:
        version = reader.number(_SHORT)
        if version < 0:
            raise NoConsumer(f"there is no version {version}")
        return read(reader, version)
    except (struct.error, UnicodeDecodeError) as error:
        raise NoConsumer(str(error)) from error
