"""Counts clicks with faust in two tables: one of windows, and one by page behind a group_by.

Faust delivers a click again when it was killed before it committed, so tables know the numbers
of the clicks that they have.
"""

from __future__ import annotations

import os
from datetime import timedelta

import faust

PARTITIONS = 3
WINDOW_MS = 10_000


class Click(faust.Record):
    number: int
    user: str
    page: str
    time_ms: int


app = faust.App(
    "clicks",
    broker=f"kafka://{os.environ['BOOTSTRAP']}",
    datadir=os.environ["STATE"],
    store="memory://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    web_enabled=False,
    # A killed instance is missed soon.
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
)
clicks = app.topic("clicks", key_type=str, value_type=Click)
by_window = app.topic("by-window", value_serializer="json")
by_page = app.topic("by-page", value_serializer="json")
windows = (
    app.Table("windows", default=list)
    .tumbling(timedelta(milliseconds=WINDOW_MS), expires=timedelta(days=1))
    .relative_to_stream()
)
pages = app.Table("pages", default=list)


@app.agent(clicks)
async def count_windows(stream: faust.Stream) -> None:
    async for event in stream.events():
        click = event.value
        numbers = windows[click.user].value()
        if click.number not in numbers:
            numbers = [*numbers, click.number]
            windows[click.user] = numbers
        of = f"{click.user}@{click.time_ms // WINDOW_MS * WINDOW_MS}"
        await by_window.send(key=of, value={"of": of, "count": len(numbers)})


@app.agent(clicks)
async def count_pages(stream: faust.Stream) -> None:
    async for click in stream.group_by(Click.page):
        numbers = pages[click.page]
        if click.number not in numbers:
            numbers = [*numbers, click.number]
            pages[click.page] = numbers
        await by_page.send(key=click.page, value={"of": click.page, "count": len(numbers)})


if __name__ == "__main__":
    app.main()
