"""ApiVersions, versions 0 to 4: what this node speaks.

An unknown version gets a version 0 answer with error 35 and the same list, so that
any client learns what to say next. Only APIs that have a handler are listed: what
is advertised is used. So those of client metrics are listed while somebody has subscribed
to some, as they are by a Kafka that has a use for them: librdkafka writes a line for each
client that finds them.

A client's software is named as Kafka has it, in letters, digits, `-` and `.`; another name is
an INVALID_REQUEST. One without a name, which Kafka refuses too, is taken.

Features are finalised as Kafka 4.3 has them: `transaction.version`, where a client that finds
2 lets every transaction have its own epoch, and 1 for groups of KIP-848, share groups and
streams groups.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from headrace.core import limits
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

TRANSACTIONS = "transaction.version"
# The highest level of each.
FEATURES = {"group.version": 1, "share.version": 1, "streams.version": 1, TRANSACTIONS: 2}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# GetTelemetrySubscriptions, PushTelemetry.
CLIENT_METRICS = frozenset((71, 72))


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    name, version = request.client_software_name, request.client_software_version
    if any(text and not _SOFTWARE.fullmatch(text) for text in (name, version)):
        return ApiVersionsResponse(error_code=Error.INVALID_REQUEST, api_keys=())
    if name:
        longest = limits.TELEMETRY_CLIENT_CHARACTERS_MAX
        call.connection.client_software = f"{name[:longest]} {version[:longest]}"
    return _answer(call.door, Error.NONE)


def unsupported(door: Door) -> ApiVersionsResponse:
    return _answer(door, Error.UNSUPPORTED_VERSION)


def _answer(door: Door, code: int) -> ApiVersionsResponse:
    handled = frozenset(door.handlers)
    if not door.client_metrics.are_wanted:
        handled -= CLIENT_METRICS
    return _made(handled, tuple(finalized(door).items()), code)


def finalized(door: Door) -> dict[str, int]:
    """The level that each feature has on this node."""
    return {**FEATURES, TRANSACTIONS: door.settings.transaction_version}


@lru_cache(8)
def _made(
    handled: frozenset[int], levels: tuple[tuple[str, int], ...], code: int
) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=_offered(handled),
        supported_features=tuple(
            SupportedFeatureKey(name, 0, most) for name, most in FEATURES.items()
        ),
        finalized_features_epoch=0,
        finalized_features=tuple(
            FinalizedFeatureKey(name, level, level) for name, level in levels if level
        ),
    )


def _offered(handled: frozenset[int]) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api.key, api.advertised_first, api.last)
        for key, api in APIS.items()
        if key in handled
    )
