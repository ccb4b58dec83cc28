"""A reader of what Kafka's coordinators write, made from Kafka's definitions alone
(OffsetCommitKey, OffsetCommitValue, TransactionLogKey, TransactionLogValue): a tool that
knows nothing of us."""

from __future__ import annotations

from struct import unpack_from
from typing import NamedTuple


class Offset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int


class TransactionState(NamedTuple):
    producer_id: int
    epoch: int
    timeout_ms: int
    state: int
    partitions: dict[str, list[int]] | None
    changed_at_ms: int
    started_at_ms: int
    tags: dict[int, int]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def number(self, form: str) -> int:
        (value,) = unpack_from(f">{form}", self.data, self.position)
        self.position += {"b": 1, "h": 2, "i": 4, "q": 8}[form]
        return int(value)

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        assert len(taken) == size
        self.position += size
        return taken

    def string(self) -> str:
        return self.take(self.number("h")).decode()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_string(self) -> str:
        return self.take(self.varint() - 1).decode()

    def end(self) -> None:
        assert self.position == len(self.data), "something is left"


def decode_offset_key(data: bytes) -> tuple[str, str, int]:
    reader = _Reader(data)
    assert reader.number("h") == 1, "another kind of record"
    key = reader.string(), reader.string(), reader.number("i")
    reader.end()
    return key


def decode_offset_value(data: bytes) -> Offset:
    reader = _Reader(data)
    assert reader.number("h") == 3, "another version"
    value = Offset(reader.number("q"), reader.number("i"), reader.string(), reader.number("q"))
    reader.end()
    return value


def decode_transaction_key(data: bytes) -> str:
    reader = _Reader(data)
    assert reader.number("h") == 0, "another kind of record"
    name = reader.string()
    reader.end()
    return name


def decode_transaction_value(data: bytes) -> TransactionState:
    reader = _Reader(data)
    assert reader.number("h") == 1, "another version"
    producer_id, epoch, timeout_ms, state = (reader.number(form) for form in "qhib")
    partitions: dict[str, list[int]] | None = None
    count = reader.varint()
    if count:
        partitions = {}
        for _ in range(count - 1):
            topic = reader.compact_string()
            partitions[topic] = [reader.number("i") for _ in range(reader.varint() - 1)]
            assert reader.varint() == 0
    changed_at_ms, started_at_ms = reader.number("q"), reader.number("q")
    tags = {}
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        tags[tag] = int.from_bytes(reader.take(size), "big", signed=True)
    reader.end()
    return TransactionState(
        producer_id, epoch, timeout_ms, state, partitions, changed_at_ms, started_at_ms, tags
    )
