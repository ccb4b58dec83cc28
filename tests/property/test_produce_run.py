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
from headrace.record.placing import Progress, places_of
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
    ROUTES_MAX,
    Route,
    Routes,
    encode_answer,
    write_answers,
    write_refusals,
)

READ = twins("headrace.wire.kafka.produce_run.read_run")
PLACE = twins("headrace.record.placing.place_batches")
WRITE = "headrace.wire.kafka.produce_run.write_answers"
BYTES_MAX = 3000
COUNT_MAX = 8
# Of the partition to which no run goes.
CLOSED = 9
AT_MS = 1_700_000_000_000

versions = st.integers(APIS[0].first, APIS[0].last).filter(lambda version: version >= 3)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(1, 3))
    size = draw(st.sampled_from([0, 5, 100, 2100, 3500]))
    at_ms = AT_MS + draw(st.sampled_from([-1, -1, -1, 0, 1]))
    records = [NewRecord(None, bytes(size), (), at_ms)] * count
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


def learnt(*frames: bytes) -> Routes:
    routes = Routes()
    for frame in frames:
        view = memoryview(frame)[4:]
        header = decode_request_header(view)
        request: Any = decode_request(0, header.api_version, view, header.body_position)
        routes.learn(view, header, request)
    assert len(routes.by_middle) == len(frames)
    return routes


def routes_to(version: int, *indexes: int) -> Routes:
    batch = bytes(build_batch([NewRecord(None, b"x", (), 1)]))
    return learnt(*(frame_of(version, 0, batch, index) for index in indexes))


def bounds_of(route: Route) -> tuple[int, int, object] | None:
    return None if route.index == CLOSED else (BYTES_MAX, AT_MS, f"target {route.index}")


@given(data=st.data(), version=versions)
def test_both_twins_read_the_same_runs_and_only_what_the_codec_reads(
    data: st.DataObject, version: int
) -> None:
    # To one of them no request went before.
    routes = routes_to(version, 3, 4, 5, CLOSED)
    sent = bytearray()
    for number in range(data.draw(st.integers(1, 9))):
        index = data.draw(st.sampled_from([3, 3, 3, 4, 4, 5, 6, CLOSED]))
        sent += frame_of(version, number, data.draw(batches()), index)
    if data.draw(st.integers(0, 3)) == 0:
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.integers(0, 3)) == 0:
        del sent[data.draw(st.integers(0, len(sent))) :]
    start = data.draw(st.sampled_from([0, 0, 0, 1, 7]))
    run = READ.plain(memoryview(sent), start, routes, bounds_of, COUNT_MAX)
    if READ.compiled is not None:
        assert run == READ.compiled(memoryview(sent), start, routes, bounds_of, COUNT_MAX)
    if run is None:
        return
    read: list[list[bytes]] = [[] for _ in run.parts]
    numbers = []
    for which in run.order:
        size = int.from_bytes(sent[start : start + 4], "big")
        frame = memoryview(sent)[start + 4 : start + 4 + size]
        header = decode_request_header(frame)
        request: Any = decode_request(0, header.api_version, frame, header.body_position)
        [(_, _, [(index, records)])] = request.topic_data
        found = check_batch(records)
        assert len(records) <= BYTES_MAX and found.max_timestamp_ms <= AT_MS
        assert run.parts[which].route.index == index
        assert run.parts[which].target == f"target {index}"
        read[which].append(bytes(records))
        numbers.append(header.correlation_id.to_bytes(4, "big", signed=True))
        start += 4 + size
    assert start == run.stop
    assert [bytes(part.batches) for part in run.parts] == [b"".join(each) for each in read]
    assert [part.requests for part in run.parts] == [len(each) for each in read]
    assert all(read) and len(run.order) <= COUNT_MAX
    assert run.correlation_ids == b"".join(numbers)


@given(random=st.binary(max_size=200), start=st.integers(0, 10))
def test_random_bytes_are_no_run_for_either_twin(random: bytes, start: int) -> None:
    routes = routes_to(9, 3)
    data = memoryview(bytearray(random))
    assert READ.plain(data, start, routes, bounds_of, COUNT_MAX) is None
    if READ.compiled is not None:
        assert READ.compiled(data, start, routes, bounds_of, COUNT_MAX) is None


