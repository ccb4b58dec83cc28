"""A stream of gRPC whose requests end: its client has taken leave, or it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.unit.server.test_loop_calls import GROUP, TOPIC, Served, let_others_run, on_a_loop

from headrace.server.aftermath import Aftermath
from headrace.server.grpc.consuming import Streams
from headrace.server.grpc.outgoing import Outgoing
from headrace.wire.grpc.generated import headrace_pb2 as pb


class Context:
    """A stream that is cut off when its requests end, and grpc is slow to say so."""

    def __init__(self, *, is_cut: bool, is_slow: bool = False) -> None:
        """`is_slow`: that a message was sent is said only after the client has ended."""
        self.is_cut = is_cut
        self._is_slow = is_slow
        self._is_said = asyncio.Event()
        self.answers: list[Any] = []
        self.has_delivered = asyncio.Event()
        self.is_ended = False

    async def write(self, encoded: bytes) -> None:
        if self.is_ended and self.is_cut:
            raise grpc.aio.InternalError("the stream is closed")
        answer = pb.ConsumeResponse.FromString(encoded)
        self.answers.append(answer)
        if answer.deliveries.messages:
            self.has_delivered.set()
            if self._is_slow:
                await self._is_said.wait()

    async def requests(self) -> AsyncIterator[Any]:
        """None behind the first one: they end when a message has come."""
        await self.has_delivered.wait()
        self.is_ended = True
        asyncio.get_running_loop().call_later(0.01, self._is_said.set)
        return
        yield


@pytest.mark.parametrize(("is_cut", "is_slow"), [(False, False), (False, True), (True, False)])
def test_an_end_is_a_leave_only_where_the_client_can_still_be_told(
    is_cut: bool, is_slow: bool
) -> None:
    async def scenario(served: Served) -> None:
        await served.make()
        await served.publish(b"one")
        aftermath, context = Aftermath(), Context(is_cut=is_cut, is_slow=is_slow)
        streams = Streams(served.calls, aftermath)
        writer = Outgoing(served.calls.service).of(context)
        wanted = pb.ConsumeOpen(group=GROUP, topics=[TOPIC], consumer="other", credit=1)
        consuming = asyncio.ensure_future(
            streams.consume(
                pb.ConsumeRequest(open=wanted), context.requests(), writer, served.calls
            )
        )
        await asyncio.wait([consuming])
        await aftermath.close()
        await let_others_run()
        if is_cut:
            assert isinstance(consuming.exception(), grpc.aio.InternalError)
            # It may come back: they are kept for a grace.
            assert await served.lease() == []
        else:
            assert consuming.exception() is None
            assert not context.answers[-1].deliveries.messages
            [again] = await served.lease()
            assert again.attempt == 1

    on_a_loop(scenario)
