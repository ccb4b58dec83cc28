"""Topics: made, listed, described, changed, deleted."""

from __future__ import annotations

from typing import Any

from headrace.calls import Face
from headrace.core.errors import InvalidArgument
from headrace.server.grpc.shown import given, page_limit, shown_topic
from headrace.server.loop_calls import Calls
from headrace.server.topics import change_topic
from headrace.wire.grpc.generated import headrace_pb2 as pb


class Topics:
    def __init__(self, calls: Calls, partitions: int) -> None:
        self._calls = calls
        self._run = calls.run
        self._partitions = partitions

    async def create(self, request: Any, _: Any) -> Any:
        wanted = given(request, "partitions")
        info = await self._calls.run_in_slices(
            Face.topic_creation,
            request.name,
            partitions=self._partitions if wanted is None else wanted,
            settings=dict(request.settings),
            exist_ok=request.exist_ok,
        )
        return shown_topic(info)

    async def list(self, request: Any, _: Any) -> Any:
        # Names first: of ten thousand topics a page describes a hundred.
        after, limit = given(request, "after"), page_limit(request)
        names = await self._run(Face.topic_names)
        later = [name for name in names if after is None or name > after]
        page = later[:limit]
        return pb.ListTopicsResponse(
            topics=[shown_topic(await self._run(Face.topic, name)) for name in page],
            next=page[-1] if len(later) > len(page) else None,
        )

    async def describe(self, request: Any, _: Any) -> Any:
        return shown_topic(await self._run(Face.topic, request.name))

    async def alter(self, request: Any, _: Any) -> Any:
        partitions = given(request, "partitions")
        if not request.settings and partitions is None:
            raise InvalidArgument("there is nothing to change; give settings or partitions")
        settings = dict(request.settings)
        return shown_topic(
            await change_topic(
                self._calls, request.name, settings, partitions, request.break_key_order
            )
        )

    async def delete(self, request: Any, _: Any) -> Any:
        await self._run(Face.delete_topic, request.name)
        return pb.DeleteTopicResponse()
