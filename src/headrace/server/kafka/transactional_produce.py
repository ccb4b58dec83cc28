"""Produce in a transaction: which batches may be written, and when.

    up to version 11    AddPartitionsToTxn came before, and the coordinator is asked
                        whether it did
    from version 12     the coordinator notes the partitions by this request, and the
                        batch is written once the note is on disk

The note comes first on disk, too: a batch whose partition the coordinator has forgotten
in a crash would stay undecided for ever, and hold back every reader of that partition.

    error of the coordinator     as the producer is told
    not part of it               TRANSACTION_ABORTABLE, before version 11 INVALID_TXN_STATE
    fenced                       INVALID_PRODUCER_EPOCH
    the last one is still ending CONCURRENT_TRANSACTIONS, before version 12
                                 NOT_ENOUGH_REPLICAS, which makes any client try again
    another node coordinates     NOT_ENOUGH_REPLICAS
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.transaction import Place, TransactionError
from headrace.record import BatchHeader, read_header
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import topic_of
from headrace.wire.kafka.generated.produce_request import PartitionProduceData, ProduceRequest

ABORTABLE_FIRST = 11
ADDS_FIRST = 12


def wait_if_needed(
    call: Call, request: ProduceRequest, produce: Callable[[Call, ProduceRequest], Any]
) -> asyncio.Future[Any] | None:
    """Have the request carried out later, and in its turn; None if now is right."""
    name, live = request.transactional_id, call.door.transactions
    if not name or not live.is_guarded:
        return None
    if call.version >= ADDS_FIRST:
        _add(call, request, name)
    noted = live.wait_for_note(name)
    if noted is None and not live.is_waiting(name):
        return None
    # The frame's bytes are another request's by then.
    kept = keep(call, request)
    # A Produce behind this one appends behind it, whichever transaction it is of.
    call.connection.hold_turns()

    def produce_now() -> Any:
        call.connection.release_turns()
        return produce(call, kept)

    return live.in_turn(name, noted, produce_now)


def check(call: Call, name: str | None, header: BatchHeader, place: Place) -> int:
    """Kafka's code for why the batch may not be written, or 0."""
    if not name:
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    live = call.door.transactions
    if not live.is_guarded:
        return Error.NONE
    error = live.table.check_write(name, header.producer_id, header.producer_epoch, place)
    if error is TransactionError.TRANSACTION_ABORTABLE and call.version < ABORTABLE_FIRST:
        return Error.INVALID_TXN_STATE
    if error is TransactionError.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is TransactionError.CONCURRENT_TRANSACTIONS and call.version < ADDS_FIRST:
        return Error.NOT_ENOUGH_REPLICAS
    if error is TransactionError.NOT_COORDINATOR:
        # Producers do not expect it here. Trying again they are told where to go.
        return Error.NOT_ENOUGH_REPLICAS
    return error


def _add(call: Call, request: ProduceRequest, name: str) -> None:
    """Whatever is wrong with it is found again when the batch is checked."""
    places: dict[tuple[int, int], set[Place]] = {}
    for data in request.topic_data:
        try:
            topic = topic_of(call.service, data.name, data.topic_id)
        except HeadraceError:
            continue
        if topic.is_internal:
            continue
        for index, records in data.partition_data:
            header = _header(records)
            if header is not None and 0 <= index < topic.partitions:
                producer = header.producer_id, header.producer_epoch
                places.setdefault(producer, set()).add((topic.id, index))
    live = call.door.transactions
    for (producer_id, epoch), added in places.items():
        try:
            live.table.add(name, producer_id, epoch, added, live.now_ms())
        except (HeadraceError, OSError):
            call.service.logger.exception("a transaction was not written down")


def _header(records: Any) -> BatchHeader | None:
    """That of a transactional batch."""
    try:
        header = read_header(records)
    except (HeadraceError, TypeError):
        return None
    return header if header.is_transactional else None


def keep(call: Call, request: ProduceRequest) -> ProduceRequest:
    """With bytes of its own."""
    if call.has_own_bytes:
        return request
    return request._replace(
        topic_data=tuple(
            data._replace(
                partition_data=tuple(
                    PartitionProduceData(
                        index, None if records is None else memoryview(bytearray(records))
                    )
                    for index, records in data.partition_data
                )
            )
            for data in request.topic_data
        )
    )
