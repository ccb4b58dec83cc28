"""Records of Kafka's coordinators, as tools read them from a broker's internal topics.

    topic                  key                              value
    __consumer_offsets     1 | group topic partition        3 | offset leader_epoch metadata
                                                                committed_at
    __transaction_state    0 | transactional_id             1 | producer_id epoch timeout state
                                                                partitions changed_at started_at
                                                                tagged fields

Each begins with a number of 16 bits: of a key it says what the record is about, of a value
its version. A null value says that there is nothing under that key any more. The layouts are
those of Kafka's definitions OffsetCommitKey, OffsetCommitValue, TransactionLogKey and
TransactionLogValue.

Rejected: version 4 of OffsetCommitValue, which brokers of Kafka 4.3 write. It adds the topic's
id; tools that follow the topic (Burrow and its like) know no version above 3, and whatever
reads 4 reads 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from headrace.wire.kafka.primitives import (
    compact_numbers,
    compact_string,
    encode_varint,
    legacy_string,
)

_OFFSET_KEY: Final = b"\0\1"
_TRANSACTION_KEY: Final = b"\0\0"
# Their versions come first.
_OFFSET_VALUE: Final = Struct(">hqi")
_TRANSACTION_VALUE: Final = Struct(">hqhib")
_OFFSET_VALUE_VERSION: Final = 3
_TRANSACTION_VALUE_VERSION: Final = 1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_TIMES: Final = Struct(">qq")
_NULL: Final = b"\0"
_NO_TAGS: Final = b"\0"

# The numbers that Kafka's TransactionState gives its names.
_STATES: Final = {
    "Empty": 0,
    "Ongoing": 1,
    "PrepareCommit": 2,
    "PrepareAbort": 3,
    "CompleteCommit": 4,
    "CompleteAbort": 5,
}


class TransactionValue(NamedTuple):
    producer_id: int
    epoch: int
    timeout_ms: int
    # One of Kafka's names.
    state: str
    # By topic; None where Kafka has none, which is in the state Empty.
    partitions: Mapping[str, Sequence[int]] | None
    changed_at_ms: int
    started_at_ms: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    # Of the transaction protocol that the client spoke: 2 is that of KIP-890.
    client_version: int = 0


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    return _OFFSET_KEY + legacy_string(group) + legacy_string(topic) + _INT32.pack(partition)


def encode_offset_value(
    offset: int, leader_epoch: int, metadata: str, committed_at_ms: int
) -> bytes:
    head = _OFFSET_VALUE.pack(_OFFSET_VALUE_VERSION, offset, leader_epoch)
    return head + legacy_string(metadata) + _INT64.pack(committed_at_ms)


def encode_transaction_key(transactional_id: str) -> bytes:
    return _TRANSACTION_KEY + legacy_string(transactional_id)


def encode_transaction_value(value: TransactionValue) -> bytes:
    parts = [
        _TRANSACTION_VALUE.pack(
            _TRANSACTION_VALUE_VERSION,
            value.producer_id,
            value.epoch,
            value.timeout_ms,
            _STATES[value.state],
        )
    ]
    if value.partitions is None:
        parts.append(_NULL)
    else:
        parts.append(encode_varint(len(value.partitions) + 1))
        for topic, indexes in value.partitions.items():
            parts += (compact_string(topic), compact_numbers("i", indexes), _NO_TAGS)
    parts.append(_TIMES.pack(value.changed_at_ms, value.started_at_ms))
    tagged = [
        (0, _INT64, value.previous_producer_id, -1),
        (1, _INT64, value.next_producer_id, -1),
        (2, _INT16, value.client_version, 0),
    ]
    given = [(tag, form.pack(number)) for tag, form, number, default in tagged if number != default]
    parts.append(encode_varint(len(given)))
    for tag, field in given:
        parts += (encode_varint(tag), encode_varint(len(field)), field)
    return b"".join(parts)
