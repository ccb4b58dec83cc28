"""Groups of both kinds, and the cursors of streams."""

from __future__ import annotations

from typing import Any

from headrace.calls import Face
from headrace.core.errors import GroupKindMismatch, InvalidArgument
from headrace.core.values import check_name
from headrace.server.grpc.measured import MeasuredCall
from headrace.server.grpc.shown import given, page_limit, shown_group
from headrace.wire.grpc.generated import headrace_pb2 as pb


class Groups:
    async def list(self, request: Any, call: MeasuredCall) -> Any:
        after, limit = given(request, "after"), page_limit(request)
        found = await call.calls.run(Face.groups)
        later = [each for each in found if after is None or each.name > after]
        page = later[:limit]
        return pb.ListGroupsResponse(
            groups=map(shown_group, page),
            next=page[-1].name if len(later) > len(page) else None,
        )

    async def describe(self, request: Any, call: MeasuredCall) -> Any:
        return shown_group(await call.calls.run(Face.group, request.name))

    async def alter(self, request: Any, call: MeasuredCall) -> Any:
        return shown_group(
            await call.calls.run(Face.alter_group, request.name, dict(request.settings))
        )  # fmt: skip

    async def delete(self, request: Any, call: MeasuredCall) -> Any:
        await call.calls.run(Face.delete_group, request.name)
        return pb.DeleteGroupResponse()

    async def commit(self, request: Any, call: MeasuredCall) -> Any:
        check_name("group", request.group)
        if not request.positions:
            raise InvalidArgument("there is nothing to commit; give positions")
        if call.calls.run_nowait(Face.is_queue, request.group):
            raise GroupKindMismatch(
                f"{request.group!r} is a queue: its messages are settled one by one"
            )
        positions = {(each.topic, each.partition): each.offset for each in request.positions}
        await call.calls.run(Face.commit, request.group, positions)
        return pb.CommitResponse()

    async def committed(self, request: Any, call: MeasuredCall) -> Any:
        return pb.CommittedResponse(
            offsets=await call.calls.run(Face.committed, request.group, request.topic)
        )
