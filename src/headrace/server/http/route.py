"""A route: what is asked for, what is answered, and what does it.

    Route("POST", "/topics", create_topic, "Make a topic", body=NewTopic, answer=ShownTopic)

From one table of these come the router, the checks of every request and the OpenAPI
document, so that they cannot tell different stories.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.request_context import (
    ANONYMOUS,
    NEVER,
    REQUEST_SECONDS_MAX,
    Principal,
    RequestContext,
)
from headrace.server.aftermath import Aftermath
from headrace.server.http.arriving import Budget
from headrace.server.http.facts import Facts
from headrace.server.http.members import Members
from headrace.server.http.turns import Turns
from headrace.server.loop_calls import Calls
from headrace.server.service import Service
from headrace.wire.http.message_count import check_json_count

JSON_TYPE = "application/json"
# In a request's scope: for how many seconds it asked to wait.
WAITED = "headrace.wait"
# And what says whether its client is known to be gone.
IS_GONE = "headrace.is_gone"
# Who its connection belongs to, and what the request is known by.
PRINCIPAL = "headrace.principal"
REQUEST_ID = "headrace.request_id"

T = TypeVar("T")

# Bodies below are decoded once.
PLAIN_BODY_BYTES_MIN = 1024

# The escape of a character's first half, without that of the second behind it.
_HALF_CHARACTER = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)


class Call:
    """One request on its way: what was asked, and what may be called."""

    __slots__ = (
        "_budget", "_has_turn", "_turns", "aftermath", "body", "calls", "facts", "members", "path",
        "query", "request", "route", "run", "service",
    )  # fmt: skip

    def __init__(
        self, route: Route, request: Request, calls: Calls, members: Members, facts: Facts,
        budget: Budget, aftermath: Aftermath, turns: Turns | None = None,
    ) -> None:  # fmt: skip
        """`turns` are those of a route whose answers have messages in them."""
        self.route = route
        self.request = request
        self.aftermath = aftermath
        self.calls = calls
        self.run = calls.run
        self.members = members
        self.facts = facts
        self._budget = budget
        self.service: Service = calls.service
        self.path: dict[str, str] = request.path_params
        self.body: Any = None
        self.query: Any = None
        self._turns = turns
        self._has_turn = False

    def begin(self) -> None:
        """What it asks is known, and so is how long it may take."""
        wait = getattr(self.body or self.query, "wait", 0)
        self.request.scope[WAITED] = wait
        deadline = NEVER
        if wait > 0:
            deadline = self.service.loop.time() + wait + REQUEST_SECONDS_MAX
        self.calls = self.calls.asked_by(context_of(self.request.scope, deadline))
        self.run = self.calls.run

    async def take_turn(self, undo: Callable[[], Awaitable[None]] | None = None) -> None:
        """Wait until this may make its answer; `end_turn` lets the next one. Who is gone
        meanwhile does not stay in line: what was done for it is undone, ClientDisconnect."""
        if self._turns is None:
            return
        if self._turns.is_free:
            await self._turns.take()
        else:
            try:
                await self.while_there(self._turns.take())
            except ClientDisconnect:
                if undo is not None:
                    await undo()
                raise
        self._has_turn = True

    async def check_there(self, undo: Callable[[], Awaitable[None]]) -> None:
        """Right before an answer: when the client is gone, what was done for it is undone,
        ClientDisconnect."""
        is_gone = self.request.scope.get(IS_GONE)
        if is_gone is not None and is_gone():
            await undo()
            raise ClientDisconnect

    def end_turn(self, answer_bytes: int = 0) -> None:
        if self._turns is not None and self._has_turn:
            self._has_turn = False
            self._turns.end(answer_bytes)

    async def read_body(self) -> bytes:
        return await self._budget.read_body(self.request, self.route.body_bytes_max)

    async def unless_gone(
        self,
        work: Coroutine[Any, Any, list[T]],
        undo: Callable[[list[T]], Awaitable[None]] | None = None,
    ) -> list[T]:
        """What the work finds, or ClientDisconnect as soon as nobody waits for it:
        then it is cancelled, or undone if it was over by then. Nothing when the node
        closes: whoever waits is told in time, and asks again when there is a node. The
        turn is others' meanwhile."""
        had_turn = self._has_turn
        self.end_turn()
        found = await self._unless_gone(work, undo)
        if had_turn:
            await self.take_turn(None if undo is None else partial(undo, found))
        return found

    async def while_there(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns. As soon as the client is gone it is cancelled, and
        ClientDisconnect is raised: it must be nothing but reading."""
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_leaves(self.request))
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnect
            return working.result()
        finally:
            await _give_up(working, leaving)

    async def each_while_there(self, steps: AsyncIterator[T]) -> AsyncIterator[T]:
        """Each of the steps, for work that changes something: one that has begun is done
        to its end, and ClientDisconnect is raised before the next when the client is gone."""
        leaving = asyncio.ensure_future(_leaves(self.request))
        try:
            async for step in steps:
                if leaving.done():
                    raise ClientDisconnect
                yield step
        finally:
            await _give_up(leaving)

    async def _unless_gone(
        self,
        work: Coroutine[Any, Any, list[T]],
        undo: Callable[[list[T]], Awaitable[None]] | None,
    ) -> list[T]:
        working = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(_leaves(self.request))
        closing = self.service.closing
        try:
            await asyncio.wait((working, leaving, closing), return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                return working.result() if working.done() else []
            if undo is not None and working.done() and working.exception() is None:
                await undo(working.result())
            raise ClientDisconnect
        finally:
            await _give_up(working, leaving)


def context_of(scope: Any, deadline: float = NEVER) -> RequestContext:
    """Of a request, or of a WebSocket, each of whose messages is one."""
    principal: Principal = scope.get(PRINCIPAL, ANONYMOUS)
    return RequestContext(principal, deadline, scope.get(REQUEST_ID, ""))


async def _give_up(*tasks: asyncio.Future[Any]) -> None:
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


Handler = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    # Types of what comes in and goes out; None where there is nothing.
    body: Any = None
    query: Any = None
    answer: Any = None
    status: int = 200
    # A simpler form of the body, which a large one is tried as first.
    plain_body: Any = None
    # The largest: of what has no messages in it, one of thousands of receipts is small.
    body_bytes_max: int = limits.HTTP_REQUEST_BYTES_MAX
    # Other forms than JSON that the body or the answer may have.
    raw_body: bool = False
    answer_type: str = JSON_TYPE
    detail: str = ""
    # Its answers may have megabytes of messages in them: only some are made at once. A
    # handler that may be long in finding them takes its turn itself, when it has them.
    has_messages: bool = False
    takes_turn: bool = False
    # It may read for long, changes nothing, and ends when its client is gone.
    reads_through: bool = False


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
encode = msgspec.json.Encoder().encode


def decode_body(kind: Any, body: bytes) -> Any:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        if not body.isascii():
            # The decoder takes over values as they stand and does not look into them.
            body.decode()
        check_json_count(body)
        return decoder.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the body is not what this takes: {why(error, body)}") from error


def why(error: Exception, text: bytes) -> str:
    """What is wrong with it. Of half a character the decoder says that the data was cut."""
    if "truncated" in str(error) and _HALF_CHARACTER.search(text):
        return (
            "JSON is malformed: \\ud800 to \\udbff is half of a character, and the other half, "
            "\\udc00 to \\udfff, has to stand right behind it"
        )
    return str(error)


def decode_plain_body(kind: Any, body: bytes) -> Any:
    """None where the body has another form, or is too small for it to matter."""
    if len(body) < PLAIN_BODY_BYTES_MIN:
        return None
    try:
        return decode_body(kind, body)
    except InvalidArgument:
        return None


def decode_query(kind: Any, request: Request) -> Any:
    # What is no text would be read as the one sign for that: different keys would be one.
    try:
        unquote_to_bytes(request.scope["query_string"]).decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the query is not UTF-8: {error}") from error
    given = dict(request.query_params)
    if len(given) != len(request.query_params.multi_items()):
        raise InvalidArgument("a parameter was given twice")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"the query is not what this takes: {error}") from error


def is_json(request: Request) -> bool:
    """Whether the body is to be read as JSON: said so, or nothing said at all."""
    kind = request.headers.get("content-type", JSON_TYPE).split(";", 1)[0].strip().lower()
    # What curl says of a body when it is not told otherwise.
    return kind in (JSON_TYPE, "application/x-www-form-urlencoded", "text/json")


def endpoint(
    route: Route, calls: Calls, members: Members, facts: Facts, budget: Budget,
    aftermath: Aftermath,
) -> Callable[[Request], Awaitable[Response]]:  # fmt: skip
    turns = Turns(calls.service.loop) if route.has_messages else None

    async def carry_out(call: Call) -> Any:
        if not route.takes_turn:
            await call.take_turn()
        return await route.handler(call)

    async def serve(request: Request) -> Response:
        call = Call(route, request, calls, members, facts, budget, aftermath, turns)
        if route.query is not None:
            call.query = decode_query(route.query, request)
        elif request.query_params and not route.raw_body:
            raise InvalidArgument(f"{route.method} {route.path} takes no parameters")
        if route.body is not None and not (route.raw_body and not is_json(request)):
            if not is_json(request):
                raise UnsupportedType(
                    f"the body must be {JSON_TYPE}, not {request.headers.get('content-type')!r}"
                )
            body = await call.read_body()
            if route.plain_body is not None:
                call.body = decode_plain_body(route.plain_body, body)
            if call.body is None:
                call.body = decode_body(route.body, body)
        call.begin()
        content = b""
        try:
            if route.reads_through:
                answer = await call.while_there(carry_out(call))
            else:
                answer = await carry_out(call)
            if isinstance(answer, Response):
                content = getattr(answer, "body", b"")
                return answer
            if answer is not None:
                content = encode(answer)
        finally:
            call.end_turn(len(content))
        return Response(content, route.status, media_type=None if answer is None else JSON_TYPE)

    return serve


class UnsupportedType(InvalidArgument):
    code = "unsupported-media-type"
