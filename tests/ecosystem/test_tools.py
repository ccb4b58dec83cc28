"""Kafka's own command-line tools print of a node what they print of Apache Kafka, or what a
script says, with the reason: scripts/*.txt, a file for each subject.

`make ecosystem` looks whether Apache Kafka still answers as was written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.maven import NoJars
from tests.ecosystem import page, scripts
from tests.ecosystem.tools import BROKERS, Node, Tools
from tests.interop.wire_client import WireClient, make, publish

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.generated.init_producer_id_request import InitProducerIdRequest
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


class Unchecked(Node):
    """A node that does not ask the coordinator of a transaction before it writes."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "HEADRACE_TRANSACTION_VERSION": "0"}


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


def test_a_hanging_transaction_is_found_and_ended(tools: Tools, tmp_path: Path) -> None:
    """Apache Kafka has none to compare with: it checks each write, as a node does by default."""
    node = Unchecked(tmp_path)
    node.start()
    hanging = ["find-hanging", "--topic", "orders", "--max-transaction-timeout", "0"]

    def run(tool: str, *words: str) -> str:
        answer = tools.run(tool, "--bootstrap-server", node.bootstrap, *words)
        assert answer.code == 0, answer
        return answer.output

    try:
        with WireClient(node.bootstrap) as client:
            make(client, "orders", 1)
            given = client.call("InitProducerId", 4, InitProducerIdRequest("gone", 60_000))
            batch = build_batch(
                [NewRecord(None, b"late", ())],
                producer_id=given.producer_id,
                producer_epoch=given.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            # Its partition is in no transaction.
            data = TopicProduceData(
                "orders", partition_data=(PartitionProduceData(0, bytes(batch)),)
            )
            answer = client.call("Produce", 8, ProduceRequest("gone", -1, 30_000, (data,)))
            assert answer.responses[0].partition_responses[0].error_code == 0
            publish(client, "orders", 1)
        [_, found] = run("transactions", *hanging).splitlines()
        assert found.split()[:6] == ["orders", "0", str(given.producer_id), "0", "-1", "0"]
        run("transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
        assert len(run("transactions", *hanging).splitlines()) == 1
        read = run(
            "console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "1",
            "--isolation-level", "read_committed", "--timeout-ms", "30000",
        )  # fmt: skip
        assert read.split() == ["0"]
    finally:
        node.stop()


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
