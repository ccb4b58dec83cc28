"""InitProducerId, versions 0 to 5: a number for an idempotent producer.

Each caller gets a number that nobody ever had, at epoch 0, also when it names one
that it has already: batches in flight under the old number cannot be mistaken for
its own then. The number is answered when its reservation is on disk.

A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
every client takes for final. An error that says "not now" would keep them trying.
"""

from __future__ import annotations

import asyncio

from headrace.core.errors import HeadraceError
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.wire.kafka.generated.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.generated.init_producer_id_response import InitProducerIdResponse


def handle(
    call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse | asyncio.Future[InitProducerIdResponse]:
    if request.transactional_id is not None:
        named = bool(request.transactional_id)
        refused = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if named else Error.INVALID_REQUEST
        return InitProducerIdResponse(0, refused, -1, -1)
    service = call.service
    try:
        producer_id = service.broker.new_producer_id(service.clock.now_ms())
    except HeadraceError as error:
        return InitProducerIdResponse(0, code_of(error), -1, -1)
    response = InitProducerIdResponse(0, Error.NONE, producer_id, 0)
    # Most numbers come from a block that was reserved, and synced, long ago.
    waiting = service.submit(service.commit())
    return response if waiting is None else asyncio.ensure_future(_when_safe(waiting, response))


async def _when_safe(
    waiting: asyncio.Future[None], response: InitProducerIdResponse
) -> InitProducerIdResponse:
    await waiting
    return response
