"""DescribeTransactions, version 0: what transactional ids are doing."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.steps import Steps
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.kafka.names import kafka_name
from headrace.server.slices import answer
from headrace.wire.kafka.generated.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.kafka.generated.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Coroutine[Any, Any, DescribeTransactionsResponse]:
    return answer(len(request.transactional_ids), _describe_all(call, request))


def _describe_all(
    call: Call, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    described = []
    for name in request.transactional_ids:
        described.append(_describe(call, name))
        yield
    return DescribeTransactionsResponse(0, described)


def _describe(call: Call, name: str) -> TransactionState:
    found = call.door.transactions.table.find(name)
    if found is None:
        code = Error.TRANSACTIONAL_ID_NOT_FOUND if name else Error.INVALID_REQUEST
        return TransactionState(code, name)
    topics = call.broker.topics.catalog.topics_by_id
    partitions: dict[str, list[int]] = {}
    for topic_id, index in sorted(found.partitions):
        if topic_id in topics:
            partitions.setdefault(kafka_name(topics[topic_id]), []).append(index)
    return TransactionState(
        Error.NONE,
        name,
        found.state,
        found.timeout_ms,
        found.started_at_ms,
        found.producer_id,
        found.epoch,
        tuple(TopicData(topic, tuple(indexes)) for topic, indexes in partitions.items()),
    )