@pytest.mark.parametrize("write", both(WRITE))
@pytest.mark.parametrize("version", range(3, APIS[0].last + 1))
def test_answers_are_what_the_codec_would_have_written(
    version: int, write: Callable[..., bytes]
) -> None:
    batch = bytes(build_batch([NewRecord(None, b"x", (), 1)] * 2))
    routes = routes_to(version, 3, 4)
    indexes = (3, 4, 3, 3, 4)
    sent = bytearray(
        b"".join(frame_of(version, 7 + at, batch, index) for at, index in enumerate(indexes))
    )
    run = READ.plain(memoryview(sent), 0, routes, bounds_of, COUNT_MAX)
    for part in run.parts:
        for number in range(part.requests):
            first = 1_000_000_007 * part.route.index + 2 * number
            patch_batch(part.batches, first, 5, number * len(batch))
    answers = write([encode_answer(part.route, 0, 99) for part in run.parts], run)
    found = decode(version, answers)
    assert [number for number, _ in found] == [7, 8, 9, 10, 11]
    parts = [answer.responses[0].partition_responses[0] for _, answer in found]
    assert [(part.index, part.base_offset) for part in parts] == [
        (index, 1_000_000_007 * index + 2 * indexes[:at].count(index))
        for at, index in enumerate(indexes)
    ]
    assert {part.log_start_offset for part in parts} == {99 if version >= 5 else -1}
    assert {(part.error_code, part.log_append_time_ms) for part in parts} == {(0, -1)}


@pytest.mark.parametrize("version", range(3, APIS[0].last + 1))
def test_refusals_carry_their_code_and_no_offset_in_the_places_of_answers(version: int) -> None:
    batch = bytes(build_batch([NewRecord(None, b"x", (), 1)]))
    sent = bytearray(frame_of(version, 1, batch, 4) + frame_of(version, 2, batch, 3))
    run = READ.plain(memoryview(sent), 0, routes_to(version, 3, 4), bounds_of, COUNT_MAX)
    refused = write_refusals([encode_answer(part.route, 56, -1) for part in run.parts], run)
    assert len(refused) == len(
        write_answers([encode_answer(part.route, 0, 0) for part in run.parts], run)
    )
    found = decode(version, refused)
    assert [number for number, _ in found] == [1, 2]
    parts = [answer.responses[0].partition_responses[0] for _, answer in found]
    assert [(part.index, part.error_code, part.base_offset) for part in parts] == [
        (4, 56, -1), (3, 56, -1),
    ]  # fmt: skip


@pytest.mark.parametrize("read", both("headrace.wire.kafka.produce_run.read_run"))
def test_a_run_may_be_to_as_many_partitions_as_are_remembered(read: Callable[..., Any]) -> None:
    batch = bytes(build_batch([NewRecord(None, b"x", (), 1)]))
    routes = routes_to(9, *range(ROUTES_MAX))
    sent = bytearray(b"".join(frame_of(9, each, batch, each) for each in range(ROUTES_MAX)) * 2)
    run = read(memoryview(sent), 0, routes, lambda route: (BYTES_MAX, AT_MS, None), 1_000)
    assert run.stop == len(sent)
    assert run.order == bytes(range(ROUTES_MAX)) * 2
    assert [part.requests for part in run.parts] == [2] * ROUTES_MAX
    # And the oldest makes room for another one.
    another = memoryview(frame_of(9, 0, batch, ROUTES_MAX))[4:]
    header = decode_request_header(another)
    request: Any = decode_request(0, 9, another, header.body_position)
    routes.learn(another, header, request)
    assert len(routes.by_middle) == ROUTES_MAX
    assert read(memoryview(sent), 0, routes, bounds_of, 1_000) is None


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
    since_bytes=st.integers(0, 400),
    latest_ms=st.sampled_from([-1, 1, AT_MS]),
    interval_bytes=st.integers(0, 400),
)
def test_both_twins_give_batches_the_same_places(
    made: list[bytes],
    offset: int,
    epoch: int,
    since_bytes: int,
    latest_ms: int,
    interval_bytes: int,
) -> None:
    good = bytearray(b"".join(batch for batch in made if is_good(batch)))
    other = bytearray(good)
    progress = Progress(since_bytes, latest_ms, 0)
    placed = PLACE.plain(good, offset, epoch, progress, interval_bytes)
    if PLACE.compiled is not None:
        assert PLACE.compiled(other, offset, epoch, progress, interval_bytes) == placed
        assert other == good
    entries, latest = [], (latest_ms, 0)
    for position, header in split_batches(good):
        assert (header.base_offset, header.leader_epoch) == (offset, epoch)
        offset = header.next_offset
        # Of those that have the largest timestamp the first.
        latest = max(
            latest, (header.max_timestamp_ms, header.last_offset), key=lambda each: each[0]
        )
        if since_bytes > interval_bytes:
            entries.append((header.last_offset, position, *latest))
            since_bytes = 0
        since_bytes += header.size_bytes
    assert placed.next_offset == offset
    assert placed.entries == entries
    assert placed.progress == (since_bytes, *latest)
    assert places_of(good, progress, interval_bytes)[1:] == placed[1:]


def is_good(batch: bytes) -> bool:
    try:
        check_batch(batch)
    except Exception:
        return False
    return read_header(batch).size_bytes == len(batch) >= HEADER_BYTES


def test_the_answers_that_run_are_those_of_one_of_the_twins() -> None:
    assert write_answers in twins(WRITE)
