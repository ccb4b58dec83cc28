"""Programs that tests start beside a broker, and what tests read of a topic meanwhile."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.kafka.brokers import wait_for_topics
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

DEADLINE_SECONDS = 180.0
CALL_SECONDS = 60.0


class Program:
    """A process whose output goes to a file, and which can be killed and started again."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check(self, seconds: float = 0) -> None:
        """That it does not end by itself, within so many seconds."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        raise AssertionError(f"{self._command[-1]} has ended: {self.tail()}")

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:]


@contextmanager
def running(*programs: Program) -> Iterator[None]:
    for program in programs:
        program.start()
    try:
        yield
    finally:
        for program in programs:
            program.kill()


class Reader:
    """Committed records of some topics, from their beginning, as they come."""

    def __init__(self, bootstrap: str, *topics: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        partitions = []
        for topic in topics:
            found = self._consumer.list_topics(topic, CALL_SECONDS).topics[topic].partitions
            partitions += [TopicPartition(topic, number, 0) for number in found]
        self._consumer.assign(partitions)
        self.records: list[Message] = []

    def wait_until(self, is_enough: Callable[[list[Message]], bool], *programs: Program) -> None:
        """Reads on until there is enough of it; programs have to be alive meanwhile."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_enough(self.records):
            self.records += [
                each for each in self._consumer.consume(1_000, 0.2) if each.error() is None
            ]
            for program in programs:
                program.check()
            if time.monotonic() > deadline:
                tails = "\n".join(program.tail() for program in programs)
                raise AssertionError(f"{len(self.records)} records, not enough\n{tails}")

    def read_what_is_there(self) -> None:
        """Reads on until nothing comes for a second."""
        while some := self._consumer.consume(1_000, 1):
            self.records += [each for each in some if each.error() is None]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def reading(bootstrap: str, *topics: str) -> Iterator[Reader]:
    reader = Reader(bootstrap, *topics)
    try:
        yield reader
    finally:
        reader.close()


def make_topics(bootstrap: str, partitions: int, *names: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {name.replace("_", "."): value for name, value in configs.items()}
    topics = [NewTopic(name, partitions, 1, config=config) for name in names]
    for made in admin.create_topics(topics).values():
        made.result(CALL_SECONDS)
    # Kafka makes them in the background.
    wait_for_topics(admin, dict.fromkeys(names, partitions))


def wait_until(is_so: Callable[[], bool], program: Program, *others: Program) -> None:
    """Asks again and again, while the programs live; what is not there yet may raise."""
    programs = (program, *others)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        problem = "not so"
        try:
            if is_so():
                return
        except (OSError, KafkaException, LookupError, ValueError) as error:
            problem = repr(error)
        for each in programs:
            each.check(0.2)
        if time.monotonic() > deadline:
            tails = "\n".join(each.tail() for each in programs)
            raise AssertionError(f"{problem}\n{tails}")


def rest(method: str, url: str, body: object = None) -> Any:
    """The answer of an HTTP API that speaks JSON; None where it has none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=CALL_SECONDS) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def produce(bootstrap: str, topic: str, records: list[tuple[str | None, str, int]]) -> None:
    """Each a key, a value and a timestamp; 0 is now."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for key, value, timestamp in records:
        while True:
            try:
                producer.produce(topic, value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(CALL_SECONDS) == 0
