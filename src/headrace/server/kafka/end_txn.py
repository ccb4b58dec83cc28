"""EndTxn, versions 0 to 5: commit or abort.

Answered when the marker is on disk in every partition, so whoever was told sees what
was committed, and may begin the next transaction at once. From version 5 on the
answer brings the producer its next epoch, or its next id (KIP-890).

An end that was said before is answered again; the other end is INVALID_TXN_STATE.
"""

from __future__ import annotations

from headrace.engine.coordinator.transaction import TransactionError
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.transactions import code_for
from headrace.wire.kafka.generated.end_txn_request import EndTxnRequest
from headrace.wire.kafka.generated.end_txn_response import EndTxnResponse

FENCED_FIRST = 2
BUMPS_FIRST = 5


async def handle(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    name, producer_id, epoch, is_commit = request
    ended = await call.door.transactions.end(
        name, producer_id, epoch, commit=is_commit, bumps=call.version >= BUMPS_FIRST
    )
    if isinstance(ended, TransactionError):
        return EndTxnResponse(0, code_for(ended, call.version, FENCED_FIRST))
    return EndTxnResponse(0, Error.NONE, ended.producer_id, ended.epoch)
