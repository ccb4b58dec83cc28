"""Queues: leased and settled, one receipt at a time or many.

A receipt names its group, so settling needs nothing else. Of many each has a result
of its own; what was wrong with a single one is the answer's status.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from headrace.calls import Face
from headrace.core.errors import InvalidArgument
from headrace.server.http.route import Call
from headrace.server.http.shown import milliseconds_in, shown_delivery
from headrace.server.leasing import open_leasing
from headrace.server.settling import settle
from headrace.wire.http import bodies


async def lease(call: Call) -> bodies.Leased:
    wanted: bodies.Lease = call.body
    leasing = await open_leasing(
        call.calls,
        call.aftermath,
        call.path["group"],
        wanted.topics,
        wanted.consumer or call.members.new_id("http"),
        wanted.settings,
        milliseconds_in("visibility", wanted.visibility),
        stays=False,
    )
    leased = await leasing.find(wanted.count, 0)
    if not leased and wanted.wait:
        wait_ms = round(wanted.wait * 1000)
        leased = await call.unless_gone(leasing.find(wanted.count, wait_ms), leasing.give_back)
    give_back = partial(leasing.give_back, leased)
    await call.take_turn(give_back)
    if leased:
        await call.check_there(give_back)
    return bodies.Leased(consumer=leasing.consumer, messages=list(map(shown_delivery, leased)))


async def ack(call: Call) -> bodies.SettledAll | bodies.Settled:
    return await _settle(call, Face.ack)


async def nack(call: Call) -> bodies.SettledAll | bodies.Settled:
    wanted: bodies.Nack = call.body
    delay_ms = milliseconds_in("delay", wanted.delay)
    return await _settle(call, Face.nack, delay_ms=delay_ms, error=wanted.error)


async def reject(call: Call) -> bodies.SettledAll | bodies.Settled:
    wanted: bodies.Reject = call.body
    return await _settle(call, Face.reject, reason=wanted.reason)


async def extend(call: Call) -> bodies.SettledAll | bodies.Settled:
    wanted: bodies.Extend = call.body
    visibility_ms = milliseconds_in("visibility", wanted.visibility)
    return await _settle(call, Face.extend, visibility_ms=visibility_ms)


async def release(call: Call) -> bodies.SettledAll | bodies.Settled:
    return await _settle(call, Face.release)


async def _settle(call: Call, act: Any, **options: Any) -> bodies.SettledAll | bodies.Settled:
    wanted: bodies.Receipts = call.body
    if (wanted.receipt is None) == (wanted.receipts is None):
        raise InvalidArgument("give one `receipt`, or many as `receipts`")
    tokens = [wanted.receipt] if wanted.receipt is not None else wanted.receipts or []
    outcomes = await settle(call.calls, act, tokens, wanted.group, options)
    if wanted.receipt is not None:
        if outcomes[0] is not None:
            raise outcomes[0]
        return bodies.Settled(receipt=wanted.receipt, ok=True)
    results = []
    for token, error in zip(tokens, outcomes, strict=True):
        if error is None:
            results.append(bodies.Settled(receipt=token, ok=True))
        else:
            results.append(
                bodies.Settled(receipt=token, ok=False, code=error.code, detail=str(error))
            )
    return bodies.SettledAll(results=results)
