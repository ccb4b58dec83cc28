"""Runs: many Produce requests of one client to one partition, read in one go.

A client that does not wait sends requests that differ in three places only:

    size | key, version | correlation id | client id ... topic, partition | length | batch | tags
           '--- head --'                   '----------- middle ---------'                  'tail'

What they have in common is their route, learnt from the first of them, which the
ordinary codec decodes. The others are compared with it, their batches checked, and
all of them appended with one write and answered with one buffer: the answers differ
in two places, the correlation id and the offset, which the batches hold by then.

A run ends where a request is any different: another partition, a batch that the
ordinary way would refuse, a producer or a sequence number that does not follow. What
ends it is handled the ordinary way, so that every refusal is said in one place only.

Rejected: a faster codec for every request. What one request costs beside its codec,
a slot, a commit, a write and a future, is more, and is shared only by a run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from headrace.compiled import compiled
from headrace.core.errors import CorruptBatch, MalformedMessage
from headrace.core.ports import Buffer
from headrace.record.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    check_batch,
)
from headrace.wire.kafka.api import APIS, encode_request, encode_response
from headrace.wire.kafka.frame import RequestHeader, encode_response_frame
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.generated.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.kafka.primitives import encode_varint, read_varint

PRODUCE: Final = 0
# How many routes are remembered for a connection, and how long one may be: clients
# choose their names.
ROUTES_MAX: Final = 64
MIDDLE_BYTES_MAX: Final = 512

_SIZE: Final = Struct(">i")
_OFFSET: Final = Struct(">q")
# Batches with one of these go the ordinary way, which refuses or knows them.
_UNUSUAL: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | DELETE_HORIZON
_SEQUENCE_MASK: Final = 2**31 - 1


class Route(NamedTuple):
    """What a client's requests to one partition have in common."""

    head: bytes
    middle: bytes
    tail: bytes
    # Whether lengths are varints.
    is_flexible: bool
    version: int
    name: str
    topic_id: bytes
    # A tuple's own `index` is of no use here.
    index: int  # type: ignore[assignment]


class Run(NamedTuple):
    # Where the frame behind the run starts.
    stop: int
    # Four bytes for each request, as they came.
    correlation_ids: bytes
    # Back to back. Those of a run of one are the frame's own bytes.
    batches: bytearray | memoryview


class Answer(NamedTuple):
    """An answer to a request of one partition, and where its offset lies."""

    template: bytes
    offset_at: int


class Routes:
    """Those of one connection, the latest first to be tried."""

    __slots__ = ("_answers", "_by_middle", "_lengths")

    def __init__(self) -> None:
        self._by_middle: OrderedDict[bytes, Route] = OrderedDict()
        self._lengths: list[int] = []
        # What they are answered with, and the start of the log at that time.
        self._answers: dict[bytes, tuple[int, Answer]] = {}

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """From a request that was handled the ordinary way, if runs of it are any use."""
        route = route_of(frame, header, request)
        if route is None or len(route.middle) > MIDDLE_BYTES_MAX:
            return
        self._by_middle[route.middle] = route
        self._answers.pop(route.middle, None)
        if len(self._by_middle) > ROUTES_MAX:
            self._answers.pop(self._by_middle.popitem(last=False)[0], None)
        self._lengths = sorted({len(middle) for middle in self._by_middle})

    def find(self, data: memoryview, start: int) -> Route | None:
        """The route of the request whose frame starts here."""
        for length in self._lengths:
            route = self._by_middle.get(bytes(data[start + 12 : start + 12 + length]))
            if route is not None and data[start + 4 : start + 8] == route.head:
                return route
        return None

    def answer(self, route: Route, log_start_offset: int) -> Answer:
        """What its requests are answered with when all is well."""
        known, answer = self._answers.get(route.middle, (-1, None))
        if answer is None or known != log_start_offset:
            answer = encode_answer(route, 0, log_start_offset)
            self._answers[route.middle] = (log_start_offset, answer)
        return answer


def route_of(frame: memoryview, header: RequestHeader, request: ProduceRequest) -> Route | None:
    """None when the request is not of the kind that runs are made of: one batch, for
    one partition, to be answered, and encoded as every client encodes it."""
    if request.acks not in (-1, 1) or request.transactional_id is not None:
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    [(name, topic_id, [(index, records)])] = request.topic_data
    if not records:
        return None
    version = header.api_version
    # Encoded anew it must be the same but for the batch itself.
    wanted = ProduceRequest(
        None,
        request.acks,
        request.timeout_ms,
        (TopicProduceData(name, topic_id, (PartitionProduceData(index, records),)),),
    )
    before, _, *after = encode_request(PRODUCE, version, wanted)
    tail = b"".join(after)
    stop = header.body_position + len(before)
    if frame[header.body_position : stop] != before or len(frame) != (
        stop + len(records) + len(tail)
    ):
        return None
    is_flexible = APIS[PRODUCE].is_flexible(version)
    length_bytes = len(encode_varint(len(records) + 1)) if is_flexible else 4
    middle = bytes(frame[8 : stop - length_bytes])
    return Route(bytes(frame[:4]), middle, tail, is_flexible, version, name, topic_id, index)


