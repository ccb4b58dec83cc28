"""ListTransactions, versions 0 to 2: transactional ids, by what they are doing.

    filter                     from    which remain
    state_filters              0       those in one of these states; unknown ones are named
    producer_id_filters        0       those of these producers
    duration_filter            1       those that are open for at least so many milliseconds
    transactional_id_pattern   2       those whose id the pattern matches as a whole

A filter that says nothing lets everything through. A pattern that is wrong, or takes too
long over all ids, is an INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from headrace.core.errors import InvalidArgument
from headrace.core.steps import Steps
from headrace.engine.coordinator.topic_pattern import TopicPattern
from headrace.engine.coordinator.transaction import State, Transaction
from headrace.server.kafka.door import Call
from headrace.server.kafka.errors import Error
from headrace.server.slices import answer, in_slices
from headrace.wire.kafka.generated.list_transactions_request import ListTransactionsRequest
from headrace.wire.kafka.generated.list_transactions_response import (
    ListTransactionsResponse,
    TransactionState,
)

_STATES = frozenset(state.value for state in State)


def handle(
    call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse | Coroutine[Any, Any, ListTransactionsResponse]:
    # A pattern can be much work for a single id.
    entries = list(call.door.transactions.table.items())
    steps = _list(entries, call.door.transactions.now_ms(), request)
    return in_slices(steps) if request.transactional_id_pattern else answer(len(entries), steps)


def _list(
    entries: list[tuple[str, Transaction]], now_ms: int, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    states, producer_ids, duration_ms, text = request
    matched: dict[str, bool] = {}
    if text:
        try:
            for _ in TopicPattern(text).match_all((name for name, _ in entries), matched):
                yield
        except InvalidArgument:
            return ListTransactionsResponse(0, Error.INVALID_REGULAR_EXPRESSION)
    found = []
    for name, transaction in entries:
        yield
        if states and transaction.state not in states:
            continue
        if producer_ids and transaction.producer_id not in producer_ids:
            continue
        if duration_ms >= 0:
            is_open = transaction.state is State.ONGOING or transaction.is_ending
            if not is_open or now_ms - transaction.started_at_ms < duration_ms:
                continue
        if text and not matched.get(name):
            continue
        found.append(TransactionState(name, transaction.producer_id, transaction.state))
    unknown = tuple(state for state in states if state not in _STATES)
    return ListTransactionsResponse(0, Error.NONE, unknown, tuple(found))
