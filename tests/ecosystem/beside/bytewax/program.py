"""Counts clicks with bytewax: closed windows of a user, and each click by page. State lies in
bytewax's own recovery store, with the offsets that belong to it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow

WINDOW = timedelta(seconds=10)
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)
BROKERS = [os.environ["BOOTSTRAP"]]


def time_of(click: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(click["time_ms"] / 1000, UTC)


def message(of: str, count: int) -> KafkaSinkMessage:
    return KafkaSinkMessage(of.encode(), json.dumps({"of": of, "count": count}).encode())


def window_message(counted: tuple[str, tuple[int, int]]) -> KafkaSinkMessage:
    user, (number, count) = counted
    return message(f"{user}@{int((BEGIN + number * WINDOW).timestamp() * 1000)}", count)


def one_more(count: int | None, click: dict[str, Any]) -> tuple[int, int]:
    return (count or 0) + 1, (count or 0) + 1


flow = Dataflow("clicks")
# Small steps, each of which is kept before the next.
source = kafka.input("source", flow, brokers=BROKERS, topics=["clicks"], batch_size=10)
clicks = op.map("decode", source.oks, lambda record: json.loads(record.value))
windows = win.count_window(
    "count by window",
    clicks,
    # Longer than anything here is down: what comes late is not counted.
    win.EventClock(time_of, wait_for_system_duration=timedelta(minutes=10)),
    win.TumblingWindower(length=WINDOW, align_to=BEGIN),
    lambda click: click["user"],
)
pages = op.stateful_map(
    "count by page", op.key_on("page", clicks, lambda click: click["page"]), one_more
)
kafka.output(
    "to by-window",
    op.map("encode windows", windows.down, window_message),
    brokers=BROKERS,
    topic="by-window",
)
kafka.output(
    "to by-page",
    op.map("encode pages", pages, lambda counted: message(*counted)),
    brokers=BROKERS,
    topic="by-page",
)
