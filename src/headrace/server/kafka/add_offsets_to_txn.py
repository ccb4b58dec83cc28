"""AddOffsetsToTxn, versions 0 to 4: a transaction is going to commit offsets of a group.

All groups keep their offsets in one internal partition, which becomes part of the
transaction. Answered when the coordinator's note is on disk.
"""

from __future__ import annotations

import logging

from headrace.core.errors import HeadraceError
from headrace.core.event_log import log_event
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.transactions import code_for
from headrace.wire.kafka.generated.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.kafka.generated.add_offsets_to_txn_response import AddOffsetsToTxnResponse

FENCED_FIRST = 2


async def handle(call: Call, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    name, producer_id, epoch, group = request
    if not group:
        return AddOffsetsToTxnResponse(0, Error.INVALID_GROUP_ID)
    service, live = call.service, call.door.transactions
    try:
        place = call.broker.cursors.place(service.clock.now_ms())
    except (HeadraceError, OSError):
        log_event(
            service.logger, logging.ERROR, "offsets cannot be written", exc_info=True, group=group
        )
        return AddOffsetsToTxnResponse(0, Error.COORDINATOR_NOT_AVAILABLE)
    added = await live.add(name, producer_id, epoch, {place})
    return AddOffsetsToTxnResponse(0, code_for(added, call.version, FENCED_FIRST))
