"""Counts clicks with Quix Streams, exactly once: in windows, and by page behind a group_by."""

from __future__ import annotations

import os
from typing import Any

from quixstreams import Application, State

WINDOW_MS = 10_000


def window(value: dict[str, Any], key: str, timestamp: int, headers: object) -> dict[str, Any]:
    return {"of": f"{key}@{value['start']}", "count": value["value"]}


def count(click: dict[str, Any], state: State) -> dict[str, Any]:
    clicks = state.get("clicks", 0) + 1
    state.set("clicks", clicks)
    return {"of": click["page"], "count": clicks}


app = Application(
    broker_address=os.environ["BOOTSTRAP"],
    state_dir=os.environ["STATE"],
    consumer_group="clicks",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_every=100,
    # A killed instance is missed soon.
    consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
)
clicks = app.dataframe(app.topic("clicks", key_deserializer="str"))
windows = clicks.tumbling_window(WINDOW_MS).count().current()
windows.apply(window, metadata=True).to_topic(app.topic("by-window", key_serializer="str"))
pages = clicks.group_by("page").apply(count, stateful=True)
pages.to_topic(app.topic("by-page", key_serializer="json"))

if __name__ == "__main__":
    app.run()
