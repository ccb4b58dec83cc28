"""A real client of Kafka's that pushes its metrics (KIP-714), and where they are seen."""

from __future__ import annotations

import time

import httpx
from confluent_kafka import Producer
from tests.doors.conftest import DoorsProcess
from tests.interop.group_members import quiet
from tests.interop.wire_client import WireClient

from headrace.wire.kafka.generated import incremental_alter_configs_request as incremental

WAIT_SECONDS = 60
CLIENT_METRICS = 16


def subscribe(kafka: str, name: str, values: dict[str, str | None]) -> None:
    configs = tuple(
        incremental.AlterableConfig(each, 1 if value is None else 0, value)
        for each, value in values.items()
    )
    resource = incremental.AlterConfigsResource(CLIENT_METRICS, name, configs)
    request = incremental.IncrementalAlterConfigsRequest((resource,))
    with WireClient(kafka) as client:
        (answer,) = client.call("IncrementalAlterConfigs", 1, request).responses
    assert answer.error_code == 0, answer


def test_what_a_producer_says_of_itself_is_among_the_nodes_metrics(
    doors: DoorsProcess, http: httpx.Client, topic: str, name: str
) -> None:
    kafka = doors.doors["kafka"]
    wanted = {"metrics": "*", "interval.ms": "100", "match": f"client_id={name}"}
    subscribe(kafka, name, dict(wanted))
    try:
        producer = Producer({**quiet(kafka), "client.id": name, "enable.metrics.push": True})
        producer.produce(topic, b"x")
        producer.flush(WAIT_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        found = ""
        while not found and time.monotonic() < deadline:
            producer.poll(0.1)
            found = next(
                (
                    line
                    for line in http.get("/metrics").text.splitlines()
                    if line.startswith("headrace_client_metric{") and f'client="{name}"' in line
                ),
                "",
            )
        assert "org.apache.kafka.producer." in found
    finally:
        subscribe(kafka, name, dict.fromkeys(wanted))
