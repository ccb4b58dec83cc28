"""Exactly once, whatever is killed: real clients in transactions, disturbed at random.

    feed      more inputs, the same number to each partition
    strike    kill -9 of the client, kill -9 of the node, or a client that is stopped,
              replaced, and wakes up late: a zombie
    repair    the client is started again until it has done every input
    look      a reader of committed records sees the effect of each input once and in
              order; a reader of everything may see more

One round is one strike. Each client has its short form here, with one of each kind;
`make transactions` plays 100 rounds. A failure names its seed: HEADRACE_SEED repeats
the choices, though not the moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.interop.conftest import NodeProcess
from tests.interop.group_members import make_topic, quiet
from tests.interop.java_clients import NoJava, programs
from tests.interop.transformer import INPUTS, OUTPUTS, PARTITIONS
from tests.interop.wire_client import WireClient

from headrace.wire.kafka.generated.describe_transactions_request import DescribeTransactionsRequest

PROJECT = Path(__file__).parent.parent.parent
CLIENTS = ("confluent", "aiokafka", "kafka-python", "java-4.3.0", "java-3.9.0")
# The one that knows KIP-890's second version.
NEW_PROTOCOL = "java-4.3.0"
ROUNDS = int(os.environ.get("HEADRACE_ROUNDS", "3"))
SEED = int(os.environ.get("HEADRACE_SEED", "4"))
# Inputs of each partition in each round.
FEED = 15
# After how many lines of a client something happens at the latest.
LINES_MAX = 40
STARTS_MAX = 10
SECONDS = 60


class Transformer:
    """One run of the program, in a process of its own."""

    def __init__(self, client: str, bootstrap: str, name: str, count: int, seed: int) -> None:
        arguments = [bootstrap, name, str(count), str(seed)]
        command: tuple[str, ...]
        if client.startswith("java-"):
            command = (*programs(client.removeprefix("java-")), "Transformer")
        else:
            command = (sys.executable, "-m", "tests.interop.transformer", client)
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.lines: list[str] = []

    def follow(self, lines_max: int | None = None) -> bool:
        """Read so many lines, or all; False when there are no more."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if lines_max is not None and len(self.lines) >= lines_max:
                return True
        return False

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def finish(self) -> int:
        """Its exit code, once it has ended. One that hangs is killed, as an operator
        would have it."""
        watch = threading.Timer(SECONDS, self.process.kill)
        watch.start()
        try:
            self.follow()
            return self.process.wait(SECONDS)
        finally:
            watch.cancel()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Rounds:
    def __init__(self, node: NodeProcess, client: str, seed: int) -> None:
        self.node = node
        self.client = client
        self.chance = random.Random(f"{client} {seed}")
        self.count = 0
        self.running: list[Transformer] = []

    def start(self) -> Transformer:
        # Nobody else is at work under this name but those that are to be fenced.
        seed = self.chance.randrange(2**31)
        made = Transformer(self.client, self.node.bootstrap, "transformer", self.count, seed)
        self.running.append(made)
        return made

    def feed(self) -> None:
        producer = Producer({**quiet(self.node.bootstrap), "linger.ms": 1})
        for index in range(PARTITIONS):
            for number in range(self.count, self.count + FEED):
                producer.produce(INPUTS, b"%d" % number, partition=index)
        assert producer.flush(SECONDS) == 0
        self.count += FEED

    def complete(self) -> None:
        """Start the program until one run of it has done everything."""
        told: list[list[str]] = []
        for _ in range(STARTS_MAX):
            run = self.start()
            code = run.finish()
            told.append(run.lines[-3:])
            if code == 0:
                return
        pytest.fail(f"{self.client} gave up {STARTS_MAX} times: {told}")

    # Strikes.

    def strike_client(self) -> None:
        run = self.start()
        run.follow(self.chance.randrange(1, LINES_MAX))
        run.kill()
        self.complete()

    def strike_node(self) -> None:
        run = self.start()
        run.follow(self.chance.randrange(1, LINES_MAX))
        self.node.restart(kill=True)
        if run.finish() != 0:
            self.complete()

    def wake_late(self) -> None:
        zombie = self.start()
        zombie.follow(self.chance.randrange(1, LINES_MAX))
        zombie.signal(signal.SIGSTOP)
        self.complete()
        self.feed()
        zombie.signal(signal.SIGCONT)
        zombie.finish()
        self.complete()

    def close(self) -> None:
        for run in self.running:
            run.signal(signal.SIGCONT)
            run.kill()


def outputs(bootstrap: str, isolation: str) -> list[list[int]]:
    """The values of each partition of the outputs, from its start to its end."""
    consumer = Consumer(
        {
            **quiet(bootstrap),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(OUTPUTS, index, 0) for index in range(PARTITIONS)])
    values: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(SECONDS)
        assert message is not None, "a reader waits in vain for the end of the log"
        error, index = message.error(), message.partition()
        assert index is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(index)
        else:
            values[index].append(int(message.value() or b""))
    consumer.close()
    return values


def epoch_of(bootstrap: str, name: str) -> int:
    with WireClient(bootstrap) as client:
        answer = client.call("DescribeTransactions", 0, DescribeTransactionsRequest((name,)))
    return int(answer.transaction_states[0].producer_epoch)


@pytest.fixture
def rounds(node: NodeProcess, request: pytest.FixtureRequest) -> Iterator[Rounds]:
    client = request.param
    if client.startswith("java-"):
        try:
            programs(client.removeprefix("java-"))
        except NoJava as reason:
            pytest.skip(str(reason))
    make_topic(node.bootstrap, INPUTS, PARTITIONS)
    make_topic(node.bootstrap, OUTPUTS, PARTITIONS)
    made = Rounds(node, client, SEED)
    yield made
    made.close()


@pytest.mark.parametrize("rounds", CLIENTS, indirect=True)
def test_every_input_has_its_effect_exactly_once(rounds: Rounds) -> None:
    strikes: tuple[Callable[[], None], ...] = (
        rounds.strike_client,
        rounds.wake_late,
        rounds.strike_node,
    )
    for number in range(ROUNDS):
        strike = strikes[number] if number < len(strikes) else rounds.chance.choice(strikes)
        rounds.feed()
        strike()
        expected = [list(range(rounds.count))] * PARTITIONS
        seen = outputs(rounds.node.bootstrap, "read_committed")
        assert seen == expected, f"round {number}, {strike.__name__}, seed {SEED}"
    if rounds.client == NEW_PROTOCOL:
        # It found transaction.version=2, and each of its transactions had its epoch.
        ended = sum(run.lines.count("ended") for run in rounds.running)
        assert epoch_of(rounds.node.bootstrap, "transformer") >= ended
    everything = outputs(rounds.node.bootstrap, "read_uncommitted")
    for index, values in enumerate(everything):
        assert set(values) == set(range(rounds.count)), f"partition {index}, seed {SEED}"
