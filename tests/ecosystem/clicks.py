"""Clicks of users on pages, and what a stream processor has to come to, whatever is killed.

A processor reads `clicks` and writes each new count to `by-window` (of a user in ten seconds)
and to `by-page`, as {"of": ..., "count": ...}. The last count of everything is to be right.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.kafka.brokers import Broker
from confluent_kafka import Message
from tests.ecosystem.programs import Program, Reader, produce, reading, running

PARTITIONS = 3
USERS = 12
PAGES = 4
PARTS = 3
PART = 1_000
# A part counts as begun when this many counts of it were seen.
BEGUN = 200
APART_MS = 50
WINDOW_MS = 10_000
OUTPUTS = ("by-window", "by-page")

Counts = dict[str, dict[str, int]]


class Click(NamedTuple):
    number: int
    user: str
    page: str
    time_ms: int


def make_clicks() -> list[Click]:
    """In the order of their times, an hour ago."""
    began_ms = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS - 3_600_000
    return [
        Click(
            number,
            f"user-{number % USERS}",
            # Every user clicks on every page.
            f"page-{number // USERS % PAGES}",
            began_ms + number * APART_MS,
        )
        for number in range(PARTS * PART)
    ]


def expected(clicks: list[Click]) -> Counts:
    windows: Counter[str] = Counter()
    pages: Counter[str] = Counter()
    for click in clicks:
        windows[f"{click.user}@{click.time_ms // WINDOW_MS * WINDOW_MS}"] += 1
        pages[click.page] += 1
    return {"by-window": dict(windows), "by-page": dict(pages)}


def publish(bootstrap: str, clicks: list[Click]) -> None:
    produce(
        bootstrap,
        "clicks",
        [(click.user, json.dumps(click._asdict()), click.time_ms) for click in clicks],
    )


def last_counts(records: list[Message]) -> Counts:
    counts: Counts = {topic: {} for topic in OUTPUTS}
    for topic, of, count in _counts(records):
        counts[topic][of] = count
    return counts


def highest_counts(records: list[Message]) -> Counts:
    """The same where a processor may write what it wrote before a second time."""
    counts: Counts = {topic: {} for topic in OUTPUTS}
    for topic, of, count in _counts(records):
        counts[topic][of] = max(count, counts[topic].get(of, 0))
    return counts


def counts_of_pages(records: list[Message]) -> list[int]:
    return [count for topic, _, count in _counts(records) if topic == "by-page"]


def _counts(records: list[Message]) -> list[tuple[str, str, int]]:
    found = []
    for record in records:
        value = json.loads(record.value() or b"")
        found.append((record.topic() or "", value["of"], value["count"]))
    return found


def count_through_kills(
    broker: Broker,
    processor: Program,
    state: Path | None,
    counts_of: Callable[[list[Message]], Counts],
    *,
    finish: Callable[[list[Click]], None] = lambda clicks: None,
    broker_dies_at_rest: bool = False,
) -> list[Message]:
    """What the processor wrote, when all counts are right. It is killed in the middle of the
    first and of the third part and loses `state`, its folder, unless that is None; the broker
    is killed in the middle of the second, or when all of that was counted. `finish` is called
    when all clicks are published."""
    clicks = make_clicks()
    broker.make_topics(broker.admin(), dict.fromkeys(("clicks", *OUTPUTS), PARTITIONS), {})
    with running(processor), reading(broker.bootstrap, *OUTPUTS) as reader:
        for part in range(PARTS):
            published = clicks[: (part + 1) * PART]
            publish(broker.bootstrap, published[part * PART :])
            _wait_until_begun(reader, part, processor)
            if part != 1:
                processor.kill()
                if state is not None:
                    shutil.rmtree(state)
                processor.start()
            else:
                if broker_dies_at_rest:
                    _wait_until_right(reader, published, counts_of, processor)
                broker.kill()
                broker.start()
        finish(clicks)
        _wait_until_right(reader, clicks, counts_of, processor)
        return reader.records


def _wait_until_right(
    reader: Reader,
    clicks: list[Click],
    counts_of: Callable[[list[Message]], Counts],
    processor: Program,
) -> None:
    right = expected(clicks)
    reader.wait_until(lambda records: counts_of(records) == right, processor)


def _wait_until_begun(reader: Reader, part: int, processor: Program) -> None:
    reader.wait_until(
        lambda records: sum(highest_counts(records)["by-page"].values()) > part * PART + BEGUN,
        processor,
    )
