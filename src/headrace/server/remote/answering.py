"""Calls of our own clients, whatever they come over: carried out and answered.

A request that can be read is answered, with an error at worst, and counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from headrace.core import limits
from headrace.core.errors import HeadraceError, LimitExceeded
from headrace.core.event_log import log_event
from headrace.core.ports import Buffer
from headrace.server.remote.session import Session
from headrace.server.service import Service
from headrace.wire.remote.codec import (
    Request,
    decode_request,
    encode_answer_frame,
    encode_refusal_frame,
)

OnFrame = Callable[[bytes], None]

_ANY = float("inf")


def checked_request(body: Buffer) -> Request:
    """MalformedMessage when this is no request; InvalidArgument, LimitExceeded for one
    that cannot be carried out."""
    request = decode_request(body)
    if len(body) > limits.REMOTE_WATCH_BYTES_MAX and waits(request):
        raise LimitExceeded("too many topics to watch at once; watch some of them")
    return request


def waits(request: Request) -> bool:
    """Whether it may wait for long, and so does not count as work."""
    name = request.method.name
    return name == "watch" or (name == "lease" and request.arguments["wait_ms"] > 0)


class Answering:
    def __init__(
        self, service: Service, logger: logging.Logger, tasks: set[asyncio.Future[Any]]
    ) -> None:
        """`tasks` are those that a door waits for when it closes."""
        self._service = service
        self._logger = logger
        self._tasks = tasks

    def refuse(self, correlation_id: int, error: HeadraceError) -> bytes:
        """The answer to what cannot be carried out."""
        self._service.counts.endpoint("sdk", "refused").errors[error.code] += 1
        return encode_refusal_frame(correlation_id, error)

    def begin(
        self,
        session: Session,
        request: Request,
        correlation_id: int,
        who: Mapping[str, object],
        on_frame: OnFrame,
        *,
        may_wait: bool,
    ) -> None:
        """Carry it out; `on_frame` hears the answer, unless we are closed before.
        `may_wait` as `waits` says it of the request."""
        service = self._service
        endpoint = service.counts.endpoint("sdk", request.method.name)
        began = perf_counter()
        task = service.loop.create_task(session.carry_out(request))
        self._tasks.add(task)

        def answer(done: asyncio.Future[object]) -> None:
            self._tasks.discard(done)
            if done.cancelled():
                return
            error = done.exception()
            try:
                if error is None:
                    frame = encode_answer_frame(correlation_id, done.result())
                elif isinstance(error, HeadraceError):
                    frame = encode_refusal_frame(correlation_id, error)
                else:
                    raise error
            except Exception as failure:
                error = self._on_failed(request, failure)
                frame = encode_refusal_frame(correlation_id, error)
            service.requests.done(
                endpoint,
                began,
                waited_ms=_ANY if may_wait else 0,
                code=error.code if isinstance(error, HeadraceError) else "",
                who={**who, "correlation_id": correlation_id},
            )
            on_frame(frame)

        task.add_done_callback(answer)

    def _on_failed(self, request: Request, error: BaseException) -> HeadraceError:
        log_event(
            self._logger,
            logging.ERROR,
            "call failed",
            exc_info=error,
            method=request.method.name,
        )
        return HeadraceError(f"{request.method.name} failed in the node; its log says why")
