"""Topics: made, listed, described, changed, deleted."""

from __future__ import annotations

from typing import Any

from headrace.calls import Face
from headrace.core.errors import InvalidArgument
from headrace.server.grpc.measured import MeasuredCall
from headrace.server.grpc.shown import given, page_limit, shown_topic
from headrace.server.topics import change_topic
from headrace.wire.grpc.generated import headrace_pb2 as pb


class Topics:
    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    async def create(self, request: Any, call: MeasuredCall) -> Any:
        wanted = given(request, "partitions")
        info = await call.calls.run_in_slices(
            Face.topic_creation,
            request.name,
            partitions=self._partitions if wanted is None else wanted,
            settings=dict(request.settings),
            exist_ok=request.exist_ok,
        )
        return shown_topic(info)

    async def list(self, request: Any, call: MeasuredCall) -> Any:
        # Names first: of ten thousand topics a page describes a hundred.
        after, limit = given(request, "after"), page_limit(request)
        names = await call.calls.run(Face.topic_names)
        later = [name for name in names if after is None or name > after]
        page = later[:limit]
        return pb.ListTopicsResponse(
            topics=[shown_topic(await call.calls.run(Face.topic, name)) for name in page],
            next=page[-1] if len(later) > len(page) else None,
        )

    async def describe(self, request: Any, call: MeasuredCall) -> Any:
        return shown_topic(await call.calls.run(Face.topic, request.name))

    async def alter(self, request: Any, call: MeasuredCall) -> Any:
        partitions = given(request, "partitions")
        if not request.settings and partitions is None:
            raise InvalidArgument("there is nothing to change; give settings or partitions")
        settings = dict(request.settings)
        return shown_topic(
            await change_topic(
                call.calls, request.name, settings, partitions, request.break_key_order
            )
        )

    async def delete(self, request: Any, call: MeasuredCall) -> Any:
        await call.calls.run(Face.delete_topic, request.name)
        return pb.DeleteTopicResponse()
