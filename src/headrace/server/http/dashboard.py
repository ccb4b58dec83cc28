"""The dashboard: its files, and the API as its pages may use it.

    GET /                              to the dashboard
    GET /dashboard, /dashboard/...     the one page; which view it shows is its own affair
    GET /dashboard/assets/<digest>/    scripts and styles, good for ever under that name
    /dashboard/api/...                 every route of the API, behind the dashboard's rule

The rule: unless the node is set to `dashboard = "full"`, only GET passes. It is kept
here and not in the page. The page's Content-Security-Policy lets it connect to
nothing but /dashboard/api/, so that whatever a message may bring it to do, it stays
behind the rule. The public API beside it is what it was.

A page of another origin cannot ride on an open dashboard: the gate has looked at Host
and Origin before anything gets here, and what changes something has to carry a header
that only a page of ours can set.

Rejected: a cookie with a token. Cookies know neither ports nor paths, so a dashboard
would speak for every other page and every other node of the same machine.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.routing import Route as Path
from starlette.types import Receive, Scope, Send

from headrace.core.errors import HeadraceError
from headrace.core.node_settings import NodeSettings
from headrace.server.http.paths import Paths, segments_of
from headrace.server.http.problems import problem, problem_response

HOME = "/dashboard"
# What a page of ours sends along with everything that changes something.
OURS = "x-headrace-dashboard"
PREFIX_SEGMENTS = len(f"{HOME}/api".split("/"))
SHELL = "index.html"
# The reference of the API at /docs is made of the same parts; see `reference_page`.
DOCS = "/docs"
REFERENCE = "reference/docs.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"
# Files below this are sent as they are.
SMALL_BYTES = 512


class NotAllowed(HeadraceError):
    code = "dashboard-read-only"


class Asset(NamedTuple):
    body: bytes
    packed: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Every file of the dashboard by its path. The folder is no Python: it is a
    client of the HTTP API, written for browsers, and is only carried here."""
    found: dict[str, bytes] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for each in folder.iterdir():
            if each.is_dir():
                walk(each, f"{prefix}{each.name}/")
            elif f".{each.name.rpartition('.')[2]}" in TYPES:
                found[prefix + each.name] = each.read_bytes()

    walk(files("headrace") / "dashboard", "")
    everything = b"".join(name.encode() + body for name, body in sorted(found.items()))
    digest = hashlib.sha256(everything).hexdigest()[:16]
    modules = "\n".join(
        f'<link rel="modulepreload" href="{HOME}/assets/{digest}/{name}">'
        for name in sorted(found)
        if name.endswith(".js") and name != "theme.js" and not name.startswith("reference/")
    )
    shell = found[SHELL].decode()
    shell = shell.replace("{modules}", modules).replace("{assets}", f"{HOME}/assets/{digest}")
    found[SHELL] = shell.encode()
    reference = found[REFERENCE].decode().replace("{assets}", f"{DOCS}/assets/{digest}")
    found[REFERENCE] = reference.encode()
    return {name: make_asset(name, body) for name, body in found.items()}


def make_asset(name: str, body: bytes) -> Asset:
    packed = gzip.compress(body, 9, mtime=0)
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return Asset(body, packed, TYPES[f".{name.rpartition('.')[2]}"], etag)


def dashboard_routes(settings: NodeSettings, api: list[BaseRoute]) -> list[BaseRoute]:
    if settings.dashboard == "off":
        return []
    origins = [name.strip() for name in settings.http_origins.split(",") if name.strip()]

    async def shell(request: Request) -> Response:
        policy = _policy(request.headers.get("host", ""), origins)
        return served(request, assets()[SHELL], {
            "cache-control": "no-cache", "content-security-policy": policy,
            "referrer-policy": "no-referrer", "x-frame-options": "DENY",
            "cross-origin-opener-policy": "same-origin",
        })  # fmt: skip

    async def home(request: Request) -> Response:
        return RedirectResponse(HOME, 307)

    async def rule(request: Request) -> Response:
        return JSONResponse({"actions": settings.dashboard == "full"})

    return [
        Path("/", home, methods=["GET"]),
        Path(f"{HOME}/assets/{{digest}}/{{name:path}}", asset, methods=["GET"]),
        Path(f"{HOME}/api/dashboard", rule, methods=["GET"]),
        Mount(f"{HOME}/api", _Ruled(api, may_change=settings.dashboard == "full")),
        Path(HOME, shell, methods=["GET"]),
        Path(f"{HOME}/{{view:path}}", shell, methods=["GET"]),
    ]


async def asset(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        return Response(status_code=404)
    return served(request, found, {"cache-control": FOREVER})


class _Ruled:
    """The routes of the API, for those who are let through."""

    def __init__(self, routes: list[BaseRoute], *, may_change: bool) -> None:
        self._paths = Paths(routes, self._unknown)
        self._may_change = may_change

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refused = self._refusal(request)
        if refused is not None:
            await problem(refused, request)(scope, receive, send)
            return
        # What comes behind /dashboard/api is a path of the API.
        serve = self._paths.named(scope, ["", *segments_of(scope)[PREFIX_SEGMENTS:]])
        if serve is None:
            await self._unknown(scope, receive, send)
            return
        response = await serve(request)
        await response(scope, receive, send)

    async def _unknown(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        detail = f"there is no {request.method} {request.url.path}; see /docs"
        await problem_response(404, "unknown-path", detail, request)(scope, receive, send)

    def _refusal(self, request: Request) -> NotAllowed | None:
        if request.method in ("GET", "HEAD"):
            return None
        if not self._may_change:
            return NotAllowed(
                "this dashboard only shows; start the node with --dashboard full to allow "
                "changes from it"
            )
        if OURS not in request.headers:
            return NotAllowed(f"changes come from the dashboard's own pages, with {OURS}")
        return None


def _policy(host: str, origins: list[str]) -> str:
    """What the page may do: run and style itself with its own files, and connect to
    its API. An address in brackets cannot be written in a policy, nor can any host."""
    api = f"{HOME}/api/"
    if "[" in host or "*" in origins or not is_plain(host):
        reach = "'self'"
    else:
        reach = " ".join([f"{host}{api}", *(f"{each}{api}" for each in origins)])
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        f"connect-src {reach}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def is_plain(host: str) -> bool:
    return host.isascii() and all(each.isalnum() or each in ".-:_" for each in host)


def served(request: Request, asset: Asset, headers: dict[str, str]) -> Response:
    headers = {
        **headers,
        "etag": asset.etag,
        "vary": "accept-encoding",
        "x-content-type-options": "nosniff",
    }
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    takes_packed = "gzip" in request.headers.get("accept-encoding", "")
    if takes_packed and len(asset.body) >= SMALL_BYTES:
        headers["content-encoding"] = "gzip"
        return Response(asset.packed, headers=headers, media_type=asset.media_type)
    return Response(asset.body, headers=headers, media_type=asset.media_type)
