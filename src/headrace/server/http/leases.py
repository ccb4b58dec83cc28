"""Who holds what in a queue, and an operator's way to change it.

Receipts are not shown: a lease is found again by its message's id. To take it away,
or to give it more time, is the same act as the consumer's own, with the same result.
"""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.errors import HeadraceError
from headrace.core.values import MessageId, Receipt
from headrace.server.http.route import Call
from headrace.server.http.shown import milliseconds_in, moment_of
from headrace.wire.http import overview_bodies as o


async def list_all(call: Call) -> o.Leases:
    query: o.LeasesQuery = call.query
    group = call.path["group"]
    # Leases whose time is over end first.
    await call.run(Face.queue_statistics, group)
    found = await call.calls.run_in_slices(Face.lease_listing, group, query.consumer)
    return o.Leases(
        total=len(found),
        leases=[
            o.ShownLease(
                id=str(each.id),
                topic=each.id.topic,
                partition=each.id.partition,
                offset=each.id.offset,
                consumer=each.consumer,
                attempt=each.attempt,
                leased_at=moment_of(each.at_ms),
                deadline=moment_of(each.until_ms),
            )
            for each in found[: query.limit]
        ],
    )


async def release(call: Call) -> o.ChangedLeases:
    wanted: o.ReleaseLeases = call.body
    name = call.path["group"]
    receipts, gone = _receipts(call, name, wanted.ids)
    outcomes = await call.run(Face.release, name, list(receipts.values()))
    return _changed(receipts, gone, outcomes)


async def extend(call: Call) -> o.ChangedLeases:
    wanted: o.ExtendLeases = call.body
    name = call.path["group"]
    receipts, gone = _receipts(call, name, wanted.ids)
    visibility_ms = milliseconds_in("visibility", wanted.visibility)
    outcomes = await call.run(
        Face.extend, name, list(receipts.values()), visibility_ms=visibility_ms
    )
    return _changed(receipts, gone, outcomes)


def _receipts(call: Call, name: str, ids: list[str]) -> tuple[dict[str, Receipt], list[str]]:
    places = [MessageId.parse(id) for id in ids]
    receipts = call.calls.run_nowait(Face.receipts_of, name, places)
    found = {id: receipt for id, receipt in zip(ids, receipts, strict=True) if receipt is not None}
    return found, [id for id, receipt in zip(ids, receipts, strict=True) if receipt is None]


def _changed(
    receipts: dict[str, Receipt], gone: list[str], outcomes: list[HeadraceError | None]
) -> o.ChangedLeases:
    late = [id for id, outcome in zip(receipts, outcomes, strict=True) if outcome is not None]
    return o.ChangedLeases(changed=len(receipts) - len(late), gone=gone + late)
