"""Kafka Connect, two workers in distributed mode: a source that writes each line exactly once
while workers are killed, a sink with dead letters, and the API of offsets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kafka.brokers import Broker
from tests.ecosystem.connect import Worker, add
from tests.ecosystem.programs import make_topics, produce, reading, rest, running, wait_until
from tests.ecosystem.tools import BROKERS

LINES = 3_000
# So many are written to the file at a time.
CHUNK = 50


@pytest.fixture(scope="module", params=["kafka", "headrace"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    started = BROKERS[request.param](tmp_path_factory.mktemp(request.param))
    started.start()
    yield started
    started.stop()


@pytest.fixture
def workers(broker: Broker, tmp_path: Path) -> Iterator[tuple[Worker, Worker]]:
    pair = (Worker(broker.bootstrap, tmp_path, 0), Worker(broker.bootstrap, tmp_path, 1))
    with running(*pair):
        for worker in pair:
            wait_until(lambda url=worker.url: rest("GET", url)["version"] != "", worker)  # type: ignore[misc]
        yield pair


def test_each_line_is_there_once_while_workers_are_killed(
    broker: Broker, workers: tuple[Worker, Worker], tmp_path: Path
) -> None:
    source = tmp_path / "lines.txt"
    source.touch()
    make_topics(broker.bootstrap, 1, "lines")
    add(workers[0], "lines", connector_class="FileStreamSource", file=source, topic="lines")
    victims = {LINES // 3: workers[0], LINES * 2 // 3: workers[1]}
    with reading(broker.bootstrap, "lines") as reader:
        for start in range(0, LINES, CHUNK):
            with open(source, "a") as file:
                file.writelines(f"line {number}\n" for number in range(start, start + CHUNK))
            if start in victims:
                victims[start].kill()
                victims[start].start()
            reader.wait_until(lambda seen, start=start: len(seen) >= start - 2 * CHUNK, *workers)  # type: ignore[misc]
        reader.wait_until(lambda seen: len(seen) >= LINES, *workers)
        values = Counter((each.value() or b"").decode() for each in reader.records)
    assert values == Counter(f"line {number}" for number in range(LINES))


def test_what_a_sink_cannot_read_is_in_the_dead_letters(
    broker: Broker, workers: tuple[Worker, Worker], tmp_path: Path
) -> None:
    values = [json.dumps({"number": n}) if n % 10 else f"no json: {n}" for n in range(100)]
    make_topics(broker.bootstrap, 2, "numbers", "failed")
    produce(broker.bootstrap, "numbers", [(None, value, 0) for value in values])
    sink = tmp_path / "numbers.txt"
    add(
        workers[1], "numbers", connector_class="FileStreamSink", file=sink, topics="numbers",
        value_converter="org.apache.kafka.connect.json.JsonConverter",
        value_converter_schemas_enable="false", errors_tolerance="all",
        errors_deadletterqueue_topic_name="failed",
        errors_deadletterqueue_topic_replication_factor=1,
        errors_deadletterqueue_context_headers_enable="true",
    )  # fmt: skip
    with reading(broker.bootstrap, "failed") as reader:
        reader.wait_until(lambda seen: len(seen) >= 10, *workers)
        wait_until(lambda: len(sink.read_text().splitlines()) >= 90, *workers)
        assert {(each.value() or b"").decode() for each in reader.records} == {
            value for value in values if value.startswith("no json")
        }
        headers = dict(reader.records[0].headers() or [])
        assert headers["__connect.errors.topic"] == b"numbers"
    assert sorted(sink.read_text().splitlines()) == sorted(
        f"{{number={n}}}" for n in range(100) if n % 10
    )


def test_offsets_of_connectors_are_shown_changed_and_forgotten(
    broker: Broker, workers: tuple[Worker, Worker], tmp_path: Path
) -> None:
    make_topics(broker.bootstrap, 1, "few")
    produce(broker.bootstrap, "few", [(None, f"value {number}", 0) for number in range(5)])
    sink = tmp_path / "few.txt"
    add(workers[0], "few", connector_class="FileStreamSink", file=sink, topics="few")
    connector = f"{workers[0].url}/connectors/few"
    place = {"kafka_topic": "few", "kafka_partition": 0}

    def offsets() -> list[Any]:
        found: list[Any] = rest("GET", f"{connector}/offsets")["offsets"]
        return found

    wait_until(lambda: offsets() == [{"partition": place, "offset": {"kafka_offset": 5}}], *workers)
    rest("PUT", f"{connector}/stop")
    wait_until(
        lambda: rest("GET", f"{connector}/status")["connector"]["state"] == "STOPPED", *workers
    )
    moved = {"offsets": [{"partition": place, "offset": {"kafka_offset": 3}}]}
    wait_until(
        lambda: "success" in rest("PATCH", f"{connector}/offsets", moved)["message"], *workers
    )
    assert offsets() == moved["offsets"]
    rest("PUT", f"{connector}/resume")
    wait_until(lambda: sink.read_text().splitlines()[5:] == ["value 3", "value 4"], *workers)
    rest("PUT", f"{connector}/stop")
    wait_until(
        lambda: rest("GET", f"{connector}/status")["connector"]["state"] == "STOPPED", *workers
    )
    wait_until(lambda: "success" in rest("DELETE", f"{connector}/offsets")["message"], *workers)
    assert offsets() == []
    rest("PUT", f"{connector}/resume")
    wait_until(lambda: len(sink.read_text().splitlines()) == 12, *workers)
