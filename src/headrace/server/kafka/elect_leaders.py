"""ElectLeaders, versions 0 to 2: a node alone leads everything already.

Partitions that are named get ELECTION_NOT_NEEDED; asked about all of them, there is
nothing to tell. Both kinds of election, preferred (0) and unclean (1), come out so.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.steps import Steps
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import partition_of
from headrace.server.slices import answer
from headrace.wire.kafka.generated.elect_leaders_request import ElectLeadersRequest
from headrace.wire.kafka.generated.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTIONS = (0, 1)


def handle(
    call: Call, request: ElectLeadersRequest
) -> ElectLeadersResponse | Coroutine[Any, Any, ElectLeadersResponse]:
    if request.election_type not in _ELECTIONS:
        return ElectLeadersResponse(error_code=Error.INVALID_REQUEST)
    size = sum(len(partitions) for _, partitions in request.topic_partitions or ())
    return answer(size, _elect_all(call, request))


def _elect_all(call: Call, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    results = []
    for topic, partitions in request.topic_partitions or ():
        elected = []
        for index in partitions:
            elected.append(_elect(call, topic, index))
            yield
        results.append(ReplicaElectionResult(topic, elected))
    return ElectLeadersResponse(replica_election_results=results)


def _elect(call: Call, name: str, index: int) -> PartitionResult:
    try:
        partition_of(call.service, name, index)
    except HeadraceError as error:
        return PartitionResult(index, code_of(error), str(error))
    code = Error.ELECTION_NOT_NEEDED
    return PartitionResult(index, code, code.description)
