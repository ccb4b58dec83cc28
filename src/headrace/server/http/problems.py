"""Errors as HTTP says them: one table from our codes to statuses, and the body.

400 the request is wrong      409 it contradicts what is there
404 there is no such thing    410 it was there, and is over
413 415 416 429               too large, not JSON, no such offset, too much
503 504 507                   the node cannot now, or not in time; its disk is full
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from headrace.core.errors import HeadraceError
from headrace.server.http.route import REQUEST_ID, encode
from headrace.wire.http.group_bodies import Problem

PROBLEM_TYPE = "application/problem+json"

STATUSES = {
    "record-too-large": 413,
    "body-too-large": 413,
    "too-many-messages": 413,
    "unsupported-media-type": 415,
    "offset-out-of-range": 416,
    "stale-receipt": 410,
    "stale-generation": 409,
    "decode-error": 400,
    "malformed-message": 400,
    "unknown-topic": 404,
    "unknown-partition": 404,
    "unknown-group": 404,
    "unknown-message": 404,
    "unknown-member": 404,
    "unknown-transaction": 404,
    "invalid-transaction-state": 409,
    "fenced-coordinator": 409,
    "topic-exists": 409,
    "topic-replaced": 409,
    "group-kind-mismatch": 409,
    "group-in-use": 409,
    "fenced-producer": 409,
    "out-of-order-sequence": 409,
    "too-many-leases": 429,
    "limit-exceeded": 429,
    "forbidden-host": 403,
    "forbidden-origin": 403,
    "dashboard-read-only": 403,
    "in-use": 409,
    "read-only": 403,
    "disk-full": 507,
    "too-many-files": 503,
    "corrupt-log": 500,
    "corrupt-batch": 500,
    "sync-failed": 503,
    "fenced-leader": 503,
    "closed": 503,
    "deadline-exceeded": 504,
}


def status_of(error: HeadraceError) -> int:
    return STATUSES.get(error.code, 400 if isinstance(error, ValueError) else 500)


def problem(error: HeadraceError, request: Request) -> Response:
    return problem_response(
        status_of(error), error.code, str(error), request, retriable=error.retriable
    )


def problem_response(
    status: int, code: str, detail: str, request: Request, *, retriable: bool = False
) -> Response:
    body = Problem(
        type=f"urn:headrace:error:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        code=code,
        retriable=retriable,
        request_id=request.scope.get(REQUEST_ID, ""),
    )
    return Response(encode(body), status, media_type=PROBLEM_TYPE)
