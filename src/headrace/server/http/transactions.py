"""Transactions: who has one open, since when, where, and an operator's way out."""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.values import TransactionInfo
from headrace.server.http.route import Call
from headrace.server.http.shown import moment
from headrace.wire.http import overview_bodies as o

ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


async def list_all(call: Call) -> o.Transactions:
    query: o.TransactionsQuery = call.query
    found = [
        each
        for each in await call.run(Face.transactions)
        if (query.all or each.state not in ENDED)
        and (query.after is None or each.name > query.after)
    ]
    page = found[: query.limit]
    return o.Transactions(
        transactions=list(map(_shown, page)),
        next=page[-1].name if len(found) > len(page) else None,
    )


async def abort(call: Call) -> o.ShownTransaction:
    # The id is in the body: it may have any characters, a path's own too.
    wanted: o.AbortTransaction = call.body
    await call.run(Face.abort_transaction, wanted.id)
    return _shown(await call.run(Face.transaction, wanted.id))


def _shown(info: TransactionInfo) -> o.ShownTransaction:
    return o.ShownTransaction(
        id=info.name,
        state=info.state,
        producer_id=info.producer_id,
        epoch=info.epoch,
        timeout_ms=info.timeout_ms,
        started_at=moment(info.started_at_ms),
        is_open=info.state not in ENDED,
        partitions=[o.ShownTransactionPlace(**each._asdict()) for each in info.places],
    )
