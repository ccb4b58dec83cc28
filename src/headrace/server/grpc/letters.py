"""Delayed messages, and dead letters: listed, shown, cancelled, redriven, purged."""

from __future__ import annotations

from typing import Any

from headrace.calls import Face
from headrace.core.errors import InvalidArgument
from headrace.core.values import MessageId
from headrace.server.grpc.measured import MeasuredCall
from headrace.server.grpc.shown import (
    given,
    id_in,
    page_limit,
    shown_id,
    shown_letter,
    shown_record,
)
from headrace.server.pages import delayed_page, letters_page
from headrace.wire.grpc.generated import headrace_pb2 as pb

# What one call settles at once.
BATCH_ITEMS = 500


class Letters:
    async def list_delayed(self, request: Any, call: MeasuredCall) -> Any:
        mark, limit = given(request, "after"), page_limit(request)
        after = None if mark is None else (mark.deliver_at_ms, mark.partition, mark.offset)
        found, behind = await delayed_page(call.calls, request.topic, after, limit)
        return pb.ListDelayedResponse(
            messages=[
                pb.DelayedMessage(deliver_at_ms=each.deliver_at_ms, message=shown_record(each))
                for each in found
            ],
            next=None if behind is None else pb.DelayedMark(
                deliver_at_ms=behind[0], partition=behind[1], offset=behind[2]
            ),
        )  # fmt: skip

    async def delayed_totals(self, request: Any, call: MeasuredCall) -> Any:
        totals = await call.calls.run(Face.delayed_totals, list(request.topics) or None)
        return pb.DelayedTotalsResponse(
            topics=[pb.TopicDelayedTotals(**each._asdict()) for each in totals]
        )

    async def cancel(self, request: Any, call: MeasuredCall) -> Any:
        return pb.CancelResponse(cancelled=await call.calls.run(Face.cancel, id_in(request.id)))

    async def list_dead(self, request: Any, call: MeasuredCall) -> Any:
        after, limit = given(request, "after"), page_limit(request)
        found, behind = await letters_page(
            call.calls,
            request.topic,
            given(request, "group"),
            None if after is None else id_in(after),
            limit,
        )
        return pb.ListDeadResponse(
            letters=map(shown_letter, found), next=None if behind is None else shown_id(behind)
        )

    async def show_dead(self, request: Any, call: MeasuredCall) -> Any:
        return shown_letter(await call.calls.run(Face.dead_letter, id_in(request.id)))

    async def redrive(self, request: Any, call: MeasuredCall) -> Any:
        result = await call.calls.run_in_slices(
            Face.redriving,
            request.topic,
            _ids(request),
            dry_run=request.dry_run,
            force=request.force,
        )
        known = result._asdict()
        # Only who goes in batches looks what came back.
        del known["returned"]
        return pb.RedriveResponse(**known)

    async def purge(self, request: Any, call: MeasuredCall) -> Any:
        purged = await call.calls.run(Face.purge, request.topic, _ids(request))
        return pb.PurgeResponse(purged=purged)


def _ids(request: Any) -> list[MessageId]:
    if not 1 <= len(request.ids) <= BATCH_ITEMS:
        raise InvalidArgument(f"give 1 to {BATCH_ITEMS} ids, not {len(request.ids)}")
    return list(map(id_in, request.ids))
