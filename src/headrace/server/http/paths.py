"""From a path to what serves it, by counting its segments.

    POST /topics/orders/messages   ->   (POST, 4)   ->   ["", "topics", None, "messages"]

A segment is what is between two slashes as they were sent: `%2F` is a part of a name,
such as that of the group `team/app`.

A method and a number of segments leave a handful of routes, of which the first that
fits is taken, as a router would that asks one after the other. Everything else, such as
a WebSocket, a method that is not offered or a path that does not exist, is the router's.

Rejected: the router for everything. Asking forty routes one after the other, and
wrapping each request in three layers for errors that we have caught by then, costs more
than all of the rest that HTTP is about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]


class Pattern(NamedTuple):
    # What must be there, by place in the path, and what may be anything.
    words: tuple[tuple[int, str], ...]
    names: tuple[tuple[int, str], ...]
    endpoint: Endpoint

    def fits(self, segments: list[str]) -> bool:
        # Plain loops: there are several of these for each request.
        for place, word in self.words:
            if segments[place] != word:
                return False
        for place, _ in self.names:
            if not segments[place]:
                return False
        return True


def segments_of(scope: Scope) -> list[str]:
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path", b"")
    if b"%2" not in raw:
        return path.split("/")
    return [unquote(each) for each in raw.partition(b"?")[0].decode("latin-1").split("/")]


class Paths:
    def __init__(self, routes: Iterable[BaseRoute], rest: ASGIApp) -> None:
        self._rest = rest
        self._patterns: dict[tuple[str, int], list[Pattern]] = {}
        for route in routes:
            # A parameter with a kind of its own may span segments.
            if isinstance(route, Route) and ":" not in route.path:
                segments = list(enumerate(route.path.split("/")))
                pattern = Pattern(
                    tuple(each for each in segments if not each[1].startswith("{")),
                    tuple((place, each[1:-1]) for place, each in segments if each.startswith("{")),
                    route.endpoint,
                )
                for method in route.methods or ():
                    self._patterns.setdefault((method, len(segments)), []).append(pattern)

    def named(self, scope: Scope, segments: list[str]) -> Endpoint | None:
        """What serves these segments, once it is told the names in them."""
        found = self.find(scope["method"], segments)
        if found is None:
            return None
        scope["path_params"] = {name: segments[place] for place, name in found.names}
        return found.endpoint

    def find(self, method: str, segments: list[str]) -> Pattern | None:
        for pattern in self._patterns.get((method, len(segments)), ()):
            if pattern.fits(segments):
                return pattern
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            serve = self.named(scope, segments_of(scope))
            if serve is not None:
                response = await serve(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await self._rest(scope, receive, send)
