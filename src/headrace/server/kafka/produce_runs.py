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

from headrace.core.errors import HeadraceError, SyncFailed
from headrace.engine.catalog import Catalog, Topic
from headrace.engine.contents import Checks, Found, Heavy, Light, look_into
from headrace.engine.conversion import is_as_it_came, latest_time_ms
from headrace.engine.publish import check_open
from headrace.engine.sealed import KAFKA, append_run, checks_of
from headrace.server.kafka.errors import Error, code_of_failure
from headrace.server.kafka.names import topic_of
from headrace.server.kafka.request_time import timeout_seconds
from headrace.server.kafka.slot import Slot
from headrace.wire.kafka.produce_run import (
    ROUTES_MAX,
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
    from headrace.engine.partition import Partition
    from headrace.server.kafka.connection import Connection
    from headrace.server.metrics.counting import Traffic
    from headrace.server.service import Service


class _Target(NamedTuple):
    """Where a part of a run goes."""

    # In which it was looked up: another one may say something else.
    catalog: Catalog
    topic: Topic
    partition: Partition
    checks: Checks
    traffic: Traffic

    def takes_all(self, part: Part) -> bool:
        """Whether several requests may be appended as one. More than a segment holds would be
        put into one, and ids that are remembered are looked at before each batch."""
        log, dedup = self.partition.log, self.partition.dedup
        return len(part.batches) <= log.settings.segment_bytes and dedup is None


class RunTargets:
    """Where the routes of one connection lead."""

    def __init__(self, service: Service) -> None:
        self._topics = service.broker.topics
        self._service = service
        self.endpoint = service.counts.endpoint("kafka", "Produce")
        self._known: dict[bytes, _Target] = {}
        self.now_ms = 0

    def bounds_of(self, route: Route) -> tuple[int, int, _Target] | None:
        """What the requests of a route are held to now; None if runs are no use to it."""
        target = self._known.get(route.middle)
        if target is None or target.catalog is not self._topics.catalog:
            target = self._find(route)
            if target is None:
                return None
        settings = target.topic.settings
        bytes_max = settings.record_bytes_max + KAFKA.slack_bytes
        return bytes_max, latest_time_ms(settings, self.now_ms), target

    def _find(self, route: Route) -> _Target | None:
        topics = self._topics
        try:
            topic = topic_of(self._service, route.name, route.topic_id)
            partition = topics.partition(topic, route.index)
            check_open(topic, letters=KAFKA.to_letters)
        except HeadraceError:
            return None
        if not is_as_it_came(topic.settings):
            return None
        if len(self._known) >= ROUTES_MAX:
            self._known.clear()
        traffic = self._service.counts.traffic(topic.name, "kafka")
        checks = checks_of(topics, topic, KAFKA)
        target = _Target(topics.catalog, topic, partition, checks, traffic)
        self._known[route.middle] = target
        return target


def handle_run(
    service: Service, connection: Connection, data: memoryview, start: int
) -> tuple[bool, int]:
    """Whether the requests from `start` on were taken, and where the next one starts;
    when they were not, up to where there is no use in trying again."""
    began = perf_counter()
    routes, targets = connection.routes, connection.run_targets
    now_ms = targets.now_ms = service.clock.now_ms()
    run = read_run(data, start, routes, targets.bounds_of, connection.requests_left)
    if run is None:
        return False, start
    while isinstance(looked := _look_into(run), int):
        # The first that is heavy is for a thread, and those behind it wait.
        run = read_run(data, start, routes, targets.bounds_of, looked) if looked else None
        if run is None:
            return False, start
    if looked is None:
        return False, run.stop
    commit, broker = service.commit(), service.broker
    answers: list[Answer] = []
    # Of the parts that the ordinary way has something else to say to.
    refused: set[int] = set()
    for part, contents in zip(run.parts, looked, strict=True):
        target: _Target = part.target
        partition = target.partition
        try:
            appended = append_run(broker, partition, part.batches, contents, now_ms)
        except HeadraceError as error:
            if isinstance(error, SyncFailed):
                service.on_sync_failed(error)
            appended = None
        answers.append(routes.answer(part.route, partition.log.start_offset))
        # The ordinary way answers each of several that are there already.
        if appended is None or appended.duplicate:
            refused.add(len(answers) - 1)
        else:
            commit.data.append((partition, appended.next_offset))
            messages = appended.next_offset - appended.first_offset
            target.traffic.add_in(messages, len(part.batches))
    if not commit.data:
        return False, run.stop
    # One time for all of a run, as there is one sync: that of the least patient.
    patience = min([timeout_seconds(part.route.timeout_ms) for part in run.parts])
    waiting = service.submit(commit, service.loop.time() + patience)
    # Before the frame's bytes are another's.
    written = write_answers(answers, run)
    count = len(run.order)
    endpoint = targets.endpoint
    if waiting is None and not refused and connection.is_idle:
        service.requests.done(endpoint, began, count=count)
        connection.write(written)
        return True, run.stop
    if refused:
        pieces = _pieces(connection, data, start, run, refused, answers)
        count = len(pieces)
    else:
        pieces = [(connection.new_slot(count), 0, len(written))]
    if waiting is None:
        service.requests.done(endpoint, began, count=count)
        _answer(connection, pieces, written)
        return True, run.stop

    def on_safe(done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        failure = done.exception()
        code = Error.NONE if failure is None else code_of_failure(failure)
        who = {"peer": connection.peer_host}
        service.requests.done(endpoint, began, count=count, code=code.name if code else "", who=who)
        _answer(connection, pieces, _refusals(run, code) if code else written)

    waiting.add_done_callback(on_safe)
    return True, run.stop


def _look_into(run: Run) -> list[Found] | int | None:
    """What is in the batches of each part; or how many requests come before the first that is
    heavy; None where requests have to be handled one by one."""
    light = Light()
    found: list[Found] = []
    for number, part in enumerate(run.parts):
        target: _Target = part.target
        partition = target.partition
        if part.requests > 1 and not target.takes_all(part):
            return None
        if number:
            light.batches = 0
        try:
            contents = look_into(
                part.batches, partition.scanner, partition.dedup, light, target.checks
            )
        except HeadraceError:
            return None
        if isinstance(contents, Heavy):
            # Which request that is, of all.
            place = -1
            for _ in range(light.batches + 1):
                place = run.order.index(number, place + 1)
            return place
        # The time that a batch gets, and what is left out of it, is answered for each. And one
        # whose header was corrected may be later than its topic takes.
        if light.corrected or (contents and any(each.counts_from_append for each in contents)):
            return None
        found.append(contents)
    return found


# The answers of a slot: from where to where in those of the run.
_Piece = tuple[Slot, int, int]


def _pieces(
    connection: Connection,
    data: memoryview,
    start: int,
    run: Run,
    refused: set[int],
    answers: list[Answer],
) -> list[_Piece]:
    """A slot for each request that was appended. Those of the refused parts are handled here,
    so that all are answered in their order."""
    pieces: list[_Piece] = []
    at = 0
    for which in run.order:
        size = len(answers[which].template)
        if which in refused:
            start = connection.handle_frame(data, start)
        else:
            start += 4 + int.from_bytes(data[start : start + 4], "big")
            pieces.append((connection.new_slot(), at, at + size))
        at += size
    return pieces


def _answer(connection: Connection, pieces: list[_Piece], written: bytes) -> None:
    for slot, start, end in pieces:
        connection.answer(slot, (written[start:end],))


def _refusals(run: Run, code: Error) -> bytes:
    """Nothing of the run is known to be on disk."""
    return write_refusals([encode_answer(part.route, code, -1) for part in run.parts], run)
