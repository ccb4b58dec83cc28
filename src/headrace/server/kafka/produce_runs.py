"""Runs of Produce requests: appended by one write, answered by one buffer.

The quick way of the most common request, beside produce.py, which is the ordinary
one and the only one that refuses: a run that cannot be appended whole is handed
back, and its requests are handled one by one. What a run is, wire/kafka/produce_run.py
says.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError
from headrace.engine.contents import Heavy, Light, look_into
from headrace.engine.conversion import is_as_it_came, latest_time_ms
from headrace.record.batch import read_header
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import topic_of
from headrace.wire.kafka.produce_run import (
    Route,
    encode_answer,
    read_run,
    write_answers,
    write_refusals,
)

if TYPE_CHECKING:
    from headrace.core.ports import Buffer
    from headrace.engine.partition import Partition
    from headrace.server.kafka.connection import Connection
    from headrace.server.service import Service


def _takes_run(partition: Partition, batches: Buffer) -> bool:
    """More than a segment holds would be put into one, and ids that are remembered are
    looked at before each batch."""
    return len(batches) <= partition.log.settings.segment_bytes and partition.dedup is None


def handle_run(
    service: Service, connection: Connection, data: memoryview, start: int, route: Route
) -> tuple[bool, int]:
    """Whether the requests from `start` on were taken, and where the next one starts;
    when they were not, up to where there is no use in trying again."""
    began = perf_counter()
    broker = service.broker
    try:
        topic = topic_of(service, route.name, route.topic_id)
        partition = broker.topics.partition(topic, route.index)
    except HeadraceError:
        return False, start
    settings, now_ms = topic.settings, service.clock.now_ms()
    if not is_as_it_came(settings):
        return False, start
    bytes_max, latest_ms = settings.record_bytes_max, latest_time_ms(settings, now_ms)
    run = read_run(data, start, route, bytes_max, connection.requests_left, latest_ms)
    if run is None:
        return False, start
    stop, correlation_ids, batches = run
    is_single = len(correlation_ids) == 4
    if topic.is_internal or not (is_single or _takes_run(partition, batches)):
        return False, stop
    light, checks = Light(), broker.topics.checks_of(topic)
    try:
        contents = look_into(batches, partition.scanner, partition.dedup, light, checks)
    except HeadraceError:
        return False, stop
    if light.corrected:
        # Their times may be later than the topic takes.
        return False, stop
    if isinstance(contents, Heavy):
        # The first that is heavy is for a thread, and those behind it wait.
        count = light.batches
        run = read_run(data, start, route, bytes_max, count, latest_ms) if count else None
        if run is None:
            return False, start
        stop, correlation_ids, batches = run
        contents = light.found
    if any(each.counts_from_append for each in contents):
        # What is left out, and the time that the rest gets, is answered for each batch.
        return False, stop
    try:
        broker.check_space(len(batches))
        appended = partition.append(batches, read_header(batches), now_ms, contents)
    except (HeadraceError, OSError):
        return False, stop
    if appended.duplicate:
        return False, stop
    commit = service.commit()
    commit.data.append((partition, appended.next_offset))
    waiting = service.submit(commit)
    answer = connection.routes.answer(route, partition.log.start_offset)
    # Before the frame's bytes are another's.
    answers = write_answers(answer, correlation_ids, batches)
    count = len(correlation_ids) >> 2
    slot = connection.new_slot(count)
    messages = appended.next_offset - appended.first_offset
    service.counts.traffic(topic.name, "kafka").add_in(messages, len(batches))
    endpoint = service.counts.endpoint("kafka", "Produce")
    if waiting is None:
        service.requests.done(endpoint, began, count=count)
        connection.answer(slot, (answers,))
        return True, stop

    def on_safe(done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        is_failed = done.exception() is not None
        code = Error.KAFKA_STORAGE_ERROR.name if is_failed else ""
        who = {"peer": connection.peer_host}
        service.requests.done(endpoint, began, count=count, code=code, who=who)
        if not is_failed:
            connection.answer(slot, (answers,))
        else:
            connection.answer(slot, (_refusals(route, correlation_ids),))

    waiting.add_done_callback(on_safe)
    return True, stop


def _refusals(route: Route, correlation_ids: bytes) -> bytes:
    """Nothing of the run is known to be on disk."""
    return write_refusals(encode_answer(route, Error.KAFKA_STORAGE_ERROR, -1), correlation_ids)
