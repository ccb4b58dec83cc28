"""Errors as gRPC says them: one table from our codes to statuses.

What a program needs to decide is in the trailing metadata: `headrace-code`, and
`headrace-retriable`, which tells whether the same request may succeed later; and
`x-request-id`, by which the node's log knows the call.
"""

from __future__ import annotations

from typing import Any

from grpc import StatusCode

from headrace.core.errors import HeadraceError

CODE_KEY = "headrace-code"
RETRIABLE_KEY = "headrace-retriable"
REQUEST_ID_KEY = "x-request-id"

STATUSES = {
    "offset-out-of-range": StatusCode.OUT_OF_RANGE,
    "unknown-topic": StatusCode.NOT_FOUND,
    "unknown-partition": StatusCode.NOT_FOUND,
    "unknown-group": StatusCode.NOT_FOUND,
    "unknown-message": StatusCode.NOT_FOUND,
    "topic-exists": StatusCode.ALREADY_EXISTS,
    "topic-replaced": StatusCode.ABORTED,
    "stale-receipt": StatusCode.FAILED_PRECONDITION,
    "stale-generation": StatusCode.FAILED_PRECONDITION,
    "group-kind-mismatch": StatusCode.FAILED_PRECONDITION,
    "group-in-use": StatusCode.FAILED_PRECONDITION,
    "fenced-producer": StatusCode.FAILED_PRECONDITION,
    "out-of-order-sequence": StatusCode.FAILED_PRECONDITION,
    "invalid-transaction-state": StatusCode.FAILED_PRECONDITION,
    "corrupt-batch": StatusCode.INVALID_ARGUMENT,
    "too-many-leases": StatusCode.RESOURCE_EXHAUSTED,
    "limit-exceeded": StatusCode.RESOURCE_EXHAUSTED,
    "disk-full": StatusCode.RESOURCE_EXHAUSTED,
    "too-many-files": StatusCode.RESOURCE_EXHAUSTED,
    "read-only": StatusCode.PERMISSION_DENIED,
    "corrupt-log": StatusCode.DATA_LOSS,
    "sync-failed": StatusCode.UNAVAILABLE,
    "fenced-leader": StatusCode.UNAVAILABLE,
    "closed": StatusCode.UNAVAILABLE,
    "deadline-exceeded": StatusCode.DEADLINE_EXCEEDED,
}


def status_of(error: HeadraceError) -> StatusCode:
    default = StatusCode.INVALID_ARGUMENT if isinstance(error, ValueError) else StatusCode.INTERNAL
    return STATUSES.get(error.code, default)


async def refuse(context: Any, error: HeadraceError, request_id: str) -> None:
    """Ends the call; grpc raises its own exception for that."""
    await context.abort(
        status_of(error),
        str(error),
        (
            (CODE_KEY, error.code),
            (RETRIABLE_KEY, "true" if error.retriable else "false"),
            (REQUEST_ID_KEY, request_id),
        ),
    )
