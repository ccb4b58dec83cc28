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
    # Names first: of a hundred thousand ids a page describes a hundred.
    names = call.calls.run_nowait(Face.transaction_names, ended=query.all)
    later = sorted(name for name in names if query.after is None or name > query.after)
    page = later[: query.limit]
    # One that ends meanwhile is shown as it is then.
    found = [_shown(await call.run(Face.transaction, name)) for name in page]
    return o.Transactions(transactions=found, next=page[-1] if len(later) > len(page) else None)


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
