"""What a fetched answer holds: whole batches, and which of them are hidden."""

from __future__ import annotations

import pytest

from headrace.client.kafka.cluster import parse_address
from headrace.client.kafka.fetching import AbortedFilter, whole_batches
from headrace.core.errors import CorruptBatch, InvalidArgument
from headrace.record import (
    ControlKind,
    NewRecord,
    build_batch,
    build_control_batch,
    read_header,
)
from headrace.wire.kafka.generated.fetch_response import AbortedTransaction


def batch(base: int, count: int = 2, producer: int = -1) -> bytes:
    return bytes(
        build_batch(
            [NewRecord(None, b"%d" % n, (), 0) for n in range(count)],
            base_offset=base,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=0 if producer >= 0 else -1,
            transactional=producer >= 0,
        )
    )


def marker(base: int, producer: int, kind: ControlKind) -> bytes:
    return bytes(
        build_control_batch(
            kind,
            base_offset=base,
            leader_epoch=0,
            timestamp_ms=0,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
        )
    )


def test_whole_batches_end_where_the_next_would_be_asked_for() -> None:
    data = batch(0) + batch(2)
    records, next_offset = whole_batches(data, 0)
    assert bytes(records) == data
    assert next_offset == 4


@pytest.mark.parametrize("missing", [1, 30, 60, 70])
def test_a_batch_that_is_cut_off_waits_for_the_next_answer(missing: int) -> None:
    first, second = batch(0), batch(2)
    records, next_offset = whole_batches(first + second[:-missing], 0)
    assert bytes(records) == first
    assert next_offset == 2


def test_nothing_whole_moves_nowhere() -> None:
    assert whole_batches(b"", 7)[1] == 7
    assert whole_batches(batch(0)[:-1], 7)[1] == 7


def test_an_answer_that_is_no_batch_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        whole_batches(b"\xff" * 100, 0)


def hidden(batches: list[bytes], *aborted: AbortedTransaction) -> list[bool]:
    asked = AbortedFilter()
    asked.expect(aborted)
    return [asked.hides(each, read_header(each)) for each in batches]


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    batches = [
        batch(0, producer=5),
        batch(2, producer=6),
        marker(4, 5, ControlKind.ABORT),
        batch(5, producer=5),
        marker(7, 5, ControlKind.COMMIT),
        batch(8),
    ]
    assert hidden(batches, AbortedTransaction(5, 0)) == [True, False, True, False, True, False]


def test_a_transaction_of_a_producer_before_the_aborted_one_is_shown() -> None:
    batches = [
        batch(0, producer=5),
        marker(2, 5, ControlKind.COMMIT),
        batch(3, producer=5),
        marker(5, 5, ControlKind.ABORT),
    ]
    assert hidden(batches, AbortedTransaction(5, 3)) == [False, True, True, True]


def test_an_abort_that_began_before_the_first_batch_counts() -> None:
    batches = [batch(10, producer=5), marker(12, 5, ControlKind.ABORT)]
    assert hidden(batches, AbortedTransaction(5, 2)) == [True, True]


def test_addresses_are_host_and_port() -> None:
    assert parse_address(" localhost:9092 ") == ("localhost", 9092)
    assert parse_address("[::1]:1") == ("::1", 1)
    for wrong in ("", "localhost", ":1", "a:", "a:b", "a:0"):
        with pytest.raises(InvalidArgument):
            parse_address(wrong)
