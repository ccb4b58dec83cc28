"""Handlers of FastStream on both of its Kafka brokers: each message is handled once while
nothing is killed, and none is lost when the application or the broker is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.kafka.brokers import Broker
from confluent_kafka import Message, Producer
from tests.ecosystem.frameworks import broker, framework
from tests.ecosystem.programs import CALL_SECONDS, reading, running

__all__ = ["broker"]

PART = 300
BEGUN = 30


def publish(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce("orders", json.dumps({"number": number, "prices": [number, 1]}))
        producer.produce("readings", str(number))
        producer.produce(
            "questions",
            f"what is {number}",
            headers={"reply_to": "answers", "correlation_id": str(number)},
        )
    assert producer.flush(CALL_SECONDS) == 0


def handled(records: list[Message]) -> Counter[tuple[str, str]]:
    """What came out, by topic."""
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        topic, value = record.topic() or "", (record.value() or b"").decode()
        if topic == "answers":
            to = dict(record.headers() or [])["correlation_id"]
            value = f"{value} to {to.decode() if isinstance(to, bytes) else to}"
        found[topic, json.dumps(json.loads(value)) if topic == "bills" else value] += 1
    return found


def expected(numbers: range) -> Counter[tuple[str, str]]:
    wanted: Counter[tuple[str, str]] = Counter()
    for number in numbers:
        wanted["bills", json.dumps({"number": number, "total": number + 1})] += 1
        wanted["doubled", str(2 * number)] += 1
        wanted["answers", f"WHAT IS {number} to {number}"] += 1
    return wanted


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
def test_faststream_loses_no_message_and_answers(
    client: str, broker: Broker, tmp_path: Path
) -> None:
    topics = ("orders", "readings", "questions", "bills", "doubled", "answers")
    broker.make_topics(broker.admin(), dict.fromkeys(topics, 2), {})
    app = framework("faststream", broker, tmp_path / "state", "program.py", CLIENT=client)
    with running(app), reading(broker.bootstrap, "bills", "doubled", "answers") as reader:
        publish(broker.bootstrap, range(PART))
        reader.wait_until(lambda records: len(records) >= 3 * PART, app)
        assert handled(reader.records) == expected(range(PART))

        publish(broker.bootstrap, range(PART, 2 * PART))
        reader.wait_until(lambda records: len(records) >= 3 * PART + BEGUN, app)
        app.kill()
        app.start()
        every = set(expected(range(2 * PART)))
        reader.wait_until(lambda records: set(handled(records)) == every, app)

        publish(broker.bootstrap, range(2 * PART, 3 * PART))
        broker.kill()
        broker.start()
        every = set(expected(range(3 * PART)))
        reader.wait_until(lambda records: set(handled(records)) == every, app)
        assert app.ends == 0
