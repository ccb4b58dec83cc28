"""What is written of a group's members, for machines whose coordinator starts anew."""

from __future__ import annotations

from types import UnionType
from typing import Any, Protocol

from headrace.engine.coordinator.stored import Unwritten, decode_member, encode_member


class Written(Protocol):
    def unwritten(self, written: set[str]) -> Unwritten: ...
    def on_written(self) -> None: ...


class Notebook:
    def __init__(self) -> None:
        self._members: dict[str, bytes] = {}

    def write(self, group: Written) -> None:
        for member_id, record in group.unwritten(set(self._members)).items():
            self._members.pop(member_id, None)
            if record is not None:
                self._members[member_id] = encode_member(record)
        group.on_written()
        assert not group.unwritten(set(self._members))

    def read(self, kind: type | UnionType) -> dict[str, Any]:
        """What is written under each id, all of it of this kind."""
        found: dict[str, Any] = {}
        for member_id, value in self._members.items():
            record = decode_member(value)
            assert isinstance(record, kind)
            found[member_id] = record
        return found
