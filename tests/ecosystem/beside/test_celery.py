"""Celery with topics as its queues: a worker runs what is sent, also when it or the broker is
killed meanwhile."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from benchmarks.kafka.brokers import Broker
from confluent_kafka import Message
from tests.ecosystem.frameworks import broker, command, framework
from tests.ecosystem.programs import DEADLINE_SECONDS, reading, running

__all__ = ["broker"]

PART = 40
BEGUN = 5
WORKER = ("-m", "celery", "-A", "program", "worker", "--pool", "solo", "--loglevel", "info")
# They go by fanout, which the transport does not have.
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def done(records: list[Message]) -> Counter[int]:
    return Counter(int(record.value() or b"") for record in records)


def test_celery_runs_each_task_through_kills(broker: Broker, tmp_path: Path) -> None:
    state = tmp_path / "state"
    worker = framework("celery", broker, state, *WORKER, *QUIET)
    broker.make_topics(broker.admin(), {"done": 1}, {})

    def send(first: int) -> subprocess.Popen[str]:
        words = command("celery", broker, state, "program.py", str(first), str(first + PART))
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def check_results(client: subprocess.Popen[str], first: int) -> None:
        output, _ = client.communicate(timeout=DEADLINE_SECONDS)
        assert json.loads(output) == [number**2 for number in range(first, first + PART)]

    clients = []
    try:
        with running(worker), reading(broker.bootstrap, "done") as reader:
            clients.append(send(0))
            reader.wait_until(lambda records: len(records) >= PART, worker)
            check_results(clients[0], 0)
            assert done(reader.records) == Counter(range(PART))

            # Not in the middle: the transport commits what it has read, also what is not done.
            worker.kill()
            clients.append(send(PART))
            worker.start()
            reader.wait_until(lambda records: len(done(records)) == 2 * PART, worker)
            check_results(clients[1], PART)

            clients.append(send(2 * PART))
            reader.wait_until(lambda records: len(done(records)) >= 2 * PART + BEGUN, worker)
            broker.kill()
            broker.start()
            reader.wait_until(lambda records: len(done(records)) == 3 * PART, worker)
            check_results(clients[2], 2 * PART)
            assert worker.ends == 0
    finally:
        for client in clients:
            client.kill()
            client.communicate()
