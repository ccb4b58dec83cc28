"""Workers in Java and in Python do the work of one group together.

What is published is all that makes a queue hard: big lz4 batches of mixed
priorities, some of it delayed, some of it released at first, rejected, or held
until its lock runs out; and workers are killed with what they hold.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.interop import share_worker
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet
from tests.interop.java_clients import NoJava, programs
from tests.interop.share_members import GROUP, TOPIC, configure, letters_of, member, poll

import headrace

MESSAGES = 40_000
BATCH_RECORDS = 10_000
LOCK_MS = 6_000
PRIORITIES = ("critical", "high", "normal", "low", "background")


class Worker:
    """A process, and what it has said so far."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.took: list[str] = []
        self.acked: list[str] = []
        self.lost: list[str] = []
        self.killed = False
        self._errors = errors
        with errors.open("w") as stderr:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                word, *values = line.split()
                getattr(self, word).extend(values)

    def check(self) -> None:
        assert self._process.poll() is None, self._errors.read_text()

    def kill(self) -> None:
        self.killed = True
        self._process.kill()
        self._process.wait()
        self._reader.join()


@contextmanager
def workers(bootstrap: str, folder: Path) -> Iterator[list[Worker]]:
    """Two of each kind, the one that is to be killed first."""
    try:
        java = [*programs("4.3.0"), "ShareWorker"]
    except NoJava as reason:
        pytest.skip(str(reason))
    python = [sys.executable, share_worker.__file__]
    kinds = [java, [*python, "confluent"], [*python, "sdk"]]
    started: list[Worker] = []
    try:
        for number, kind in enumerate(kinds * 2):
            command = [*kind, bootstrap, GROUP, TOPIC, str(LOCK_MS)]
            started.append(Worker(command, folder / f"worker-{number}.log"))
        yield started
    finally:
        for each in started:
            each.kill()


def publish(bootstrap: str, first: int, count: int, partition: int) -> None:
    producer = Producer(
        {
            **quiet(bootstrap),
            "linger.ms": 500,
            "compression.type": "lz4",
            "batch.num.messages": BATCH_RECORDS,
            "batch.size": 1_000_000,
        }
    )
    for number in range(first, first + count):
        headers: dict[str, str | bytes | None] = {"headrace-priority": PRIORITIES[number % 5]}
        if number % 7 == 0:
            headers["headrace-delay-ms"] = str(number % 4_000)
        producer.produce(TOPIC, str(number), partition=partition, headers=headers)
    assert producer.flush(60) == 0


def test_java_and_python_share_the_work_and_nothing_is_lost(
    node: NodeProcess, tmp_path: Path
) -> None:
    make_topic(node.bootstrap, TOPIC, 2)
    configure(node.bootstrap, start="earliest", lock_ms=LOCK_MS, backoff_ms=100, deliveries=5)
    with (
        headrace.connect(node.bootstrap) as connected,
        workers(node.bootstrap, tmp_path) as started,
    ):
        doomed = started[:3]
        published = 0
        # Who has one of the two partitions gets nothing out of the other one.
        partitions = cycle(range(2))
        end = time.monotonic() + 200
        while True:
            assert time.monotonic() < end, connected.stats(GROUP)
            is_enough = published >= MESSAGES and all(each.killed for each in doomed)
            if is_enough and not connected.depth(TOPIC, group=GROUP):
                break
            if not is_enough:
                # A Java worker is slow to start, and is to have its part. One that dawdles at
                # first does not have to work off more for that.
                everyone = all(each.took for each in started)
                count = BATCH_RECORDS if everyone and published < MESSAGES else 100
                publish(node.bootstrap, published, count, next(partitions))
                published += count
            for each in doomed:
                if len(each.acked) > 200 and not each.killed:
                    each.kill()
            for each in started[3:]:
                each.check()
            threading.Event().wait(0.2)
    rejected = {str(number) for number in range(0, published, 997)}
    everything = {str(number) for number in range(published)}
    acked = Counter(value for each in started for value in each.acked)
    letters = {
        (letter.value() or b"").decode() for letter in letters_of(node.bootstrap, len(rejected))
    }
    with member(node.bootstrap) as another:
        assert poll(another, 2) == []
    # All three kinds had a part in it.
    for kind in range(3):
        assert sum(len(each.acked) for each in started[kind::3]) > 0
    # Who was killed may have been given an answer that it did not come to print, and
    # who dawdled may not know which part of what it sent was in time.
    unknown = {value for each in started if each in doomed for value in each.took}
    unknown |= {value for each in started for value in each.lost}
    assert [value for value, count in acked.items() if count > 1] == []
    assert rejected <= letters
    assert letters.isdisjoint(acked)
    assert everything - set(acked) - letters - unknown == set()
