"""Groups of both kinds, and the cursors of streams."""

from __future__ import annotations

from typing import Any

from headrace.calls import Face
from headrace.core.errors import GroupKindMismatch, InvalidArgument
from headrace.core.values import check_name
from headrace.server.grpc.shown import given, page_limit, shown_group
from headrace.server.loop_calls import Calls
from headrace.wire.grpc.generated import headrace_pb2 as pb


class Groups:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._run = calls.run

    async def list(self, request: Any, _: Any) -> Any:
        after, limit = given(request, "after"), page_limit(request)
        found = await self._run(Face.groups)
        later = [each for each in found if after is None or each.name > after]
        page = later[:limit]
        return pb.ListGroupsResponse(
            groups=map(shown_group, page),
            next=page[-1].name if len(later) > len(page) else None,
        )

    async def describe(self, request: Any, _: Any) -> Any:
        return shown_group(await self._run(Face.group, request.name))

    async def alter(self, request: Any, _: Any) -> Any:
        return shown_group(
            await self._run(Face.alter_group, request.name, dict(request.settings))
        )  # fmt: skip

    async def delete(self, request: Any, _: Any) -> Any:
        await self._run(Face.delete_group, request.name)
        return pb.DeleteGroupResponse()

    async def commit(self, request: Any, _: Any) -> Any:
        check_name("group", request.group)
        if not request.positions:
            raise InvalidArgument("there is nothing to commit; give positions")
        if request.group in self._calls.service.broker.topics.catalog.groups:
            raise GroupKindMismatch(
                f"{request.group!r} is a queue: its messages are settled one by one"
            )
        positions = {(each.topic, each.partition): each.offset for each in request.positions}
        await self._run(Face.commit, request.group, positions)
        return pb.CommitResponse()

    async def committed(self, request: Any, _: Any) -> Any:
        return pb.CommittedResponse(
            offsets=await self._run(Face.committed, request.group, request.topic)
        )
