"""ApiVersions, versions 0 to 4: what this node speaks.

An unknown version gets a version 0 answer with error 35 and the same list, so that
any client learns what to say next. Only APIs that have a handler are listed: what
is advertised is used. So those of client metrics are listed while somebody has subscribed
to some, as they are by a Kafka that has a use for them: librdkafka writes a line for each
client that finds them.

The one feature is `transaction.version`: a client that finds 2 finalised there lets
every transaction have its own epoch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.generated.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from headrace.server.kafka.door import Call, Door

FEATURE = "transaction.version"
LEVEL_MAX = 2
# GetTelemetrySubscriptions, PushTelemetry.
CLIENT_METRICS = frozenset((71, 72))


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if request.client_software_name:
        software = f"{request.client_software_name} {request.client_software_version}"
        call.connection.client_software = software
    return _answer(call.door, Error.NONE)


def unsupported(door: Door) -> ApiVersionsResponse:
    return _answer(door, Error.UNSUPPORTED_VERSION)


def _answer(door: Door, code: int) -> ApiVersionsResponse:
    handled = frozenset(door.handlers)
    if not door.client_metrics.are_wanted:
        handled -= CLIENT_METRICS
    return _made(handled, door.settings.transaction_version, code)


@lru_cache(8)
def _made(handled: frozenset[int], level: int, code: int) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=_offered(handled),
        supported_features=(SupportedFeatureKey(FEATURE, 0, LEVEL_MAX),),
        finalized_features_epoch=0,
        finalized_features=(FinalizedFeatureKey(FEATURE, level, level),) if level else (),
    )


def _offered(handled: frozenset[int]) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api.key, api.advertised_first, api.last)
        for key, api in APIS.items()
        if key in handled
    )
