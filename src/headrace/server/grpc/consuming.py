"""A stream of leases: messages as far as there is credit, and what becomes of them.

    client   open  credit  ack ...  ->   one after the other, answered in order
    client   <-  opened  deliveries  settled ...

Requests of one stream are carried out one after the other, so a client that sends
faster than the disk takes is slowed down by HTTP/2's flow control. A client that has no
more requests has taken leave: what it still has under lease is free for others at once,
and the last answer is deliveries without messages.
A stream that is cut off or cancelled leaves that for a grace (`orphans.py`): who opens
another one with its id keeps what it says it has in hand. Whoever comes with the id of a
stream that is still open takes over from it: a client knows that its connection is dead
long before a node does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import GroupInUse, HeadraceError, InvalidArgument
from headrace.engine.grant import STREAM
from headrace.server.aftermath import Aftermath
from headrace.server.grpc.outgoing import Writer
from headrace.server.grpc.queues import leasing_for, settled
from headrace.server.grpc.shown import shown_deliveries
from headrace.server.leasing import Leasing
from headrace.server.loop_calls import Calls
from headrace.server.orphans import Orphans, receipts_in_hand
from headrace.wire.grpc.generated import headrace_pb2 as pb

# Messages that go out between two looks at what else there is to do.
AT_ONCE = 100
# How long a client that has taken leave may take for the last answer.
LEAVE_SECONDS = 1.0


class Streams:
    """The consumers that have a stream open, each once in its group."""

    def __init__(self, calls: Calls, aftermath: Aftermath) -> None:
        self._aftermath = aftermath
        self._orphans = Orphans(calls, STREAM)
        self._open: dict[tuple[str, str], _Stream] = {}

    async def consume(
        self, first: Any, requests: AsyncIterator[Any], writer: Writer, calls: Calls
    ) -> None:
        if first.WhichOneof("request") != "open":
            raise InvalidArgument("the first request of a stream is `open`")
        wanted = first.open
        credit = _checked(wanted.credit, least=0)
        in_hand = receipts_in_hand(list(wanted.in_hand))
        with self._orphans.returning(wanted.group, wanted.consumer):
            leasing = await leasing_for(
                calls,
                self._aftermath,
                wanted,
                limits.SOCKET_FEED_BYTES_MAX,
                stays=True,
                tie=STREAM,
            )
        name = (leasing.group, leasing.consumer)
        stream = _Stream(calls, leasing, writer, credit)
        before = self._open.get(name)
        self._open[name] = stream
        is_over = False
        try:
            if before is not None:
                await before.give_way()
            await self._orphans.come_back(*name, in_hand)
            lost = await self._orphans.lost(leasing.group, in_hand)
            opened = pb.ConsumeOpened(consumer=leasing.consumer, lost=lost)
            await writer.write(pb.ConsumeResponse(id=first.id, opened=opened).SerializeToString())
            await stream.serve(requests)
            await stream.take_leave()
            is_over = not stream.is_replaced
        except HeadraceError:
            # The client is told, and knows that it is over.
            is_over = not stream.is_replaced
            raise
        finally:
            if self._open.get(name) is stream:
                del self._open[name]
            if calls.service.closing.done():
                # The leases stand: it may come back when the node does.
                pass
            elif is_over:
                leave = calls.run(Face.leave, *name)
                # Our own task may be cancelled already.
                await asyncio.shield(self._aftermath.begin(leave))
            else:
                self._orphans.begin_grace(*name)
            stream.ended.set()


class _Stream:
    def __init__(self, calls: Calls, leasing: Leasing, writer: Writer, credit: int) -> None:
        self._calls = calls
        self._leasing = leasing
        self._writer = writer
        self._credit = credit
        self._more = asyncio.Event()
        # grpc sends one message of a stream at a time.
        self._writing = asyncio.Lock()
        self._is_mid_write = False
        self._carrying_out = asyncio.Lock()
        self.is_replaced = False
        self._giving_way = asyncio.Event()
        self.ended = asyncio.Event()

    async def give_way(self) -> None:
        """To a stream with the same id. What is being carried out is finished."""
        self.is_replaced = True
        self._giving_way.set()
        await self.ended.wait()

    async def serve(self, requests: AsyncIterator[Any]) -> None:
        feeding = asyncio.create_task(self._feed())
        listening = asyncio.create_task(self._listen(requests))
        replaced = asyncio.create_task(self._wait_replaced())
        tasks = (feeding, listening, replaced)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and listening.exception() is None:
                await self._end_write()
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _end_write(self) -> None:
        """The client may have all of it by now: grpc tells us later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS), self._writing:
                pass

    async def take_leave(self) -> None:
        """Its requests have ended. Where the stream was cut off that looks the same until
        grpc cancels our task, which may take long on a busy node; but then nothing can be
        written any more, and this raises."""
        if self._is_mid_write:
            # grpc still has the answer before, which the client does not take.
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                answer = pb.ConsumeResponse(deliveries=pb.Deliveries())
                await self._write(answer.SerializeToString())

    async def _wait_replaced(self) -> None:
        await self._giving_way.wait()
        # Receipts that are on their way to the disk.
        async with self._carrying_out:
            raise GroupInUse("another stream has come with this id")

    async def _listen(self, requests: AsyncIterator[Any]) -> None:
        async for request in requests:
            if isinstance(request, HeadraceError):
                raise request
            kind = request.WhichOneof("request")
            if kind == "credit":
                more = self._credit + _checked(request.credit, least=1)
                self._credit = min(more, limits.SOCKET_CREDIT_MAX)
                self._more.set()
            elif kind in (None, "open"):
                raise InvalidArgument("a stream is opened once; then come credit and receipts")
            else:
                async with self._carrying_out:
                    answer = await settled(self._calls, kind, getattr(request, kind))
                told = pb.ConsumeResponse(id=request.id, settled=answer)
                await self._write(told.SerializeToString())

    async def _feed(self) -> None:
        while True:
            if not self._credit:
                self._more.clear()
                await self._more.wait()
            leased = await self._leasing.find(
                min(self._credit, AT_ONCE), limits.SOCKET_WAIT_MS
            )  # fmt: skip
            if leased:
                self._credit -= len(leased)
                deliveries = pb.Deliveries(messages=shown_deliveries(leased))
                answer = pb.ConsumeResponse(deliveries=deliveries).SerializeToString()
                # This waits while the client does not read.
                del leased, deliveries
                await self._write(answer)

    async def _write(self, answer: bytes) -> None:
        async with self._writing:
            self._is_mid_write = True
            await self._writer.write(answer)
            self._is_mid_write = False


def _checked(credit: int, *, least: int) -> int:
    if not least <= credit <= limits.SOCKET_CREDIT_MAX:
        raise InvalidArgument(f"credit is {least} to {limits.SOCKET_CREDIT_MAX}, not {credit}")
    return credit
