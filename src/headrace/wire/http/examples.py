"""A body for every route that takes one, as somebody would send it first, and what has to
be in the query for a first answer.

They stand in the OpenAPI document and so in the reference at /docs; a test reads each of
them as its route does.
"""

from __future__ import annotations

from typing import Any

_RECEIPT = "the receipt of the lease"

EXAMPLES: dict[str, dict[str, Any]] = {
    "POST /produce": {"topic": "orders", "key": "customer-7", "value": {"id": 7, "total": 12.5}},
    "POST /subscribe": {"group": "report", "topics": ["orders"], "reset": "earliest"},
    "POST /groups/{group}/members/{member}/heartbeat": {"generation": 1},
    "POST /groups/{group}/members/{member}/poll": {"generation": 1, "count": 100, "wait": 5},
    "POST /groups/{group}/members/{member}/commit": {"generation": 1},
    "PUT /groups/{group}/members/{member}/topics": {"topics": ["orders", "payments"]},
    "POST /topics": {"name": "orders", "partitions": 3, "settings": {"retention_ms": 604800000}},
    "PATCH /topics/{topic}": {"settings": {"retention_ms": 86400000}},
    "POST /topics/{topic}/messages": {
        "key": "customer-7", "value": {"id": 7, "total": 12.5}, "priority": "high", "delay": 30,
    },
    "POST /messages": {
        "messages": [
            {"topic": "orders", "value": {"id": 7}}, {"topic": "mail", "value": {"to": "ada"}}
        ]
    },
    "POST /queues/{group}/lease": {
        "topics": ["orders"], "count": 10, "wait": 5, "visibility": 30, "consumer": "worker-1",
    },
    "POST /messages/ack": {"receipt": _RECEIPT},
    "POST /messages/nack": {"receipt": _RECEIPT, "delay": 60, "error": "the bank does not answer"},
    "POST /messages/reject": {"receipt": _RECEIPT, "reason": "no such customer"},
    "POST /messages/release": {"receipt": _RECEIPT},
    "POST /messages/visibility": {"receipt": _RECEIPT, "visibility": 120},
    "POST /queues/{group}/leases/release": {"ids": ["orders:0:42"]},
    "POST /queues/{group}/leases/extend": {"ids": ["orders:0:42"], "visibility": 120},
    "POST /topics/{topic}/dead-letters/redrive": {
        "group": "billing", "reason": "the bank does not answer", "dry_run": True,
    },
    "POST /topics/{topic}/dead-letters/purge": {"ids": ["orders.dlq:0:3"]},
    "PATCH /groups/{group}": {"settings": {"max_attempts": 5}},
    "POST /groups/{group}/reset": {"topic": "orders", "to": "earliest"},
    "POST /transactions/abort": {"id": "billing-1"},
}  # fmt: skip

QUERY_EXAMPLES: dict[str, dict[str, Any]] = {"GET /consume": {"topic": "orders"}}
