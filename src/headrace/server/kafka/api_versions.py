"""ApiVersions, versions 0 to 4: what this node speaks.

An unknown version gets a version 0 answer with error 35 and the same list, so that
any client learns what to say next. Only APIs that have a handler are listed: what
is advertised is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.kafka.errors import Error
from headrace.wire.kafka.api import APIS
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.generated.api_versions_response import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from headrace.server.kafka.door import Call, Door


def handle(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if request.client_software_name:
        software = f"{request.client_software_name} {request.client_software_version}"
        call.connection.client_software = software
    return ApiVersionsResponse(api_keys=_offered(call.door))


def unsupported(door: Door) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=_offered(door))


def _offered(door: Door) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(api.key, api.advertised_first, api.last)
        for key, api in APIS.items()
        if key in door.handlers
    )
