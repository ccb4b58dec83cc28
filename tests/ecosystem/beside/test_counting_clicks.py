"""Stream processors for Python count clicks while they and the broker are killed: their state
comes back from their changelog topics, or from where else they keep it."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from benchmarks.kafka.brokers import Broker
from confluent_kafka import Message
from tests.ecosystem import clicks
from tests.ecosystem.clicks import Click, Counts, count_through_kills, highest_counts, last_counts
from tests.ecosystem.frameworks import broker, command, framework
from tests.ecosystem.tools import Node

__all__ = ["broker"]

# So far ahead of all others that bytewax's clock closes every window before it.
CLOSING_MS = 1_800_000
CLOSING = "closing"


def test_quix_streams_counts_each_click_once(broker: Broker, tmp_path: Path) -> None:
    state = tmp_path / "state"
    processor = framework("quixstreams", broker, state, "program.py")
    records = count_through_kills(broker, processor, state, last_counts)
    # It ends, and is started again, when its session is over at a commit. Kafka may take longer
    # than that to start.
    assert processor.ends <= (0 if isinstance(broker, Node) else 1)
    # Exactly once: no count was written twice, and none is missing.
    pages = clicks.expected(clicks.make_clicks())["by-page"]
    every = Counter(count for last in pages.values() for count in range(1, last + 1))
    assert Counter(clicks.counts_of_pages(records)) == every


def test_faust_counts_each_click_through_kills(broker: Broker, tmp_path: Path) -> None:
    state = tmp_path / "state"
    processor = framework("faust", broker, state, "program.py", "worker", "--without-web")
    # When its session ends meanwhile, faust reads its tables back, without what had not reached
    # their changelogs. Kafka may take that long to start.
    at_rest = not isinstance(broker, Node)
    count_through_kills(broker, processor, state, last_counts, broker_dies_at_rest=at_rest)
    assert processor.ends == 0


def test_bytewax_counts_each_click_through_kills(broker: Broker, tmp_path: Path) -> None:
    state = tmp_path / "state"
    keep = [
        "--recovery-directory",
        str(state),
        *"--snapshot-interval 0 --backup-interval 0".split(),
    ]
    processor = framework("bytewax", broker, state, "-m", "bytewax.run", "program:flow", *keep)
    prepare = command("bytewax", broker, state, "-m", "bytewax.recovery", str(state), "1")
    subprocess.run(prepare, check=True)

    def close_windows(all_clicks: list[Click]) -> None:
        last = all_clicks[-1]
        clicks.publish(
            broker.bootstrap,
            [
                Click(last.number + 1 + user, f"user-{user}", CLOSING, last.time_ms + CLOSING_MS)
                for user in range(clicks.USERS)
            ],
        )

    def without_closing(records: list[Message]) -> Counts:
        counts = highest_counts(records)
        counts["by-page"].pop(CLOSING, None)
        return counts

    records = count_through_kills(broker, processor, None, without_closing, finish=close_windows)
    assert processor.ends == 0
    # It went on where it was: no page was counted from one again.
    assert clicks.counts_of_pages(records).count(1) == clicks.PAGES + 1
