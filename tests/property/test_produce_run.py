"""Runs of Produce requests: the twins agree with each other and with the codec, on
requests that are good, damaged, cut and mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.twins import both

from headrace.compiled import twins
from headrace.record import NewRecord, build_batch, check_batch
from headrace.record.batch import HEADER_BYTES, patch_batch, read_header, split_batches
from headrace.wire.kafka.api import APIS, decode_request, decode_response, encode_request
from headrace.wire.kafka.frame import (
    decode_request_header,
    decode_response_header,
    encode_request_frame,
)
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.produce_run import (
    Route,
    encode_answer,
    route_of,
    write_answers,
    write_refusals,
)

READ = twins("headrace.wire.kafka.produce_run.read_run")
PLACE = twins("headrace.record.placing.place_batches")
WRITE = "headrace.wire.kafka.produce_run.write_answers"
BYTES_MAX = 3000
COUNT_MAX = 8

versions = st.integers(APIS[0].first, APIS[0].last).filter(lambda version: version >= 3)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(1, 3))
    size = draw(st.sampled_from([0, 5, 100, 2100, 3500]))
    records = [NewRecord(None, bytes(size), (), 1_700_000_000_000)] * count
    producer: dict[str, Any] = {}
    if draw(st.booleans()):
        producer = {
            "producer_id": draw(st.integers(0, 1)),
            "producer_epoch": draw(st.integers(0, 1)),
            "base_sequence": draw(st.sampled_from([0, 1, 2, 3, 2**31 - 1])),
        }
    made = build_batch(records, **producer)
    if draw(st.integers(0, 9)) == 0:
        made[draw(st.integers(0, len(made) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(made)


def frame_of(version: int, number: int, batch: bytes, index: int = 3) -> bytes:
    topic_id = bytes(range(16)) if version >= 13 else bytes(16)
    name = "" if version >= 13 else "orders"
    data = TopicProduceData(name, topic_id, (PartitionProduceData(index, batch),))
    body = encode_request(0, version, ProduceRequest(None, -1, 1000, (data,)))
    return b"".join(encode_request_frame(0, version, number, "app", body))


def learnt(frame: bytes) -> Route:
    view = memoryview(frame)[4:]
    header = decode_request_header(view)
    request: Any = decode_request(0, header.api_version, view, header.body_position)
    route = route_of(view, header, request)
    assert route is not None
    return route


@given(data=st.data(), version=versions)
def test_both_twins_read_the_same_runs_and_only_what_the_codec_reads(
    data: st.DataObject, version: int
) -> None:
    route = learnt(frame_of(version, 0, bytes(build_batch([NewRecord(None, b"x", (), 1)]))))
    sent = bytearray()
    for number in range(data.draw(st.integers(1, 6))):
        index = data.draw(st.sampled_from([3, 3, 3, 3, 4]))
        sent += frame_of(version, number, data.draw(batches()), index)
    if data.draw(st.integers(0, 3)) == 0:
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.integers(0, 3)) == 0:
        del sent[data.draw(st.integers(0, len(sent))) :]
    start = data.draw(st.sampled_from([0, 0, 0, 1, 7]))
    run = READ.plain(memoryview(sent), start, route, BYTES_MAX, COUNT_MAX)
    if READ.compiled is not None:
        assert run == READ.compiled(memoryview(sent), start, route, BYTES_MAX, COUNT_MAX)
    if run is None:
        return
    read: list[bytes] = []
    numbers = []
    while start < run.stop:
        size = int.from_bytes(sent[start : start + 4], "big")
        frame = memoryview(sent)[start + 4 : start + 4 + size]
        header = decode_request_header(frame)
        request: Any = decode_request(0, header.api_version, frame, header.body_position)
        [(_, _, [(_, records)])] = request.topic_data
        check_batch(records)
        assert len(records) <= BYTES_MAX
        read.append(bytes(records))
        numbers.append(header.correlation_id.to_bytes(4, "big", signed=True))
        start += 4 + size
    assert start == run.stop
    assert bytes(run.batches) == b"".join(read)
    assert run.correlation_ids == b"".join(numbers)


@given(random=st.binary(max_size=200), start=st.integers(0, 10))
def test_random_bytes_are_no_run_for_either_twin(random: bytes, start: int) -> None:
    route = learnt(frame_of(9, 0, bytes(build_batch([NewRecord(None, b"x", (), 1)]))))
    data = memoryview(bytearray(random))
    assert READ.plain(data, start, route, BYTES_MAX, COUNT_MAX) is None
    if READ.compiled is not None:
        assert READ.compiled(data, start, route, BYTES_MAX, COUNT_MAX) is None


@pytest.mark.parametrize("write", both(WRITE))
@pytest.mark.parametrize("version", range(3, APIS[0].last + 1))
def test_answers_are_what_the_codec_would_have_written(
    version: int, write: Callable[..., bytes]
) -> None:
    batch = build_batch([NewRecord(None, b"x", (), 1)] * 2)
    route = learnt(frame_of(version, 0, bytes(batch)))
    written = bytearray(batch + batch + batch)
    for number in range(3):
        patch_batch(written, 1_000_000_007 + 2 * number, 5, number * len(batch))
    ids = b"".join(number.to_bytes(4, "big") for number in (7, 8, 2**31 - 1))
    answers = write(encode_answer(route, 0, 99), ids, written)
    found = decode(version, answers)
    assert [number for number, _ in found] == [7, 8, 2**31 - 1]
    parts = [answer.responses[0].partition_responses[0] for _, answer in found]
    assert [part.base_offset for part in parts] == [1_000_000_007 + 2 * n for n in range(3)]
    assert {part.log_start_offset for part in parts} == {99 if version >= 5 else -1}
    assert {(part.index, part.error_code, part.log_append_time_ms) for part in parts} == {
        (3, 0, -1)
    }


@pytest.mark.parametrize("version", range(3, APIS[0].last + 1))
def test_refusals_carry_their_code_and_no_offset(version: int) -> None:
    route = learnt(frame_of(version, 0, bytes(build_batch([NewRecord(None, b"x", (), 1)]))))
    found = decode(version, write_refusals(encode_answer(route, 56, -1), bytes(7) + b"\x01"))
    assert [number for number, _ in found] == [0, 1]
    for _, answer in found:
        [part] = answer.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (56, -1)


def decode(version: int, answers: bytes) -> list[tuple[int, Any]]:
    found = []
    while answers:
        size = int.from_bytes(answers[:4], "big")
        frame = answers[4 : 4 + size]
        number, at = decode_response_header(0, version, frame)
        found.append((number, decode_response(0, version, frame, at)))
        answers = answers[4 + size :]
    return found


@given(
    made=st.lists(batches(), min_size=1, max_size=5),
    offset=st.integers(0, 2**40),
    epoch=st.integers(0, 2**31 - 1),
)
def test_both_twins_give_batches_the_same_places(
    made: list[bytes], offset: int, epoch: int
) -> None:
    good = bytearray(b"".join(batch for batch in made if is_good(batch)))
    other = bytearray(good)
    end, placed = PLACE.plain(good, offset, epoch)
    if PLACE.compiled is not None:
        assert PLACE.compiled(other, offset, epoch) == (end, placed)
        assert other == good
    for (position, header), (last, at, size, timestamp_ms) in zip(
        split_batches(good), placed, strict=True
    ):
        assert (header.base_offset, header.leader_epoch) == (offset, epoch)
        assert (position, header.size_bytes) == (at, size)
        assert (header.last_offset, header.max_timestamp_ms) == (last, timestamp_ms)
        offset = header.next_offset
    assert offset == end


def is_good(batch: bytes) -> bool:
    try:
        check_batch(batch)
    except Exception:
        return False
    return read_header(batch).size_bytes == len(batch) >= HEADER_BYTES


def test_the_answers_that_run_are_those_of_one_of_the_twins() -> None:
    assert write_answers in twins(WRITE)
