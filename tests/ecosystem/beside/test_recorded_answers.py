"""What the scripts have of Apache Kafka's answers is what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ecosystem import scripts
from tests.ecosystem.tools import BROKERS, Tools


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    running = Tools()
    yield running
    running.close()


@pytest.mark.parametrize("name", scripts.names())
def test_kafka_answers_as_was_written_down(name: str, tools: Tools, tmp_path: Path) -> None:
    script = scripts.load(name)
    kafka = BROKERS["kafka"](tmp_path)
    kafka.start()
    try:
        answers = scripts.run(script, tools, kafka)
    finally:
        kafka.stop()
    for command, answer in zip(script.commands, answers, strict=True):
        # What has a reason is not compared with it; some of that depends on Kafka's timing.
        if not command.verdict:
            assert answer == command.expected, command.line
