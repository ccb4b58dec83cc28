"""InitProducerId, versions 0 to 5: a number for a producer.

Without a transactional id, each caller gets a number that nobody ever had, at epoch 0,
also when it names one that it has already: batches in flight under the old number
cannot be mistaken for its own then. The number is answered when its reservation is on
disk.

With one, the number stays with the id and the epoch rises: whoever used the id before
is fenced. What they left open is aborted: the answer is CONCURRENT_TRANSACTIONS then, when
that is decided on disk, and the client asks again. From version 3 on a
producer may say which number and epoch it has, to go on after an error.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import HeadraceError
from headrace.engine.coordinator.transaction import Claim, TransactionError
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.transactions import code_for
from headrace.wire.kafka.generated.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.generated.init_producer_id_response import InitProducerIdResponse

FENCED_FIRST = 4


def handle(
    call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    if request.transactional_id is not None:
        return asyncio.ensure_future(_begin(call, request, request.transactional_id))
    service = call.service
    try:
        producer_id = call.broker.new_producer_id(service.clock.now_ms())
    except HeadraceError as error:
        return InitProducerIdResponse(0, code_of(error), -1, -1)
    response = InitProducerIdResponse(0, Error.NONE, producer_id, 0)
    # Most numbers come from a block that was reserved, and synced, long ago.
    waiting = call.submit(service.commit())
    return response if waiting is None else asyncio.ensure_future(_when_safe(waiting, response))


async def _begin(call: Call, request: InitProducerIdRequest, name: str) -> InitProducerIdResponse:
    live = call.door.transactions
    _, timeout_ms, producer_id, epoch = request
    if not 0 < timeout_ms <= live.timeout_ms_max:
        return InitProducerIdResponse(0, Error.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    if (producer_id < 0) is not (epoch < 0):
        return InitProducerIdResponse(0, Error.INVALID_REQUEST, -1, -1)
    claim = None if producer_id < 0 else Claim(producer_id, epoch)
    begun = await live.init(name, timeout_ms, claim)
    if isinstance(begun, TransactionError):
        return InitProducerIdResponse(0, code_for(begun, call.version, FENCED_FIRST), -1, -1)
    return InitProducerIdResponse(0, Error.NONE, begun.producer_id, begun.epoch)


async def _when_safe(
    waiting: asyncio.Future[None], response: InitProducerIdResponse
) -> InitProducerIdResponse:
    await waiting
    return response
