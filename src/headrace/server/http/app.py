"""The ASGI application: who may ask, the router, and errors as problems.

    request --> host and origin --> router --> route --> call --> answer
                     |                 |          |
                    403            404, 405    problem

A web page must not drive a node that only listens on this machine: a browser sends
the name that it looked up as Host, and on everything but plain reading from another
page its Origin. Both have to be ours.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.core.errors import HeadraceError, InvalidArgument
from headrace.core.event_log import log_event
from headrace.server.aftermath import Aftermath
from headrace.server.http import openapi
from headrace.server.http.arriving import Budget
from headrace.server.http.dashboard import dashboard_routes
from headrace.server.http.facts import Facts
from headrace.server.http.members import Members
from headrace.server.http.metrics import metrics_endpoint
from headrace.server.http.paths import Paths
from headrace.server.http.problems import problem, problem_response
from headrace.server.http.protocol import ACCOUNT
from headrace.server.http.reference_page import reference_routes
from headrace.server.http.route import REQUEST_ID, WAITED, endpoint
from headrace.server.http.table import ROUTES
from headrace.server.loop_calls import Calls
from headrace.server.metrics.counting import OTHER, Endpoint
from headrace.server.metrics.scrape import Scrapes
from headrace.server.requests import Requests, accepted_id
from headrace.server.shares import Account, Metered

logger = logging.getLogger("headrace.http")

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


def make_app(
    calls: Calls, members: Members, facts: Facts, aftermath: Aftermath, gate: Gate,
    scrapes: Scrapes, budget: Budget, extra: Iterable[BaseRoute] = (),
) -> ASGIApp:  # fmt: skip
    calls.service.held_bytes["bodies"] = lambda: budget.size_bytes
    requests = calls.service.requests
    counts = calls.service.counts
    api: list[BaseRoute] = [
        Path(
            route.path,
            _guarded(
                endpoint(route, calls, members, facts, budget, aftermath),
                counts.endpoint("http", f"{route.method} {route.path}"),
                requests,
            ),
            methods=[route.method],
        )
        for route in ROUTES
    ]
    paths = [
        *api,
        *dashboard_routes(facts.settings, api),
        Path("/openapi.json", _document, methods=["GET"]),
        *reference_routes(facts.settings),
        Path(
            "/metrics",
            _guarded(metrics_endpoint(scrapes), counts.endpoint("http", "GET /metrics"), requests),
            methods=["GET"],
        ),
        *extra,
    ]
    unknown = counts.endpoint("http", OTHER)

    async def on_http_error(request: Request, error: Exception) -> Response:
        answer = await _on_http_error(request, error)
        unknown.errors[str(answer.status_code)] += 1
        return answer

    app = Starlette(routes=paths, exception_handlers={HTTPException: on_http_error})
    gate.app = Paths(paths, app)
    return gate


async def _document(request: Request) -> Response:
    return JSONResponse(openapi.document())


def _guarded(
    serve: Callable[[Request], Awaitable[Response]], measured: Endpoint, requests: Requests
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> tuple[Response, str]:
        try:
            return await serve(request), ""
        except HeadraceError as error:
            return problem(error, request), error.code
        except ClientDisconnect:
            # Nobody is there to be answered.
            return Response(status_code=499), "client-gone"
        except Exception:
            log_event(logger, logging.ERROR, "a request failed", exc_info=True, **_who(request))
            answer = problem_response(500, "error", "the node failed; its log says more", request)
            return answer, "error"

    async def guarded(request: Request) -> Response:
        began = perf_counter()
        response, code = await answer(request)
        requests.done(
            measured,
            began,
            waited_ms=1000 * request.scope.get(WAITED, 0),
            code=code,
            who=_who(request),
        )
        return response

    return guarded


def _who(request: Request) -> dict[str, object]:
    """What a line of the log says of a request."""
    return {
        "path": request.scope["raw_path"].decode("latin-1"),
        "peer": request.client.host if request.client is not None else "",
        "request_id": request.scope.get(REQUEST_ID, ""),
    }


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        detail = f"{path} is not offered; see /docs"
        answer = problem_response(405, "method-not-allowed", detail, request)
        answer.headers.update(error.headers or {})
        return answer
    return problem_response(404, "unknown-path", f"there is no {path}; see /docs", request)


def _has_several(scope: Scope, name: bytes) -> bool:
    return [each for each, _ in scope["headers"]].count(name) > 1


class Gate:
    """Before everything else: the Host, the Origin, and an id for the request."""

    def __init__(
        self, hosts: frozenset[str], origins: frozenset[str], new_id: Callable[[], str]
    ) -> None:
        self.app: ASGIApp
        self._hosts = hosts
        self._origins = origins
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = accepted_id(given) or self._new_id()
        scope[REQUEST_ID] = request_id

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        refused = self._refusal(headers)
        if len(headers) < len(scope["headers"]) and _has_several(scope, b"host"):
            # Whoever stands before us may have looked at the other one.
            refused = InvalidArgument("a request has one Host header, not several")
        if refused is not None:
            await _refuse(refused, scope, receive, send_with_id)
            return
        account = scope.get(ACCOUNT)
        if account is None:
            await self.app(scope, receive, send_with_id)
            return
        if account.is_spent:
            await account.turn()
        if scope["type"] == "websocket":
            receive = _in_turn(receive, account)
        await Metered(self.app(scope, receive, send_with_id), account)

    def _refusal(self, headers: dict[bytes, bytes]) -> HeadraceError | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            return ForbiddenHost(
                f"this node does not go by {host!r}; connect to the address it listens on, or "
                "name the host in http_hosts"
            )
        given = headers.get(b"origin")
        if given is None:
            return None
        origin = given.decode("latin-1")
        if origin in self._origins or "*" in self._origins:
            return None
        if origin.partition("://")[2] == host:
            return None
        return ForbiddenOrigin(
            f"pages of {origin} may not use this node; name the origin in http_origins"
        )

    def _is_ours(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.removeprefix("[").removesuffix("]").lower()
        return name in self._hosts or "*" in self._hosts


def _in_turn(receive: Receive, account: Account) -> Receive:
    """Each message of a WebSocket is a request, and waits for the connection's turn."""

    async def receive_in_turn() -> Any:
        message = await receive()
        await account.turn()
        return message

    return receive_in_turn


class ForbiddenHost(HeadraceError):
    code = "forbidden-host"


class ForbiddenOrigin(HeadraceError):
    code = "forbidden-origin"


def hosts_of(bound: str, named: Iterable[str]) -> frozenset[str]:
    """The names under which this node may be asked for."""
    hosts = {*LOOPBACK_NAMES, bound.lower(), *(name.lower() for name in named)}
    try:
        if ipaddress.ip_address(bound).is_unspecified and not named:
            # It listens everywhere, which somebody has allowed in so many words.
            hosts.add("*")
    except ValueError:
        pass
    return frozenset(hosts)


async def _refuse(error: HeadraceError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": str(error)[:120]})
        return
    await problem(error, Request(scope))(scope, receive, send)
