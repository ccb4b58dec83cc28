"""Who holds what in a queue, and an operator's way to change it.

Receipts are not shown: a lease is found again by its message's id. To take it away,
or to give it more time, is the same act as the consumer's own, with the same result.
"""

from __future__ import annotations

from headrace.calls import Face
from headrace.core.errors import HeadraceError
from headrace.core.values import MessageId, Receipt
from headrace.engine.window import LEASED
from headrace.server.http.route import Call
from headrace.server.http.shown import milliseconds_in, moment_of
from headrace.server.slices import Slices
from headrace.wire.http import overview_bodies as o


async def list_all(call: Call) -> o.Leases:
    query: o.LeasesQuery = call.query
    broker = call.service.broker
    group = broker.groups.named(call.path["group"])
    # Leases whose time is over end first.
    await call.run(Face.queue_statistics, group.name)
    slices = Slices()
    found = []
    for partition, view in broker.groups.views(group):
        await slices.rest()
        if not view.grants:
            continue
        for offset, grant in view.leased_by(query.consumer).items():
            found.append(
                (
                    grant.until_ms,
                    MessageId(partition.topic.name, partition.index, offset),
                    grant,
                    view.window.attempts_at(offset),
                )
            )
    found.sort(key=lambda each: each[:2])
    return o.Leases(
        total=len(found),
        leases=[
            o.ShownLease(
                id=str(place),
                topic=place.topic,
                partition=place.partition,
                offset=place.offset,
                consumer=grant.owner,
                attempt=attempt,
                leased_at=moment_of(grant.at_ms),
                deadline=moment_of(until_ms),
            )
            for until_ms, place, grant, attempt in found[: query.limit]
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
    broker = call.service.broker
    group = broker.groups.named(name)
    found: dict[str, Receipt] = {}
    gone = []
    for id in ids:
        place = MessageId.parse(id)
        topic = broker.topics.named(place.topic)
        partition = broker.topics.partition(topic, place.partition)
        view = partition.views.get(group.id)
        if view is None or not view.is_in(place.offset, LEASED):
            gone.append(id)
            continue
        attempt = view.window.attempts_at(place.offset)
        grant = view.grants[view.window.grant_at(place.offset)]
        found[id] = Receipt(topic.id, place.partition, group.id, place.offset, attempt, grant.nonce)
    return found, gone


def _changed(
    receipts: dict[str, Receipt], gone: list[str], outcomes: list[HeadraceError | None]
) -> o.ChangedLeases:
    late = [id for id, outcome in zip(receipts, outcomes, strict=True) if outcome is not None]
    return o.ChangedLeases(changed=len(receipts) - len(late), gone=gone + late)
