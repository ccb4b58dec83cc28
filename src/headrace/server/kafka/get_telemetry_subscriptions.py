"""GetTelemetrySubscriptions (KIP-714), version 0: which metrics this node wants of a client.

A client without an instance id is given one, and comes with it from then on. Where nobody
subscribed it is told so, and asks again after five minutes.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Coroutine
from typing import Any

from headrace.core import limits
from headrace.core.steps import Steps
from headrace.record import Codec
from headrace.server.kafka.client_metrics import Asked
from headrace.server.kafka.door import Call
from headrace.server.slices import in_slices
from headrace.wire.kafka.generated.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from headrace.wire.kafka.generated.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from headrace.wire.kafka.primitives import ZERO_UUID

ACCEPTED = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


def handle(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> Coroutine[Any, Any, GetTelemetrySubscriptionsResponse]:
    return in_slices(_answer(call, request))


def _answer(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> Steps[GetTelemetrySubscriptionsResponse]:
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = call.service.entropy.random_bytes(16)
    asked = yield from asked_of(call, instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=asked.id,
        accepted_compression_types=tuple(map(int, ACCEPTED)),
        push_interval_ms=asked.interval_ms,
        telemetry_max_bytes=limits.TELEMETRY_BYTES_MAX,
        delta_temporality=False,
        requested_metrics=asked.metrics,
    )


def asked_of(call: Call, instance_id: bytes) -> Steps[Asked]:
    name, _, version = call.connection.client_software.partition(" ")
    return call.door.client_metrics.asked(
        instance_id,
        {
            "client_instance_id": _shown(instance_id),
            "client_id": call.client_id[: limits.TELEMETRY_CLIENT_CHARACTERS_MAX],
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": call.connection.peer_host,
            "client_source_port": str(call.connection.peer_port),
        },
    )


def _shown(instance_id: bytes) -> str:
    """As Kafka's tools write it."""
    return urlsafe_b64encode(instance_id).decode().rstrip("=")
