"""The reference of the HTTP API at /docs: a page of the node's own, made of the same parts
as the dashboard, and there where the dashboard is off.

    GET /docs                     the page; its script reads /openapi.json
    GET /docs/assets/<digest>/    scripts and styles, good for ever under that name

Without a script the page lists every route. Its policy lets it run its own files and
connect to this node alone, for the document and for reading by "Try it".
"""

from __future__ import annotations

import html
from functools import cache

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as Path

from headrace.core.node_settings import NodeSettings
from headrace.server.http.dashboard import (
    DOCS,
    REFERENCE,
    Asset,
    asset,
    assets,
    is_plain,
    make_asset,
    served,
)
from headrace.server.http.table import ROUTES


def reference_routes(settings: NodeSettings) -> list[BaseRoute]:
    has_dashboard = settings.dashboard != "off"

    async def page(request: Request) -> Response:
        return _page(request, _reference(has_dashboard))

    return [
        Path(DOCS, page, methods=["GET"]),
        Path(f"{DOCS}/assets/{{digest}}/{{name:path}}", asset, methods=["GET"]),
    ]


@cache
def _reference(has_dashboard: bool) -> Asset:
    listed = "".join(
        f"<p><code>{route.method} {html.escape(route.path)}</code> {html.escape(route.summary)}</p>"
        for route in ROUTES
    )
    page = assets()[REFERENCE].body.decode().replace("{operations}", listed)
    page = page.replace("{dashboard}", "on" if has_dashboard else "off")
    return make_asset(REFERENCE, page.encode())


def _page(request: Request, reference: Asset) -> Response:
    host = request.headers.get("host", "")
    # Scripts of this origin may open its WebSocket, whose scheme is another one.
    socket = f" ws://{host}" if is_plain(host) else ""
    return served(request, reference, {
        "cache-control": "no-cache",
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            f"connect-src 'self'{socket}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        "referrer-policy": "no-referrer", "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
    })  # fmt: skip
