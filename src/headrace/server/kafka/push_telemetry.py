"""PushTelemetry (KIP-714), version 0: numbers of a client, as metrics of this node.

    the subscription has changed     UNKNOWN_SUBSCRIPTION_ID: the client asks again
    it comes too soon                THROTTLING_QUOTA_EXCEEDED
    it is too large, or no OTLP      TELEMETRY_TOO_LARGE, INVALID_RECORD

With `terminating` it is the last of this client, and what it said before is forgotten. It
is opened in a thread.
"""

from __future__ import annotations

from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.record.compression import decompress
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.get_telemetry_subscriptions import ACCEPTED, asked_of
from headrace.server.slices import in_slices
from headrace.wire.kafka.generated.push_telemetry_request import PushTelemetryRequest
from headrace.wire.kafka.generated.push_telemetry_response import PushTelemetryResponse
from headrace.wire.kafka.primitives import ZERO_UUID
from headrace.wire.otlp import Point, decode_metrics


async def handle(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=await _push(call, request))


async def _push(call: Call, request: PushTelemetryRequest) -> Error:
    instance_id, is_last = request.client_instance_id, request.terminating
    if instance_id == ZERO_UUID:
        return Error.INVALID_REQUEST
    # The request's bytes are others' while it waits for its turn, and while a thread opens them.
    is_large = len(request.metrics) > limits.TELEMETRY_BYTES_MAX
    data = b"" if is_large else bytes(request.metrics)
    metrics = call.door.client_metrics
    asked = await in_slices(asked_of(call, instance_id))
    if request.subscription_id != asked.id:
        return Error.UNKNOWN_SUBSCRIPTION_ID
    if request.compression_type not in (0, *ACCEPTED):
        return Error.UNSUPPORTED_COMPRESSION_TYPE
    if is_large:
        return Error.TELEMETRY_TOO_LARGE
    error = metrics.check_push(instance_id, asked, is_last=is_last)
    if error is not Error.NONE:
        return error
    try:
        points = await call.service.run_apart(_open, request.compression_type, data)
    except HeadraceError:
        return Error.INVALID_RECORD
    metrics.push(instance_id, call.client_id, asked, points, is_last=is_last)
    return Error.NONE


def _open(codec: int, data: bytes) -> list[Point]:
    opened = decompress(codec, data, limits.TELEMETRY_OPENED_BYTES_MAX)
    return decode_metrics(opened, limits.TELEMETRY_POINTS_PER_CLIENT_MAX)
