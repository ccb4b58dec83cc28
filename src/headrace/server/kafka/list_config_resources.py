"""ListConfigResources, versions 0 and 1: what has a configuration.

    type                   listed
    2   a topic            every topic that others may see
    4   the node           its id
    16  client metrics     every subscription (all that version 0 asks for)
    32  a group            those that something is configured of

Loggers (8) have no configuration here, and none is listed.
"""

from __future__ import annotations

from headrace.server.kafka.configs import Resource
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import is_listed, kafka_name
from headrace.wire.kafka.generated.list_config_resources_request import ListConfigResourcesRequest
from headrace.wire.kafka.generated.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted = set(request.resource_types) or set(Resource)
    if call.version == 0:
        wanted = {Resource.CLIENT_METRICS}
    if not wanted <= set(Resource):
        return ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION)
    catalog = call.broker.topics.catalog
    found = [(name, kind) for kind, name in catalog.configs if kind != Resource.BROKER]
    found += [
        (kafka_name(each), Resource.TOPIC) for each in catalog.topics.values() if is_listed(each)
    ]
    found.append((str(call.service.node_id), Resource.BROKER))
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for name, kind in found if kind in wanted]
    )
