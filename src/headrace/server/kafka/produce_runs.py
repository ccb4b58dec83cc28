"""Runs of Produce requests: one write for each partition, one sync and one answer for all.

The quick way of the most common request, beside produce.py, which is the ordinary
one and the only one that refuses: what a run cannot append is handed back, and handled
one request at a time. What a run is, wire/kafka/produce_run.py says.

    read ──> look into the batches ──> append, part by part ──> one commit ──> answers
     │            │                        │
     │            │ the first heavy one    │ a part that is refused: its requests are handled
     │            │ ends the run           │ one by one, in their places among the others
     └── None or refused: one by one ──────┘
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from headrace.core.errors import HeadraceError
from headrace.engine.catalog import Topic
from headrace.engine.contents import Found, Heavy, Light, look_into
from headrace.engine.conversion import is_as_it_came, latest_time_ms
from headrace.record.batch import read_header
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import topic_of
from headrace.server.kafka.slot import Slot
from headrace.wire.kafka.produce_run import (
    Answer,
    Part,
    Route,
    Run,
    encode_answer,
    read_run,
    write_answers,
    write_refusals,
)

if TYPE_CHECKING:
    from headrace.engine.partition import Appended, Partition
    from headrace.server.kafka.connection import Connection
    from headrace.server.service import Service


class _Target(NamedTuple):
    """Where a part of a run goes."""

    topic: Topic
    partition: Partition

    def takes(self, part: Part) -> bool:
        """More than a segment holds would be put into one, and ids that are remembered are
        looked at before each batch."""
        log = self.partition.log
        fits = len(part.batches) <= log.settings.segment_bytes and self.partition.dedup is None
        return part.requests == 1 or fits


class _Targets:
    """Of the routes of a run, in their order."""

    def __init__(self, service: Service, now_ms: int) -> None:
        self._service = service
        self._now_ms = now_ms
        self.found: list[_Target] = []

    def bounds_of(self, route: Route) -> tuple[int, int] | None:
        try:
            topic = topic_of(self._service, route.name, route.topic_id)
            partition = self._service.broker.topics.partition(topic, route.index)
        except HeadraceError:
            return None
        settings = topic.settings
        if topic.is_internal or not is_as_it_came(settings):
            return None
        self.found.append(_Target(topic, partition))
        return settings.record_bytes_max, latest_time_ms(settings, self._now_ms)


class _Piece(NamedTuple):
    """The answers of a slot: from where to where in those of the run."""

    slot: Slot
    start: int
    end: int


def handle_run(
    service: Service, connection: Connection, data: memoryview, start: int
) -> tuple[bool, int]:
    """Whether the requests from `start` on were taken, and where the next one starts;
    when they were not, up to where there is no use in trying again."""
    began = perf_counter()
    broker, now_ms = service.broker, service.clock.now_ms()
    count_max = connection.requests_left
    while True:
        targets = _Targets(service, now_ms)
        run = read_run(data, start, connection.routes, targets.bounds_of, count_max)
        if run is None:
            return False, start
        try:
            looked = _look_into(service, run, targets.found)
            if looked is None:
                return False, run.stop
            if not isinstance(looked, int):
                broker.check_space(sum(len(part.batches) for part in run.parts))
                break
        except HeadraceError:
            return False, run.stop
        # The first that is heavy is for a thread, and those behind it wait.
        if not looked:
            return False, start
        count_max = looked
    appended = [
        _append(target.partition, part, contents, now_ms)
        for part, target, contents in zip(run.parts, targets.found, looked, strict=False)
    ]
    if not any(appended):
        return False, run.stop
    commit = service.commit()
    answers: list[Answer] = []
    for part, (topic, partition), each in zip(run.parts, targets.found, appended, strict=False):
        answers.append(connection.routes.answer(part.route, partition.log.start_offset))
        if each is not None:
            commit.data.append((partition, each.next_offset))
            messages = each.next_offset - each.first_offset
            service.counts.traffic(topic.name, "kafka").add_in(messages, len(part.batches))
    waiting = service.submit(commit)
    # Before the frame's bytes are another's.
    written = write_answers(answers, run)
    if all(appended):
        pieces = [_Piece(connection.new_slot(len(run.order)), 0, len(written))]
    else:
        pieces = _pieces(connection, data, start, run, appended, answers)
    endpoint = service.counts.endpoint("kafka", "Produce")
    count = sum(piece.slot.count for piece in pieces)
    if waiting is None:
        service.requests.done(endpoint, began, count=count)
        _answer(connection, pieces, written)
        return True, run.stop

    def on_safe(done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        is_failed = done.exception() is not None
        code = Error.KAFKA_STORAGE_ERROR.name if is_failed else ""
        who = {"peer": connection.peer_host}
        service.requests.done(endpoint, began, count=count, code=code, who=who)
        _answer(connection, pieces, _refusals(run) if is_failed else written)

    waiting.add_done_callback(on_safe)
    return True, run.stop


def _look_into(service: Service, run: Run, targets: list[_Target]) -> list[Found] | int | None:
    """What is in the batches of each part; or how many requests come before the first that is
    heavy; None where requests have to be handled one by one. HeadraceError as `look_into`."""
    light = Light()
    found: list[Found] = []
    for number, (part, target) in enumerate(zip(run.parts, targets, strict=False)):
        topic, partition = target
        if not target.takes(part):
            return None
        light.batches = 0
        checks = service.broker.topics.checks_of(topic)
        contents = look_into(part.batches, partition.scanner, partition.dedup, light, checks)
        if isinstance(contents, Heavy):
            # Which request that is, of all.
            place = -1
            for _ in range(light.batches + 1):
                place = run.order.index(number, place + 1)
            return place
        # The time that a batch gets, and what is left out of it, is answered for each. And one
        # whose header was corrected may be later than its topic takes.
        if light.corrected or any(each.counts_from_append for each in contents):
            return None
        found.append(contents)
    return found


def _append(partition: Partition, part: Part, contents: Found, now_ms: int) -> Appended | None:
    """None where the ordinary way has something else to say."""
    try:
        appended = partition.append(part.batches, read_header(part.batches), now_ms, contents)
    except (HeadraceError, OSError):
        return None
    return None if appended.duplicate else appended


def _pieces(
    connection: Connection,
    data: memoryview,
    start: int,
    run: Run,
    appended: list[Appended | None],
    answers: list[Answer],
) -> list[_Piece]:
    """A slot for each request that was appended. Those of the other parts are handled here,
    so that all are answered in their order."""
    pieces: list[_Piece] = []
    at = 0
    for which in run.order:
        size = len(answers[which].template)
        if appended[which] is None:
            start = connection.handle_frame(data, start)
        else:
            start += 4 + int.from_bytes(data[start : start + 4], "big")
            pieces.append(_Piece(connection.new_slot(), at, at + size))
        at += size
    return pieces


def _answer(connection: Connection, pieces: list[_Piece], written: bytes) -> None:
    for slot, start, end in pieces:
        connection.answer(slot, (written[start:end],))


def _refusals(run: Run) -> bytes:
    """Nothing of the run is known to be on disk."""
    code = Error.KAFKA_STORAGE_ERROR
    return write_refusals([encode_answer(part.route, code, -1) for part in run.parts], run)
