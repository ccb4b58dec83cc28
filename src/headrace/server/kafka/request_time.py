"""How long a request of Kafka's clients may take, by what it says of itself.

timeout_ms     when its client gives up: its deadline
max_wait_ms    how long it waits for data, and is then answered without
neither        as long as any request
"""

from __future__ import annotations

from typing import Any

from headrace.core import limits
from headrace.core.request_context import REQUEST_SECONDS_MAX, RequestContext


def wait_and_context(
    request: Any, of_connection: RequestContext, correlation_id: int, now: float
) -> tuple[int, RequestContext]:
    """The milliseconds that it waits for data, and what it carries; `now` by the loop."""
    wait_ms: int = getattr(request, "max_wait_ms", 0)
    timeout_ms: int = getattr(request, "timeout_ms", 0)
    seconds = timeout_seconds(timeout_ms)
    if wait_ms > 0:
        seconds += wait_ms / 1000
    return wait_ms, RequestContext(of_connection.principal, now + seconds, correlation_id)


def timeout_seconds(timeout_ms: int) -> float:
    """What clients that say nothing sensible send is no time at all."""
    return timeout_ms / 1000 if 0 < timeout_ms < limits.REQUEST_MS_MAX else REQUEST_SECONDS_MAX
