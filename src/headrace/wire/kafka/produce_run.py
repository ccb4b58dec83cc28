"""Runs: many Produce requests of one client, read in one go.

A client that does not wait sends requests that differ in four places only:

    size | key, version | correlation id | client id ... topic, partition | length | batch | tags
           '--- head --'                   '----------- middle ---------'                  'tail'

What those to one partition have in common is their route, learnt from the first of them, which
the ordinary codec decodes. The others are compared with the routes that are known, and their
batches checked. What a run holds for one route is one part of it: appended with one write. All
of them are answered with one buffer: the answers to one route differ in two places, the
correlation id and the offset, which the batches hold by then.

    requests    a1 b1 a2 a3 b2 ──> parts  a: a1 a2 a3 ──> one write each ──> a1 b1 a2 a3 b2
                                          b: b1 b2                            (the answers)

A run ends where a request is any different: a partition that no request went to before, a batch
that the ordinary way would refuse, a producer or a sequence number that does not follow. What
ends it is handled the ordinary way, so that every refusal is said in one place only.

Rejected: a faster codec for every request. What one request costs beside its codec,
a slot, a commit, a write and a future, is more, and is shared only by a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

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
    timeout_ms: int


class Part(NamedTuple):
    """What a run holds for one route."""

    route: Route
    # Of how many requests.
    requests: int
    # Back to back. That of a single request is the frame's own bytes.
    batches: bytearray | memoryview
    # What came with the bounds of the route.
    target: Any


class Run(NamedTuple):
    # Where the frame behind the run starts.
    stop: int
    # Of each request: which of the parts it belongs to, a byte, and its correlation id, four,
    # as it came.
    order: bytes
    correlation_ids: bytes
    # In the order of their first requests.
    parts: list[Part]


# What the batches of one route are held to, their size and latest time; and anything else
# that the caller wants to find with their part of a run.
Bounds = tuple[int, int, Any]


class Answer(NamedTuple):
    """An answer to a request of one partition, and where its offset lies."""

    template: bytes
    offset_at: int


class Routes:
    """Those of one connection."""

    __slots__ = ("_answers", "by_middle", "lengths")

    def __init__(self) -> None:
        # The oldest first.
        self.by_middle: dict[bytes, Route] = {}
        # Of the middles.
        self.lengths: list[int] = []
        # What they are answered with, and the start of the log at that time.
        self._answers: dict[bytes, tuple[int, Answer]] = {}

    def learn(self, frame: memoryview, header: RequestHeader, request: ProduceRequest) -> None:
        """From a request that was handled the ordinary way, if runs of it are any use."""
        route = route_of(frame, header, request)
        if route is None or len(route.middle) > MIDDLE_BYTES_MAX:
            return
        self.by_middle[route.middle] = route
        self._answers.pop(route.middle, None)
        if len(self.by_middle) > ROUTES_MAX:
            oldest = next(iter(self.by_middle))
            del self.by_middle[oldest]
            self._answers.pop(oldest, None)
        self.lengths = sorted({len(middle) for middle in self.by_middle})

    def find(self, data: memoryview, start: int) -> Route | None:
        """The route of the request whose frame starts here."""
        for length in self.lengths:
            route = self.by_middle.get(bytes(data[start + 12 : start + 12 + length]))
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
    head = bytes(frame[:4])
    timeout_ms = request.timeout_ms
    return Route(head, middle, tail, is_flexible, version, name, topic_id, index, timeout_ms)


class _Part:
    """The part of one route, while a run is read."""

    def __init__(self, route: Route, number: int, bounds: Bounds) -> None:
        self.route, self.number = route, number
        self._batch_bytes_max, self._timestamp_ms_max, self._target = bounds
        self.batches: list[memoryview] = []
        # The producer of the next batch: its id, epoch and sequence number.
        self._next: tuple[int, int, int] | None = None

    def takes(self, batch: memoryview) -> bool:
        """Whether the batch may follow; then it is part of this."""
        if len(batch) > self._batch_bytes_max:
            return False
        try:
            header = check_batch(batch)
        except CorruptBatch:
            return False
        times_ms = (header.base_timestamp_ms, header.max_timestamp_ms)
        if (
            header.batch_length + LENGTH_OVERHEAD != len(batch)
            or header.attributes & _UNUSUAL
            or not 0 < header.count == header.last_offset_delta + 1
            or max(times_ms) > self._timestamp_ms_max
        ):
            return False
        sequence = header.base_sequence
        if header.producer_id >= 0 and sequence < 0:
            return False
        producer = (header.producer_id, header.producer_epoch, sequence)
        if self._next is not None and self._next != producer:
            return False
        following = (sequence + header.count) & _SEQUENCE_MASK if sequence >= 0 else sequence
        self._next = (header.producer_id, header.producer_epoch, following)
        self.batches.append(batch)
        return True

    def done(self) -> Part:
        is_single = len(self.batches) == 1
        joined = self.batches[0] if is_single else bytearray().join(self.batches)
        return Part(self.route, len(self.batches), joined, self._target)


@compiled
def read_run(
    data: memoryview,
    start: int,
    routes: Routes,
    bounds_of: Callable[[Route], Bounds | None],
    count_max: int,
) -> Run | None:
    """The requests of known routes that follow one another from `start` on, at most
    `count_max`; None when the first is not one of them. Their batches are checked and within
    the bounds of their route; those of one route are of one producer and in sequence.
    `bounds_of` is asked once for each route of the run; for None the run ends."""
    end = len(data)
    parts: dict[bytes, _Part] = {}
    order, correlation_ids = bytearray(), bytearray()
    while len(order) < count_max and end - start >= 4:
        stop = start + 4 + _SIZE.unpack_from(data, start)[0]
        route = routes.find(data, start) if stop <= end else None
        if route is None:
            break
        part = parts.get(route.middle)
        if part is None:
            bounds = bounds_of(route)
            if bounds is None:
                break
            part = _Part(route, len(parts), bounds)
        at = start + 12 + len(route.middle)
        batch = _find_batch(data, at, stop, route.is_flexible, route.tail)
        if batch is None or not part.takes(batch):
            break
        parts[route.middle] = part
        order.append(part.number)
        correlation_ids += data[start + 8 : start + 12]
        start = stop
    if not parts:
        return None
    return Run(
        start, bytes(order), bytes(correlation_ids), [each.done() for each in parts.values()]
    )


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
def write_answers(answers: Sequence[Answer], run: Run) -> bytes:
    """The answers to a run whose batches have their offsets; `answers` of its parts."""
    written: list[Buffer] = []
    # Where the batch of the next request of each part begins.
    places = [0] * len(answers)
    for number, which in enumerate(run.order):
        template, offset_at = answers[which]
        batches, at = run.parts[which].batches, places[which]
        written += (
            template[:4],
            run.correlation_ids[4 * number : 4 * number + 4],
            template[8:offset_at],
            batches[at : at + 8],
            template[offset_at + 8 :],
        )
        places[which] = at + LENGTH_OVERHEAD + _SIZE.unpack_from(batches, at + 8)[0]
    return b"".join(written)


def write_refusals(refusals: Sequence[Answer], run: Run) -> bytes:
    """The refusals of a run, in the same places as its answers; `refusals` of its parts."""
    written: list[Buffer] = []
    for number, which in enumerate(run.order):
        template = refusals[which].template
        id_at = 4 * number
        written += (template[:4], run.correlation_ids[id_at : id_at + 4], template[8:])
    return b"".join(written)
