"""A Flink job counts each record once, whatever is killed: the node, and the job's process
with transactions that are open or that a savepoint has and nobody committed.

    any moment   checkpoints come all the time; the node is killed, then the process
    prepared     no checkpoint comes: what a savepoint has, and what came behind it, is in
                 transactions when the process is killed; the job goes on from the savepoint
    stopped      the job is stopped with a savepoint and goes on from it
"""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from pathlib import Path

import pytest
from benchmarks.kafka.brokers import Broker
from confluent_kafka import Message, Producer
from tests.ecosystem.flink import Counter, newest
from tests.ecosystem.programs import Reader, make_topics, reading, running, wait_until
from tests.ecosystem.tools import BROKERS
from tests.ecosystem.transactions import Watch

PARTITIONS = 2
ACCOUNTS = 7
# Inputs that come at once, and the pause behind them.
FEED = 10
PAUSE_SECONDS = 0.02
# Enough outputs to say that the job is at work.
SOME = 300
OFTEN_MS = 300
NEVER_MS = 86_400_000


class Inputs:
    """Numbers from 0, each for the account of its remainder, one after the other until told
    to end."""

    def __init__(self, bootstrap: str) -> None:
        self.count = 0
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_SECONDS):
            for number in range(self.count, self.count + FEED):
                account = f"account-{number % ACCOUNTS}"
                line = f"{account} {number}".encode()
                self._producer.produce("inputs", line, key=account.encode())
            self._producer.flush()
            self.count += FEED


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_flink_counts_each_record_once_whatever_is_killed(naming: str, tmp_path: Path) -> None:
    broker = BROKERS["headrace"](tmp_path / "broker")
    broker.start()
    try:
        make_topics(broker.bootstrap, PARTITIONS, "inputs", "outputs")
        inputs = Inputs(broker.bootstrap)
        try:
            outputs = run_and_kill(broker, naming, tmp_path, inputs)
        finally:
            inputs.end()
    finally:
        broker.stop()
    check_counts(outputs, inputs.count)


def run_and_kill(broker: Broker, naming: str, place: Path, inputs: Inputs) -> list[Message]:
    """What a reader of committed outputs has seen when every input was counted."""
    run = partial(Counter, broker.bootstrap, naming, place)
    watch = Watch(broker.bootstrap, "outputs", PARTITIONS)
    with reading(broker.bootstrap, "outputs") as outputs:
        with running(job := run(OFTEN_MS)):
            kill_at_any_moment(broker, job, outputs, watch)
        with running(job := run(NEVER_MS, newest(place, "checkpoints"))):
            savepoint = kill_when_prepared(job, watch)
        with running(job := run(OFTEN_MS, savepoint)):
            outputs.wait_until(partial(is_enough, inputs.count), job)
            savepoint = job.stop()
        inputs.end()
        with running(job := run(OFTEN_MS, savepoint)):
            outputs.wait_until(partial(is_enough, inputs.count), job)
            job.stop()
        # An output that came twice is behind those that were waited for.
        assert not watch.is_open()
        outputs.read_what_is_there()
    return outputs.records


def kill_at_any_moment(broker: Broker, job: Counter, outputs: Reader, watch: Watch) -> None:
    """First the node, then the job's process."""
    outputs.wait_until(partial(is_enough, SOME), job)
    wait_until(watch.is_open, job)
    broker.kill()
    broker.start()
    outputs.wait_until(partial(is_enough, len(outputs.records) + SOME), job)
    wait_until(watch.is_open, job)
    job.kill()


def kill_when_prepared(job: Counter, watch: Watch) -> str:
    """The savepoint whose transactions are to be committed by the next run."""
    wait_for_more(job, watch)
    savepoint = job.make_savepoint()
    wait_for_more(job, watch)
    job.kill()
    # No checkpoint came, so nothing was committed.
    assert watch.count_held_back() > SOME
    return savepoint


def wait_for_more(job: Counter, watch: Watch) -> None:
    written = watch.count_written()
    wait_until(lambda: watch.count_written() > written + SOME, job)


def is_enough(count: int, records: list[Message]) -> bool:
    return len(records) >= count


def check_counts(outputs: list[Message], count: int) -> None:
    """Each number once, and the counts of an account as they would be without any failure."""
    numbers = []
    counts = defaultdict(list)
    for record in outputs:
        account, number, counted = (record.value() or b"").decode().split()
        numbers.append(int(number))
        counts[account].append((int(number), int(counted)))
    assert sorted(numbers) == list(range(count))
    for account, seen in counts.items():
        own = range(int(account.removeprefix("account-")), count, ACCOUNTS)
        assert seen == list(zip(own, range(1, len(own) + 1), strict=True))
