"""Where replicas are: AlterPartitionReassignments 0 to 1, ListPartitionReassignments 0
and AlterReplicaLogDirs 1 to 2.

A node alone has one place for everything. To ask for what is already so succeeds,
anything else is refused, and nothing is ever under way.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.steps import Steps
from headrace.server.kafka.assignments import check_replicas
from headrace.server.kafka.describe_log_dirs import log_directory
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error, code_of
from headrace.server.kafka.partitions import partition_of
from headrace.server.slices import answer
from headrace.wire.kafka.generated.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from headrace.wire.kafka.generated.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.wire.kafka.generated.alter_replica_log_dirs_request import (
    AlterReplicaLogDirsRequest,
)
from headrace.wire.kafka.generated.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.wire.kafka.generated.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from headrace.wire.kafka.generated.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)


def alter_assignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | Coroutine[Any, Any, AlterPartitionReassignmentsResponse]:
    size = sum(1 + len(topic.partitions) for topic in request.topics)
    return answer(size, _place_all(call, request))


def _place_all(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    topics = []
    for name, wanted in request.topics:
        partitions = []
        for each in wanted:
            partitions.append(_place(call, name, each))
            yield
        topics.append(ReassignableTopicResponse(name, partitions))
        yield
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=topics,
    )


def _place(call: Call, name: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    index, replicas = wanted
    try:
        partition_of(call.service, name, index)
        if replicas is None:
            code = Error.NO_REASSIGNMENT_IN_PROGRESS
            return ReassignablePartitionResponse(index, code, code.description)
        check_replicas((replicas,), call.service.node_id)
    except InvalidArgument as error:
        return ReassignablePartitionResponse(index, Error.INVALID_REPLICA_ASSIGNMENT, str(error))
    except HeadraceError as error:
        return ReassignablePartitionResponse(index, code_of(error), str(error))
    return ReassignablePartitionResponse(index, Error.NONE, None)


def list_ongoing(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def alter_directories(
    call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse | Coroutine[Any, Any, AlterReplicaLogDirsResponse]:
    size = sum(len(each.partitions) for _, topics in request.dirs for each in topics)
    return answer(size, _move_all(call, request))


def _move_all(
    call: Call, request: AlterReplicaLogDirsRequest
) -> Steps[AlterReplicaLogDirsResponse]:
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for path, topics in request.dirs:
        for name, partitions in topics:
            for index in partitions:
                code = _move(call, path, name, index)
                result = AlterReplicaLogDirPartitionResult(index, code)
                results.setdefault(name, []).append(result)
                yield
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, each) for name, each in results.items()]
    )


def _move(call: Call, path: str, name: str, index: int) -> Error:
    try:
        partition_of(call.service, name, index)
    except HeadraceError as error:
        return code_of(error)
    return Error.NONE if path == log_directory(call) else Error.LOG_DIR_NOT_FOUND
