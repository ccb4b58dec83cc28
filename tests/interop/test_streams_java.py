"""Streams groups as Kafka Streams itself lives in them."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet, tell, wait_until
from tests.interop.java_clients import NoJava
from tests.interop.java_streams import streams
from tests.interop.wire_client import WireClient

from headrace.wire.kafka.generated.streams_group_describe_request import (
    StreamsGroupDescribeRequest,
)

APP = "regions"
ORDERS, CUSTOMERS, COUNTS = "orders", "customers", "counts"
REGIONS = 4
HOUR_MS = 3_600_000
# A killed instance is missed soon, and its last transaction is over soon.
SETTINGS = """\
streams_session_timeout_min_ms = 1000
streams_session_timeout_ms = 3000
streams_heartbeat_interval_min_ms = 100
streams_heartbeat_interval_ms = 200
streams_rebalance_delay_ms = 0
streams_assignment_interval_ms = 200
streams_standby_replicas = 1
"""
TRANSACTION_MS = 3_000
ENDED = "ended"


class Instance:
    """One process of the application, with two threads or fewer."""

    def __init__(self, bootstrap: str, folder: Path, threads: int) -> None:
        try:
            command = streams()
        except NoJava as reason:
            pytest.skip(str(reason))
        self.states: list[str] = []
        self._errors = folder.with_suffix(".log")
        with self._errors.open("w") as stderr:
            self._process = subprocess.Popen(
                [
                    *command, "RegionCounts", bootstrap, APP, str(folder), ORDERS, CUSTOMERS,
                    COUNTS, f"num.stream.threads={threads}",
                    f"producer.transaction.timeout.ms={TRANSACTION_MS}",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )  # fmt: skip
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.states.append(line.strip())
            tell()
        self.states.append(ENDED)
        tell()

    def wait_running(self) -> None:
        wait_until(lambda: {"RUNNING", ENDED} & {*self.states}, "the application to run")
        assert ENDED not in self.states, self.errors()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def close(self) -> None:
        """As its users close it."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait(30)
        self._thread.join(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def errors(self) -> str:
        return self._errors.read_text()


class Counts:
    """What the application says, as a consumer sees it that reads what is committed."""

    def __init__(self, bootstrap: str) -> None:
        self.by_region: dict[str, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {**quiet(bootstrap), "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(COUNTS, 0, 0)])

    def read_until(self, condition: Callable[[], bool], what: str) -> None:
        in_vain = 0
        while not condition():
            message = self._consumer.poll(0.2)
            in_vain += message is None
            assert in_vain < 150, f"waited in vain: {what}; {self.totals()}"
            if message is not None and message.error() is None:
                value = int(message.value() or b"")
                self.by_region[(message.key() or b"").decode()].append(value)

    def totals(self) -> dict[str, int]:
        return {region: len(counts) for region, counts in self.by_region.items()}

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    (tmp_path / "node.toml").write_text(SETTINGS)
    process = NodeProcess(tmp_path / "data", "--config", str(tmp_path / "node.toml"))
    yield process
    process.stop()


def described(bootstrap: str) -> Any:
    with WireClient(bootstrap) as client:
        answer = client.call("StreamsGroupDescribe", 0, StreamsGroupDescribeRequest((APP,)))
    return answer.groups[0]


def is_shared_by(bootstrap: str, members: int) -> bool:
    group = described(bootstrap)
    return (
        group.group_state == "Stable"
        and len(group.members) == members
        and all(member.assignment.active_tasks for member in group.members)
    )


def test_every_order_is_counted_once_while_instances_and_the_node_are_killed(
    node: NodeProcess, tmp_path: Path
) -> None:
    for name, partitions in ((ORDERS, 4), (CUSTOMERS, 3), (COUNTS, 1)):
        make_topic(node.bootstrap, name, partitions)
    # Kafka's own partitioner: what is joined has to lie where the application would put it.
    producer = Producer({**quiet(node.bootstrap), "partitioner": "murmur2_random"})
    # Orders are of one hour, and all customers were known before. Topics for state are kept
    # for a day, so the hour is this one.
    hour_ms = int(time.time() * 1000) // HOUR_MS * HOUR_MS
    for customer in range(20):
        producer.produce(
            CUSTOMERS, key=f"c{customer}", value=f"r{customer % REGIONS}", timestamp=hour_ms - 1
        )
    producer.flush()
    fed = 0

    def feed(count: int) -> None:
        nonlocal fed
        for number in range(fed, fed + count):
            producer.produce(
                ORDERS, key=f"o{number}", value=f"c{number % 20}", timestamp=hour_ms + number
            )
        producer.flush()
        fed += count

    counts = Counts(node.bootstrap)
    first = Instance(node.bootstrap, tmp_path / "first", threads=2)
    second = None
    try:
        first.wait_running()
        feed(200)
        second = Instance(node.bootstrap, tmp_path / "second", threads=1)
        counts.read_until(lambda: is_shared_by(node.bootstrap, 3), "three threads with tasks")
        group = described(node.bootstrap)
        assert any(member.assignment.standby_tasks for member in group.members)
        feed(200)
        counts.read_until(lambda: sum(counts.totals().values()) > 250, "half of the orders")
        first.kill()
        feed(200)
        counts.read_until(lambda: is_shared_by(node.bootstrap, 1), "one to have it all")
        [before] = described(node.bootstrap).members
        node.restart(kill=True)
        feed(200)
        each = fed // REGIONS
        counts.read_until(
            lambda: all(counts.totals().get(f"r{n}", 0) >= each for n in range(REGIONS)),
            "all orders",
        )
        assert counts.by_region == {f"r{n}": [*range(1, each + 1)] for n in range(REGIONS)}
        assert "ERROR" not in second.states, second.errors()
        # Epochs begin anew for those who have to join again.
        [after] = described(node.bootstrap).members
        assert after.member_id == before.member_id and after.member_epoch > before.member_epoch
        second.close()
        assert described(node.bootstrap).group_state == "Empty"
    finally:
        first.kill()
        if second is not None:
            second.kill()
        counts.close()
