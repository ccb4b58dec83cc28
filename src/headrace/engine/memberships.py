"""Memberships: who the members of stream groups are, in the topic of their cursors.

    key     group, member id        msgpack
    value   see coordinator/stored  msgpack, or null: the member is gone

The coordinator of a group (at the Kafka door) holds what counts. Here its records are written,
and read when the directory is opened, for the coordinator to begin with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from headrace.core.limits import MEMBERSHIP_BATCH_BYTES
from headrace.engine.coordinator.stored import (
    StoredMember,
    Unwritten,
    decode_member,
    encode_member,
)
from headrace.record import NewRecord, Record

_key_decoder: Final[msgspec.msgpack.Decoder[tuple[str, str]]] = msgspec.msgpack.Decoder(
    tuple[str, str]
)
_encoder: Final = msgspec.msgpack.Encoder()
# How msgpack begins an array of two. Keys of cursors have three.
_PAIR: Final = b"\x92"


def is_membership(record: Record) -> bool:
    """Whether a record of the topic is about a member, not about a cursor."""
    return record.key is not None and record.key[:1] == _PAIR


class Memberships:
    def __init__(self) -> None:
        # By group and member, in the order in which they were written.
        self._found: dict[str, dict[str, bytes]] = {}

    def read(self, record: Record) -> None:
        """Take note of what was written, in its order."""
        group, member = _key_decoder.decode(record.key or b"")
        members = self._found.setdefault(group, {})
        members.pop(member, None)
        if record.value is not None:
            members[member] = bytes(record.value)
        elif not members:
            del self._found[group]

    def members(self, group: str) -> list[str]:
        return list(self._found.get(group, ()))

    def forget(self, group: str) -> None:
        """Somebody else reads as this group now."""
        self._found.pop(group, None)

    def take(self) -> Iterator[tuple[str, dict[str, StoredMember]]]:
        """Groups and their members as they were found. They are forgotten here."""
        found, self._found = self._found, {}
        for group, members in found.items():
            known = {}
            for name, value in members.items():
                # Whoever is not understood joins again: no reason for a node not to start.
                with suppress(msgspec.DecodeError):
                    known[name] = decode_member(value)
            yield group, known


def membership_records(group: str, changed: Unwritten, now_ms: int) -> Iterator[list[NewRecord]]:
    """Records of bounded size together, each list for a batch of its own."""
    records: list[NewRecord] = []
    size = 0
    for member, stored in changed.items():
        value = None if stored is None else encode_member(stored)
        records.append(NewRecord(_encoder.encode((group, member)), value, (), now_ms))
        size += len(value or b"")
        if size >= MEMBERSHIP_BATCH_BYTES:
            yield records
            records, size = [], 0
    if records:
        yield records
