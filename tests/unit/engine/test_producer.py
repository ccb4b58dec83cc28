"""Producer state: retries are harmless, gaps and old epochs are refused."""

from __future__ import annotations

import struct
import zlib

import pytest

from headrace.core.errors import (
    CorruptLog,
    FencedProducer,
    InvalidArgument,
    OutOfOrderSequence,
    UnsupportedFormat,
)
from headrace.engine.producer import (
    DecidedTransaction,
    Duplicate,
    OpenTransaction,
    ProducerState,
)
from headrace.record.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.record.control import ControlKind, ControlMarker

SEQUENCE_MAX = 2**31 - 1


def batch(
    sequence: int,
    count: int = 1,
    *,
    producer: int = 9,
    epoch: int = 0,
    control: bool = False,
    transactional: bool = False,
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=CONTROL * control | TRANSACTIONAL * transactional,
        last_offset_delta=count - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def append(state: ProducerState, header: BatchHeader, offset: int, now_ms: int = 0) -> None:
    assert state.check(header, now_ms) is None
    state.on_append(header, offset, now_ms)


def test_a_batch_without_a_producer_id_passes_and_leaves_no_trace() -> None:
    state = ProducerState()
    append(state, batch(-1, producer=-1, epoch=-1), 0)
    append(state, batch(-1, producer=-1, epoch=-1), 1)
    assert len(state) == 0


def test_batches_in_sequence_pass() -> None:
    state = ProducerState()
    append(state, batch(0, 10), 100)
    append(state, batch(10, 5), 110)
    append(state, batch(15), 115)
    assert len(state) == 1


def test_a_batch_that_is_sent_again_is_answered_with_its_offsets() -> None:
    state = ProducerState()
    append(state, batch(0, 10), 100)
    append(state, batch(10, 5), 200)
    assert state.check(batch(0, 10), 1) == Duplicate(100, 109)
    assert state.check(batch(10, 5), 1) == Duplicate(200, 204)


def test_the_last_five_batches_are_remembered_and_older_ones_are_out_of_order() -> None:
    state = ProducerState()
    for number in range(6):
        append(state, batch(number), number)
    for number in range(1, 6):
        assert state.check(batch(number), 1) == Duplicate(number, number)
    with pytest.raises(OutOfOrderSequence):
        state.check(batch(0), 1)


def test_a_batch_that_overlaps_another_without_being_it_is_out_of_order() -> None:
    state = ProducerState()
    append(state, batch(0, 10), 100)
    with pytest.raises(OutOfOrderSequence):
        state.check(batch(0, 9), 1)
    with pytest.raises(OutOfOrderSequence):
        state.check(batch(5, 10), 1)


def test_a_gap_is_refused_and_changes_nothing() -> None:
    state = ProducerState()
    append(state, batch(0, 10), 100)
    with pytest.raises(OutOfOrderSequence, match="sequence 11 where 10 comes next"):
        state.check(batch(11), 1)
    append(state, batch(10), 110)


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    state = ProducerState()
    append(state, batch(12345), 0)
    append(state, batch(12346), 1)


def test_the_sequence_goes_on_at_zero_after_its_maximum() -> None:
    state = ProducerState()
    append(state, batch(SEQUENCE_MAX - 1, 2), 0)
    append(state, batch(0), 2)
    other = ProducerState()
    append(other, batch(SEQUENCE_MAX - 1, 5), 0)
    append(other, batch(3), 5)
    assert other.check(batch(SEQUENCE_MAX - 1, 5), 0) == Duplicate(0, 4)


def test_a_lower_epoch_is_fenced() -> None:
    state = ProducerState()
    append(state, batch(0, epoch=3), 0)
    with pytest.raises(FencedProducer):
        state.check(batch(1, epoch=2), 1)


def test_a_new_epoch_starts_at_zero() -> None:
    state = ProducerState()
    append(state, batch(0, epoch=3), 0)
    with pytest.raises(OutOfOrderSequence):
        state.check(batch(1, epoch=4), 1)
    append(state, batch(0, epoch=4), 1)
    append(state, batch(1, epoch=4), 2)


def test_the_same_sequence_in_a_new_epoch_is_no_duplicate() -> None:
    state = ProducerState()
    append(state, batch(0, epoch=3), 50)
    append(state, batch(0, epoch=4), 51)
    assert state.check(batch(0, epoch=4), 1) == Duplicate(51, 51)


def test_a_control_batch_leaves_the_sequence_as_it_is() -> None:
    state = ProducerState()
    append(state, batch(0, 3), 0)
    append(state, batch(-1, control=True), 3)
    append(state, batch(3), 4)


def test_a_control_batch_of_a_new_epoch_fences_the_old_one() -> None:
    state = ProducerState()
    append(state, batch(0, 3), 0)
    append(state, batch(-1, epoch=1, control=True), 3)
    with pytest.raises(FencedProducer):
        state.check(batch(3), 1)
    with pytest.raises(OutOfOrderSequence):
        state.check(batch(3, epoch=1), 1)
    append(state, batch(0, epoch=1), 4)


def test_records_of_a_producer_without_a_sequence_are_refused() -> None:
    with pytest.raises(InvalidArgument):
        ProducerState().check(batch(-1), 0)


def test_producers_do_not_disturb_each_other() -> None:
    state = ProducerState()
    append(state, batch(0, producer=1), 0)
    append(state, batch(0, producer=2), 1)
    append(state, batch(1, producer=1), 2)
    assert state.check(batch(0, producer=2), 0) == Duplicate(1, 1)


def test_a_producer_that_was_silent_for_long_is_forgotten() -> None:
    state = ProducerState()
    append(state, batch(0, producer=1), 0, now_ms=1_000)
    append(state, batch(0, producer=2), 1, now_ms=1_500)
    assert state.expire(1_999, 1_000) == 0
    assert state.expire(2_000, 1_000) == 1
    assert state.check(batch(77, producer=1), 2_000) is None
    with pytest.raises(OutOfOrderSequence):
        state.check(batch(77, producer=2), 2_000)


def test_a_producer_that_still_retries_is_not_forgotten() -> None:
    state = ProducerState()
    append(state, batch(0), 0, now_ms=1_000)
    assert state.check(batch(0), 1_900) == Duplicate(0, 0)
    assert state.expire(2_000, 1_000) == 0
    assert state.check(batch(0), 2_000) == Duplicate(0, 0)


def test_the_producer_seen_least_recently_goes_when_there_are_too_many() -> None:
    state = ProducerState(producers_max=2)
    append(state, batch(0, producer=1), 0)
    append(state, batch(0, producer=2), 1)
    append(state, batch(1, producer=1), 2)
    append(state, batch(0, producer=3), 3)
    assert len(state) == 2
    assert state.check(batch(1, producer=1), 0) == Duplicate(2, 2)
    assert state.check(batch(55, producer=2), 0) is None


def test_truncation_forgets_batches_at_and_above_the_offset() -> None:
    state = ProducerState()
    append(state, batch(0, 10), 0)
    append(state, batch(10, 10), 10)
    append(state, batch(20, 10), 20)
    append(state, batch(0, producer=5), 30)
    state.truncate_to(20)
    assert state.check(batch(10, 10), 0) == Duplicate(10, 19)
    append(state, batch(20, 10), 20)
    assert len(state) == 1


def test_truncation_takes_back_the_epoch_of_what_was_lost() -> None:
    state = ProducerState()
    append(state, batch(0, epoch=1), 0)
    append(state, batch(0, epoch=2), 1)
    state.truncate_to(1)
    append(state, batch(1, epoch=1), 1)


def test_a_snapshot_knows_what_the_state_knew() -> None:
    state = ProducerState()
    for number in range(7):
        append(state, batch(number * 3, 3, producer=1, epoch=4), number * 10, now_ms=number)
    append(state, batch(SEQUENCE_MAX, producer=2**62, epoch=32767), 2**62, now_ms=99)
    again = ProducerState.decode(state.encode())
    assert again.encode() == state.encode()
    assert again.check(batch(18, 3, producer=1, epoch=4), 0) == Duplicate(60, 62)
    append(again, batch(0, producer=2**62, epoch=32767), 2**62 + 1)
    assert len(ProducerState.decode(ProducerState().encode())) == 0


def test_a_snapshot_with_any_bit_flipped_or_any_byte_missing_is_corrupt() -> None:
    state = ProducerState()
    append(state, batch(0, 3, transactional=True), 5)
    encoded = state.encode()
    for length in range(len(encoded)):
        with pytest.raises(CorruptLog):
            ProducerState.decode(encoded[:length])
    for place in range(len(encoded) * 8):
        flipped = bytearray(encoded)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(CorruptLog):
            ProducerState.decode(bytes(flipped))


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", zlib.crc32(body))


def test_a_snapshot_that_lies_under_a_good_checksum_is_corrupt() -> None:
    state = ProducerState()
    append(state, batch(0, 3), 5)
    body = state.encode()[:-4]
    batch_count_at = 10 + 20
    lies = [
        b"XXXX" + body[4:],
        body + b"\0",
        body[:-1],
        body[:6] + struct.pack(">I", 2) + body[10:],
        body[:batch_count_at] + b"\x00" + body[batch_count_at + 1 :],
        body[:batch_count_at] + b"\x06" + body[batch_count_at + 1 :],
    ]
    for lie in lies:
        with pytest.raises(CorruptLog):
            ProducerState.decode(sealed(lie))


def test_a_snapshot_of_another_version_is_named_as_such() -> None:
    body = ProducerState().encode()[:-4]
    with pytest.raises(UnsupportedFormat, match="version 1"):
        ProducerState.decode(sealed(body[:4] + struct.pack(">H", 1) + body[6:]))


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    state = ProducerState(producers_max=2)
    append(state, batch(0, producer=1, transactional=True), 0)
    for number in range(2, 6):
        append(state, batch(0, producer=number), number)
    assert [each.producer_id for each in state.active()] == [1, 5]
    assert state.expire(1_000_000, 1) == 1
    assert [each.producer_id for each in state.active()] == [1]
    marker = ControlMarker(ControlKind.COMMIT, 9, 0, 1, 0, 3)
    assert state.on_marker(marker, 0) == DecidedTransaction(1, 0, 9, False, 10)
    assert state.expire(1_000_000, 1) == 1


def test_a_snapshot_knows_open_transactions_and_coordinators() -> None:
    state = ProducerState()
    append(state, batch(0, producer=3, epoch=2, transactional=True), 4, now_ms=7)
    append(state, batch(0, producer=2, transactional=True), 5)
    append(state, batch(0, producer=1, transactional=True), 6)
    state.on_marker(ControlMarker(ControlKind.ABORT, 7, 0, 2, 0, 11), 0)
    again = ProducerState.decode(state.encode())
    assert again.open_transactions() == state.open_transactions()
    assert again.open_transactions()[0] == OpenTransaction(3, 2, 4, 7)
    assert again.active() == state.active()
    by_id = {each.producer_id: each for each in again.active()}
    assert by_id[2].coordinator_epoch == 11
    assert by_id[3].transaction_first_offset == 4
    assert by_id[3].coordinator_epoch == by_id[2].transaction_first_offset == -1
