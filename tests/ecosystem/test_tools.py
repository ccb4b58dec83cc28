"""Kafka's own command-line tools print of a node what they print of Apache Kafka, or what a
script says, with the reason: scripts/*.txt, a file for each subject.

`make ecosystem` looks whether Apache Kafka still answers as was written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.maven import NoJars
from tests.ecosystem import page, scripts
from tests.ecosystem.tools import BROKERS, Tools


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    try:
        running = Tools()
    except NoJars as error:
        pytest.skip(str(error))
    yield running
    running.close()


@pytest.mark.parametrize("name", scripts.names())
def test_tools_print_what_they_print_of_kafka(name: str, tools: Tools, tmp_path: Path) -> None:
    script = scripts.load(name)
    node = BROKERS["headrace"](tmp_path)
    node.start()
    try:
        answers = scripts.run(script, tools, node)
    finally:
        node.stop()
    for command, answer in zip(script.commands, answers, strict=True):
        assert answer == command.answer_of("headrace"), command.line


def test_a_reason_is_given_only_where_answers_differ() -> None:
    needless = [
        command.line
        for script in map(scripts.load, scripts.names())
        for command in script.commands
        if command.verdict and command.own == command.expected
    ]
    assert needless == []


def test_scripts_are_written_as_they_are_read() -> None:
    for name in scripts.names():
        assert scripts.written(scripts.load(name)) == (scripts.FOLDER / f"{name}.txt").read_text()


def test_the_page_has_the_table_of_the_scripts() -> None:
    # Written anew with: python -m tests.ecosystem.page
    assert page.PAGE.read_text() == page.with_table(page.PAGE.read_text())


def test_kafka_reads_the_segments_of_a_node(tools: Tools, tmp_path: Path) -> None:
    node = BROKERS["headrace"](tmp_path)
    node.start()
    try:
        tools.run(
            "console-producer", "--bootstrap-server", node.bootstrap, "--topic", "orders",
            "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
            stdin="a:1\nb:2\n",
        )  # fmt: skip
    finally:
        node.stop()
    [segment] = [path for path in tmp_path.glob("data/topics/*/*/*.log") if path.stat().st_size]
    dumped = tools.run("dump-log", "--files", str(segment), "--print-data-log")
    assert dumped.code == 0
    assert "isvalid: true" in dumped.output
    records = [line for line in dumped.output.splitlines() if line.startswith("|")]
    assert [line.partition(" key: ")[2] for line in records] == ["a payload: 1", "b payload: 2"]
