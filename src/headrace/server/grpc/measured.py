"""Calls as metrics and logs see them: how long, what went wrong, and by which id.

A call's id is the one that its client sends as `x-request-id`, and is sent back with
the trailing metadata; one that fails without an id gets one from the node, so that
whoever is told of the failure can name it.

A stream lasts as long as its client likes, so only its errors are counted, and its deadline is
grpc's own affair: each call of the node that it makes has the time of any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from time import perf_counter
from typing import Any

from google.protobuf.message import Message
from grpc import RpcError
from grpc.aio import AbortError, InternalError
from grpc_channelz.v1 import channelz, channelz_pb2

from headrace.core.event_log import log_event
from headrace.core.request_context import NEVER, REQUEST_SECONDS_MAX, RequestContext
from headrace.server.grpc.places import Client, Places
from headrace.server.grpc.statuses import REQUEST_ID_KEY
from headrace.server.loop_calls import Calls
from headrace.server.requests import accepted_id
from headrace.server.service import Service

logger = logging.getLogger("headrace.grpc")

# How many connections are asked for at once.
PAGE = 1_000


class MeasuredCall:
    """One call under way, from `with` to its end."""

    def __init__(self, measured: Measured, context: Any, *, is_stream: bool) -> None:
        self._measured = measured
        self._context = context
        self._is_stream = is_stream
        # What went wrong, if anything did.
        self.code = ""
        self.request: Any = None
        self.began = perf_counter()
        self.given_id = _given_id(context)
        if self.given_id:
            context.set_trailing_metadata(((REQUEST_ID_KEY, self.given_id),))

    def begin(self, request: Any) -> None:
        """It has come: until now the client was waited for."""
        self.request = request
        self.began = perf_counter()

    @cached_property
    def client(self) -> Client:
        return self._measured.places.client(self._context)

    @cached_property
    def calls(self) -> Calls:
        """The node's, as this call makes them."""
        context = RequestContext(self.client.principal, self._deadline(), self.given_id)
        return self._measured.calls.asked_by(context)

    def _deadline(self) -> float:
        left: float | None = None if self._is_stream else self._context.time_remaining()
        if left is None:
            return NEVER
        return self._measured.service.loop.time() + min(left, REQUEST_SECONDS_MAX)

    def when_over(self, on_over: Callable[[Any], None]) -> None:
        """Have it called when grpc has sent the answer, or could not."""
        self._context.add_done_callback(on_over)

    @cached_property
    def request_id(self) -> str:
        return self.given_id or self._measured.service.entropy.random_bytes(8).hex()

    def who(self) -> dict[str, object]:
        return {"peer": self._context.peer(), "request_id": self.request_id}

    # Written out, since each call has one: a generator for it costs three times as much.

    def __enter__(self) -> MeasuredCall:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        # Those of grpc are how a call is refused. The last is what grpc says where there is
        # nobody to be answered any more.
        if isinstance(error, Exception) and not isinstance(
            error, AbortError | RpcError | InternalError
        ):
            self.code = "error"
            self._measured.on_failed(self, error)
        if self._is_stream:
            self._measured.on_stream_end(self)
        else:
            self._measured.on_call_end(self)


class Measured:
    """One method."""

    def __init__(self, service: Service, places: Places, name: str) -> None:
        self.service = service
        self.calls = Calls(service, door="grpc")
        # Of the address of each call.
        self.places = places
        self._endpoint = service.counts.endpoint("grpc", name)

    def call(self, context: Any) -> MeasuredCall:
        return MeasuredCall(self, context, is_stream=False)

    def stream(self, context: Any) -> MeasuredCall:
        return MeasuredCall(self, context, is_stream=True)

    def on_call_end(self, call: MeasuredCall) -> None:
        requests = self.service.requests
        seconds = perf_counter() - call.began
        is_odd = bool(call.code) or seconds >= requests.look_seconds
        requests.done(
            self._endpoint,
            call.began,
            seconds=seconds,
            waited_ms=_wait_ms(call.request),
            code=call.code,
            who=call.who() if is_odd else {},
        )

    def on_stream_end(self, call: MeasuredCall) -> None:
        if call.code:
            self._endpoint.errors[call.code] += 1

    def on_failed(self, call: MeasuredCall, error: Exception) -> None:
        log_event(
            logger,
            logging.ERROR,
            "a call failed",
            exc_info=error,
            api=self._endpoint.api,
            **call.who(),
        )


def count_connections() -> int:
    """Of all servers of gRPC in this process, of which a node has many."""
    ask = channelz.ChannelzServicer
    found, start, is_end = 0, 0, False
    while not is_end:
        asked = channelz_pb2.GetServersRequest(start_server_id=start, max_results=PAGE)
        page = ask.GetServers(asked, None)
        found += sum(_sockets_of(server.ref.server_id) for server in page.server)
        is_end = page.end or not page.server
        start = page.server[-1].ref.server_id + 1 if page.server else 0
    return found


def _sockets_of(server_id: int) -> int:
    found, start, is_end = 0, 0, False
    while not is_end:
        asked = channelz_pb2.GetServerSocketsRequest(
            server_id=server_id, start_socket_id=start, max_results=PAGE
        )
        page = channelz.ChannelzServicer.GetServerSockets(asked, None)
        found += len(page.socket_ref)
        is_end = page.end or not page.socket_ref
        start = page.socket_ref[-1].socket_id + 1 if page.socket_ref else 0
    return found


def _given_id(context: Any) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == REQUEST_ID_KEY and isinstance(value, str):
            return accepted_id(value)
    return ""


def _wait_ms(request: Any) -> int:
    return int(getattr(request, "wait_ms", 0)) if isinstance(request, Message) else 0
