"""Queues: leased and settled, call by call.

A call that is cancelled, or whose deadline passes, gives back what it had leased.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.calls import Face
from headrace.core import limits
from headrace.core.values import Delivery, LaneStatistics
from headrace.engine.grant import NOTHING
from headrace.server.aftermath import Aftermath
from headrace.server.grpc.measured import MeasuredCall
from headrace.server.grpc.messages import wait_in
from headrace.server.grpc.shown import given, id_in, shown_deliveries
from headrace.server.leasing import Leasing, open_leasing
from headrace.server.loop_calls import Calls
from headrace.server.settling import settle
from headrace.wire.grpc.generated import headrace_pb2 as pb

_LANE = ("lane", "ready", "leased", "retrying", "delayed", "delivered", "last_served_ms",
         "oldest_ms", "rate_in", "rate_out")  # fmt: skip
_PARTITION = ("topic", "partition", "start_offset", "end_offset", "ready", "waiting", "leased",
              "retrying", "delayed", "moving", "oldest_ms", "rate_in", "rate_out")  # fmt: skip
_STATISTICS = ("group", "topics", "depth", "ready", "waiting", "leased", "retrying", "delayed",
               "moving", "oldest_ms", "delivered", "acked", "nacked", "lease_expired",
               "dead_lettered", "expired", "cancelled", "rate_in", "rate_out")  # fmt: skip


def _lanes(lanes: Sequence[LaneStatistics]) -> list[Any]:
    return [pb.Lane(**{name: getattr(each, name) for name in _LANE}) for each in lanes]


def settlement(kind: str, request: Any) -> tuple[Any, dict[str, Any]]:
    """The call that a settling request asks for, and its options."""
    if kind == "nack":
        return Face.nack, {
            "delay_ms": given(request, "delay_ms"), "error": given(request, "error")
        }  # fmt: skip
    if kind == "reject":
        return Face.reject, {"reason": given(request, "reason")}
    if kind == "extend":
        return Face.extend, {"visibility_ms": given(request, "visibility_ms")}
    return {"ack": Face.ack, "release": Face.release}[kind], {}


async def settled(calls: Calls, kind: str, request: Any) -> Any:
    act, options = settlement(kind, request)
    tokens = list(request.receipts)
    outcomes = await settle(calls, act, tokens, given(request, "group"), options)
    return pb.SettleResponse(
        results=[
            pb.Settled(receipt=token, ok=True)
            if error is None
            else pb.Settled(receipt=token, ok=False, code=error.code, detail=str(error))
            for token, error in zip(tokens, outcomes, strict=True)
        ]
    )


async def leasing_for(
    calls: Calls,
    aftermath: Aftermath,
    request: Any,
    bytes_max: int,
    *,
    stays: bool,
    tie: int = NOTHING,
) -> Leasing:
    """What a request to lease, or to open a stream of leases, asks for."""
    consumer = given(request, "consumer")
    if consumer is None:
        consumer = f"grpc-{calls.service.entropy.random_bytes(8).hex()}"
    return await open_leasing(
        calls, aftermath, request.group, list(request.topics), consumer, dict(request.settings),
        given(request, "visibility_ms"), stays=stays, bytes_max=bytes_max, tie=tie,
    )  # fmt: skip


class Queues:
    def __init__(self, aftermath: Aftermath) -> None:
        self._aftermath = aftermath

    async def lease(self, request: Any, call: MeasuredCall) -> Any:
        wait_ms, count = wait_in(request), given(request, "count")
        leasing = await leasing_for(
            call.calls, self._aftermath, request, limits.GRPC_ANSWER_BYTES_MAX, stays=False
        )
        leased = await leasing.find(1 if count is None else count, wait_ms)
        if leased:
            self._give_back_if_unheard(call, leasing, leased)
        return pb.LeaseResponse(consumer=leasing.consumer, messages=shown_deliveries(leased))

    def _give_back_if_unheard(
        self, call: MeasuredCall, leasing: Leasing, leased: list[Delivery]
    ) -> None:
        """Between our answer and its sending the client may have gone."""

        def on_done(done: Any) -> None:
            if done.cancelled():
                self._aftermath.begin(leasing.give_back(leased))

        call.when_over(on_done)

    async def ack(self, request: Any, call: MeasuredCall) -> Any:
        return await settled(call.calls, "ack", request)

    async def nack(self, request: Any, call: MeasuredCall) -> Any:
        return await settled(call.calls, "nack", request)

    async def reject(self, request: Any, call: MeasuredCall) -> Any:
        return await settled(call.calls, "reject", request)

    async def extend(self, request: Any, call: MeasuredCall) -> Any:
        return await settled(call.calls, "extend", request)

    async def release(self, request: Any, call: MeasuredCall) -> Any:
        return await settled(call.calls, "release", request)

    async def status(self, request: Any, call: MeasuredCall) -> Any:
        found = await call.calls.run(Face.status, id_in(request.id), request.group)
        return pb.StatusResponse(**found._asdict())

    async def statistics(self, request: Any, call: MeasuredCall) -> Any:
        topics = list(request.topics) or None
        found = await call.calls.run(Face.queue_statistics, request.group, topics)
        return pb.StatisticsResponse(
            **{name: getattr(found, name) for name in _STATISTICS},
            lanes=_lanes(found.lanes),
            partitions=[
                pb.QueuePartition(
                    **{name: getattr(each, name) for name in _PARTITION}, lanes=_lanes(each.lanes)
                )
                for each in found.partitions
            ],
            publish_to_lease=pb.Latency(**found.to_lease._asdict()),
            publish_to_ack=pb.Latency(**found.to_ack._asdict()),
        )
