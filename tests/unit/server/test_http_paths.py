"""A path is served by what a router would have chosen, and by nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp

from headrace.server.http.paths import Paths
from headrace.server.http.table import ROUTES

WORDS = ("", "topics", "messages", "queues", "groups", "t", "0", "members", "dead-letters", "ack")


def endpoint(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        found = sorted(request.path_params.items())
        return PlainTextResponse(f"{name} {found}")

    return serve


TABLE: list[BaseRoute] = [
    Route(each.path, endpoint(f"{each.method} {each.path}"), methods=[each.method])
    for each in ROUTES
]


def ask(app: ASGIApp, method: str, path: str, raw: bytes = b"") -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": path, "headers": [], "query_string": b"",
        "root_path": "", "raw_path": raw,
    }  # fmt: skip

    async def run() -> None:
        await app(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], sent[1]["body"]


def test_every_route_of_the_table_is_found_with_its_parameters() -> None:
    router = Starlette(routes=TABLE)
    paths = Paths(TABLE, router)
    for each in ROUTES:
        path = each.path.replace("{partition}", "0").replace("{offset}", "17")
        path = path.replace("{topic}", "a b").replace("{group}", "g").replace("{member}", "m-1")
        assert ask(paths, each.method, path) == ask(router, each.method, path)
        assert ask(paths, each.method, path)[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT"])
def test_whatever_the_path_is_the_router_would_say_the_same(method: str) -> None:
    router = Starlette(routes=TABLE)
    paths = Paths(TABLE, router)
    tried = [f"/{a}/{b}/{c}" for a in WORDS for b in WORDS for c in WORDS]
    tried += ["", "/", "//", "/topics", "/topics/", "/topics/t/messages/0/1/", "/openapi.json"]
    for path in tried:
        scope = {"type": "http", "method": method, "path": path, "root_path": ""}
        wanted = next((each for each in TABLE if each.matches(scope)[0] is Match.FULL), None)
        segments = path.split("/")
        found = paths.find(method, segments)
        assert (found is None) == (wanted is None), path
        if found is not None and isinstance(wanted, Route):
            assert found.endpoint is wanted.endpoint, path


def test_a_slash_in_a_name_is_a_part_of_it() -> None:
    paths = Paths(TABLE, Starlette(routes=TABLE))
    raw = b"/groups/team%2Fapp%20%C3%A9/lag?x=/"
    answer = ask(paths, "GET", "/groups/team/app \u00e9/lag", raw)
    expected = "GET /groups/{group}/lag [('group', 'team/app \u00e9')]"
    assert answer == (200, expected.encode())
