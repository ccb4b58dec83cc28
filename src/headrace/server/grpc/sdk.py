"""The calls of our own clients, over gRPC: one stream is one connection of the SDK.

    stream   correlation id i32 | request   ->   session: call on the loop -> disk
             correlation id i32 | answer    <-   in any order

Everything behind the stream is what serves a connection on the Kafka port: the same
codec, the same session, the same limits. When the stream ends, what it holds is given
back as when a connection breaks.

A client that sends faster than it is answered is read again when it has been: at most
so many calls of one stream are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from headrace.core import limits
from headrace.core.errors import HeadraceError, MalformedMessage
from headrace.core.event_log import log_event
from headrace.core.request_context import Principal, RequestContext
from headrace.server.grpc.outgoing import Writer
from headrace.server.remote.answering import Answering, checked_request, waits
from headrace.server.remote.session import Holdings, Session
from headrace.server.service import Service
from headrace.wire.remote.stream import split_stream_request, stream_answer

logger = logging.getLogger("headrace.grpc")

# Whether it was a call, and the frame that answers it; None is the end.
Answers = asyncio.Queue[tuple[bool, bytes] | None]


class SdkStreams:
    def __init__(self, service: Service) -> None:
        if service.holdings is None:
            service.holdings = Holdings(service)
        self._holdings = service.holdings
        self._service = service
        self._polls: set[Callable[[], None]] = set()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._answering = Answering(service, logger, self._tasks)

    async def connect(
        self, first: bytes, requests: AsyncIterator[bytes], writer: Writer, principal: Principal
    ) -> None:
        service = self._service
        answers: Answers = asyncio.Queue()
        session = Session(
            service,
            self._polls,
            self._holdings,
            RequestContext(principal),
            is_congested=lambda: answers.qsize() > limits.REMOTE_OPEN_CALLS_MAX,
        )
        stream = _Stream(self._answering, session, writer, answers)
        try:
            await stream.serve(first, requests)
        finally:
            session.close()

    def close(self) -> None:
        """Whoever waits for news is answered."""
        for finish in list(self._polls):
            finish()


class _Stream:
    def __init__(
        self, answering: Answering, session: Session, writer: Writer, answers: Answers
    ) -> None:
        self._answering = answering
        self._session = session
        self._writer = writer
        self._open_calls = asyncio.Semaphore(limits.REMOTE_OPEN_CALLS_MAX)
        # grpc sends one message of a stream at a time.
        self._answers = answers

    async def serve(self, first: bytes, requests: AsyncIterator[bytes]) -> None:
        writing = asyncio.create_task(self._write())
        try:
            if await self._take(first):
                await self._read(requests)
            # A message that is half written cannot be taken back.
            self._answers.put_nowait(None)
            await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for message in requests:
            if not await self._take(message):
                return

    async def _take(self, message: bytes) -> bool:
        """Begin its call; False when it is none, and the stream is over."""
        correlation_id = 0
        try:
            correlation_id, body = split_stream_request(message)
            request = checked_request(body)
        except MalformedMessage as error:
            log_event(logger, logging.WARNING, "stream closed", reason=str(error))
            return False
        except HeadraceError as error:
            await self._open_calls.acquire()
            self._on_frame(True, self._answering.refuse(correlation_id, error))
            return True
        is_call = not waits(request)
        if is_call:
            await self._open_calls.acquire()
        who = {"peer": self._writer.peer()}
        self._answering.begin(
            self._session,
            request,
            correlation_id,
            who,
            partial(self._on_frame, is_call),
            may_wait=not is_call,
        )
        return True

    def _on_frame(self, is_call: bool, frame: bytes) -> None:
        self._answers.put_nowait((is_call, frame))

    async def _write(self) -> None:
        while (answer := await self._answers.get()) is not None:
            is_call, frame = answer
            # This waits while the client does not read.
            await self._writer.write(stream_answer(frame))
            if is_call:
                self._open_calls.release()
