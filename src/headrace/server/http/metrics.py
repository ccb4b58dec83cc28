"""GET /metrics: what Prometheus asks for, beside the API that people use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from headrace.server.metrics.scrape import Scrapes


def metrics_endpoint(scrapes: Scrapes) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        text, content_type = await scrapes.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    return serve
