"""DescribeCluster, versions 0 to 2: the nodes, which are one.

Endpoint type 1 asks for brokers. Type 2 asks for controllers, which listen nowhere
of their own: it is refused as Kafka's brokers refuse it.
"""

from __future__ import annotations

from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.nodes import CLUSTER_OPERATIONS, NOT_ASKED, address_for
from headrace.wire.kafka.generated.describe_cluster_request import DescribeClusterRequest
from headrace.wire.kafka.generated.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    kind = request.endpoint_type
    if kind != BROKERS:
        known = kind == CONTROLLERS
        code = Error.MISMATCHED_ENDPOINT_TYPE if known else Error.UNSUPPORTED_ENDPOINT_TYPE
        return DescribeClusterResponse(
            error_code=code, error_message=code.description, endpoint_type=kind
        )
    service = call.service
    address = address_for(call)
    may = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=service.cluster_id,
        controller_id=service.node_id,
        brokers=(DescribeClusterBroker(service.node_id, address.host, address.port),),
        cluster_authorized_operations=may,
    )
