"""`headrace txn` beside a Kafka client that has left a transaction open."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet

import headrace
from headrace.cli.main import cli

TOPIC = "orders"


def run(node: NodeProcess, *words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["--server", node.bootstrap, "txn", *words])
    assert result.exit_code == code, (words, result.output, result.exception)
    return result


def test_a_stuck_transaction_is_found_and_aborted(node: NodeProcess) -> None:
    run(node, "list", code=3)
    make_topic(node.bootstrap, TOPIC, 1)
    producer = Producer({**quiet(node.bootstrap), "transactional.id": "billing-1"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(TOPIC, b"undecided")
    assert producer.flush(20) == 0
    with headrace.connect(node.bootstrap) as handle:
        handle.publish(TOPIC, b"behind it")
        with handle.stream(TOPIC, start="earliest") as stream:
            assert stream.poll(10, wait=0) == []
        [listed] = json.loads(run(node, "list", "--json").stdout)
        assert (listed["id"], listed["state"]) == ("billing-1", "Ongoing")
        assert "billing-1" in run(node, "list").stdout
        described = json.loads(run(node, "describe", "billing-1", "--json").stdout)
        assert described["partitions"] == [{"topic": TOPIC, "partition": 0, "first_offset": 0}]
        assert "WAITS FROM" in run(node, "describe", "billing-1").stdout
        assert "CompleteAbort" in run(node, "abort", "billing-1", "--yes").stderr
        with handle.stream(TOPIC, start="earliest") as stream:
            assert [record.raw for record in stream.poll(10, wait=10)] == [b"behind it"]
    run(node, "list", code=3)
    assert "nothing open" in run(node, "abort", "billing-1").stderr
    assert "no transactional id" in run(node, "describe", "absent", code=1).stderr
    # Whoever left it open is shut out.
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
