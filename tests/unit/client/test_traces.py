"""A search over pages: it goes on where the last one ended, and tells how far it came."""

from __future__ import annotations

from typing import Any

from headrace.client.traces import search
from headrace.core.trace_values import TracePage, TraceQuery


class Pages:
    """A backend that has looked at so much, and found nothing yet."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def traces(self, query: TraceQuery, *, after: str | None, limit: int) -> TracePage:
        self.asked.append(after)
        found: Any = ["last"] if len(self.asked) == 3 else []
        return TracePage(found, None if found else f"orders:0:{len(self.asked)}000")


def test_it_goes_on_behind_pages_without_a_match_and_tells_how_far_it_came() -> None:
    pages: Any = Pages()
    told: list[str] = []
    found: list[Any] = list(search(pages, TraceQuery(outcome="expired"), told.append))
    assert found == ["last"]
    assert pages.asked == [None, "orders:0:1000", "orders:0:2000"]
    assert told == ["orders:0:1000", "orders:0:2000"]
