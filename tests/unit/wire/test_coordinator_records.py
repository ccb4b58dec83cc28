"""Records of Kafka's coordinators, written here and read by Kafka's definitions."""

from __future__ import annotations

import pytest
from tests.unit.wire.coordinator_decoder import (
    decode_offset_key,
    decode_offset_value,
    decode_transaction_key,
    decode_transaction_value,
)

from headrace.wire.kafka.coordinator_records import (
    TransactionValue,
    encode_offset_key,
    encode_offset_value,
    encode_transaction_key,
    encode_transaction_value,
)

LONGEST = "x" * 249


@pytest.mark.parametrize("group", ["g", "größe", LONGEST])
def test_offsets_are_read_as_they_were_written(group: str) -> None:
    key = encode_offset_key(group, LONGEST, 2**31 - 1)
    assert decode_offset_key(key) == (group, LONGEST, 2**31 - 1)
    for value in ((0, -1, "", 0), (2**63 - 1, 7, "é" * 2_000, 2**42), (-2, 0, "note", 1)):
        assert decode_offset_value(encode_offset_value(*value)) == value


def test_an_offset_has_the_bytes_that_the_definition_says() -> None:
    assert encode_offset_key("g", "t", 2) == bytes.fromhex("0001 0001 67 0001 74 00000002")
    assert encode_offset_value(5, -1, "m", 9) == bytes.fromhex(
        "0003 0000000000000005 ffffffff 0001 6d 0000000000000009"
    )


@pytest.mark.parametrize("count", [0, 1, 16, 17, 130, 2_000])
def test_transactions_are_read_as_they_were_written(count: int) -> None:
    assert decode_transaction_key(encode_transaction_key("é" * 300)) == "é" * 300
    partitions = {LONGEST: list(range(count))} | {f"topic-{n}": [n] for n in range(count)}
    value = TransactionValue(2**40, 2**15 - 1, 2**31 - 1, "PrepareAbort", partitions, 2, 1)
    decoded = decode_transaction_value(encode_transaction_value(value))
    assert decoded == (2**40, 2**15 - 1, 2**31 - 1, 3, partitions, 2, 1, {})


def test_a_transaction_has_the_bytes_that_the_definition_says() -> None:
    value = TransactionValue(1, 2, 3, "Empty", None, 5, -1, previous_producer_id=8)
    assert encode_transaction_value(value) == bytes.fromhex(
        "0001 0000000000000001 0002 00000003 00 00 0000000000000005 ffffffffffffffff"
        "01 00 08 0000000000000008"
    )
    tagged = value._replace(next_producer_id=9, client_version=2)
    assert decode_transaction_value(encode_transaction_value(tagged)).tags == {0: 8, 1: 9, 2: 2}