@compiled
def read_run(
    data: memoryview,
    start: int,
    route: Route,
    batch_bytes_max: int,
    count_max: int,
    timestamp_ms_max: int = 2**63 - 1,
) -> Run | None:
    """The requests of this route that follow one another from `start` on, at most
    `count_max`, with no batch larger than `batch_bytes_max` and no record later than
    `timestamp_ms_max`; None when the first is not one of them. Their batches are checked,
    of one producer and in sequence."""
    end = len(data)
    head, middle, tail = route.head, route.middle, route.tail
    correlation_ids = []
    batches: list[memoryview] = []
    producer: tuple[int, int, int] | None = None
    while len(batches) < count_max and end - start >= 4:
        stop = start + 4 + _SIZE.unpack_from(data, start)[0]
        at = start + 12 + len(middle)
        if not at < stop <= end or (
            data[start + 4 : start + 8] != head or data[start + 12 : at] != middle
        ):
            break
        batch = _find_batch(data, at, stop, route.is_flexible, tail)
        if batch is None or len(batch) > batch_bytes_max:
            break
        try:
            header = check_batch(batch)
        except CorruptBatch:
            break
        if (
            header.batch_length + LENGTH_OVERHEAD != len(batch)
            or header.attributes & _UNUSUAL
            or not 0 < header.count == header.last_offset_delta + 1
            or max(header.base_timestamp_ms, header.max_timestamp_ms) > timestamp_ms_max
        ):
            break
        sequence = header.base_sequence
        if header.producer_id >= 0 and sequence < 0:
            break
        if producer is not None and producer != (
            header.producer_id,
            header.producer_epoch,
            sequence,
        ):
            break
        following = (sequence + header.count) & _SEQUENCE_MASK if sequence >= 0 else sequence
        producer = (header.producer_id, header.producer_epoch, following)
        correlation_ids.append(data[start + 8 : start + 12])
        batches.append(batch)
        start = stop
    if not batches:
        return None
    joined = batches[0] if len(batches) == 1 else bytearray().join(batches)
    return Run(start, b"".join(correlation_ids), joined)


def _find_batch(
    data: memoryview, at: int, stop: int, is_flexible: bool, tail: bytes
) -> memoryview | None:
    """The bytes between the length, which is at `at`, and the tail."""
    end = stop - len(tail)
    # A varint of five bytes, or an integer of four, and a batch behind it.
    if at + 5 > end or data[end:stop] != tail:
        return None
    if is_flexible:
        try:
            length, at = read_varint(data, at)
        except MalformedMessage:
            return None
        length -= 1
    else:
        (length,) = _SIZE.unpack_from(data, at)
        at += 4
    return data[at:end] if length == end - at >= HEADER_BYTES else None


def encode_answer(route: Route, error_code: int, log_start_offset: int) -> Answer:
    """What every request of a run is answered with, but for the correlation id and,
    when all is well, the offset."""
    good, other = (
        _encode(
            route, PartitionProduceResponse(route.index, error_code, offset, -1, log_start_offset)
        )
        for offset in (-1, 0)
    )
    if error_code:
        return Answer(good, 0)
    # The offset is where an answer of -1, all ones, differs from one of 0.
    first = next(at for at in range(len(good)) if good[at] != other[at])
    return Answer(good, first)


def _encode(route: Route, partition: PartitionProduceResponse) -> bytes:
    topic = TopicProduceResponse(route.name, route.topic_id, (partition,))
    body = encode_response(PRODUCE, route.version, ProduceResponse(responses=(topic,)))
    return b"".join(encode_response_frame(PRODUCE, route.version, 0, body))


@compiled
def write_answers(answer: Answer, correlation_ids: bytes, batches: Buffer) -> bytes:
    """The answers to a run whose batches have their offsets."""
    template, offset_at = answer
    size, between, rest = template[:4], template[8:offset_at], template[offset_at + 8 :]
    parts: list[Buffer] = []
    at = 0
    for number in range(0, len(correlation_ids), 4):
        parts += (
            size,
            correlation_ids[number : number + 4],
            between,
            batches[at : at + 8],
            rest,
        )
        at += LENGTH_OVERHEAD + _SIZE.unpack_from(batches, at + 8)[0]
    return b"".join(parts)


def write_refusals(answer: Answer, correlation_ids: bytes) -> bytes:
    """The same answer to all requests of a run."""
    size, rest = answer.template[:4], answer.template[8:]
    parts: Sequence[Buffer] = [
        part
        for number in range(0, len(correlation_ids), 4)
        for part in (size, correlation_ids[number : number + 4], rest)
    ]
    return b"".join(parts)
