"""The brokers that are measured: one face for a node of ours and for Apache Kafka.

Both are processes of their own, on a free port of this machine, with a directory of
their own; topics are made for each measurement and deleted after it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from benchmarks.kafka.wire import count_messages

PROJECT = Path(__file__).parent.parent.parent
HOST = "127.0.0.1"
START_SECONDS = 120.0
CALL_SECONDS = 60.0
TOPICS_PER_REQUEST = 10

# "os": a message counts when the operating system has it; "synced": on disk.
Durability = Literal["os", "synced"]


class Topic(NamedTuple):
    name: str
    # 32 hexadecimal digits, as the generator takes it.
    id: str


class Broker(ABC):
    """A broker that can be started, asked for its use of the machine, and ended."""

    name: str
    host = HOST

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._topics = 0

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def durability(self, durability: Durability) -> dict[str, str]:
        """What a topic is configured with to be as durable as this."""

    @abstractmethod
    def prepare(self) -> None:
        """Whatever has to be there before the first start."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Until it takes connections."""
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while not self.is_listening():
            self.check_alive()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start; see {self.place}/log")
            time.sleep(0.005)

    def launch(self) -> None:
        """Start it and do not wait. A broker that was started before comes back on
        the same port with what it had."""
        if not self.port:
            self.place.mkdir(parents=True, exist_ok=True)
            self.port = free_port()
            self.prepare()
        self._log = open(self.place / "log", "a")
        self._process = subprocess.Popen(
            self.command(), stdout=self._log, stderr=self._log, env=self.environment(),
            cwd=PROJECT, text=True,
        )  # fmt: skip

    def check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended by itself; see {self.place}/log")

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """What the process has used, all threads, those that ended included: Linux
        has a clock for every process, made from its id."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.name} has no memory")

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    @contextmanager
    def topic(
        self,
        partitions: int,
        durability: Durability = "synced",
        configs: Mapping[str, str] | None = None,
    ) -> Iterator[Topic]:
        """A new topic, ready to be used, and gone afterwards."""
        admin = self.admin()
        self._topics += 1
        name = f"bench-{self._topics}"
        made = self.make_topics(
            admin, {name: partitions}, {**self.durability(durability), **(configs or {})}
        )
        try:
            yield Topic(name, made[name])
        finally:
            admin.delete_topics([name])[name].result(CALL_SECONDS)

    def make_topics(
        self, admin: Any, topics: Mapping[str, int], configs: Mapping[str, str]
    ) -> dict[str, str]:
        """Their ids by name, when all of them can be used."""
        from confluent_kafka.admin import NewTopic

        wanted = [
            NewTopic(name, partitions, 1, config=dict(configs))
            for name, partitions in topics.items()
        ]
        # Kafka refuses to make ten thousand partitions in one request.
        for place in range(0, len(wanted), TOPICS_PER_REQUEST):
            some = wanted[place : place + TOPICS_PER_REQUEST]
            for made in admin.create_topics(some, operation_timeout=CALL_SECONDS).values():
                made.result(CALL_SECONDS)
        ids = wait_for_topics(admin, topics)
        # That a partition has a leader is known before that leader has the partition.
        deadline = time.monotonic() + CALL_SECONDS
        for name, partitions in topics.items():
            while count_messages(self, name, partitions) is None:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not lead all partitions of {name}")
                time.sleep(0.01)
        return ids

    def let_share_groups_begin_at_the_start(self, group: str) -> None:
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entry = ConfigEntry(
            "share.auto.offset.reset",
            "earliest",
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(CALL_SECONDS)


class Headrace(Broker):
    """A node of ours. `is_plain` switches the compiled modules off."""

    name = "headrace"

    def __init__(
        self, place: Path, *, is_plain: bool = False, project: Path = PROJECT, python: str = ""
    ) -> None:
        super().__init__(place)
        self._is_plain = is_plain
        self._project = project
        self._python = python or sys.executable

    def prepare(self) -> None:
        pass

    def command(self) -> list[str]:
        return [
            self._python, "-c", "from headrace.cli.main import main; main()", "serve",
            "--data", str(self.place / "data"), "--kafka", self.bootstrap,
            "--log-level", "warning",
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        paths = [str(self._project / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        plain = {"HEADRACE_PURE": "1"} if self._is_plain else {}
        # An empty address leaves a door shut: Kafka's alone is open.
        shut = {"HEADRACE_HTTP": "", "HEADRACE_GRPC": ""}
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **shut, **plain}

    def durability(self, durability: Durability) -> dict[str, str]:
        return {"headrace.durability": durability}


class Before(Headrace):
    """A node of another checkout that is set up: what ours was before a change."""

    name = "before"

    def __init__(self, place: Path, checkout: Path) -> None:
        super().__init__(place, project=checkout, python=str(checkout / ".venv/bin/python"))

    def environment(self) -> dict[str, str]:
        # A path that leads to our own modules would hide those of the checkout.
        return {**super().environment(), "PYTHONPATH": str(self._project / "src")}


def wait_for_topics(admin: Any, topics: Mapping[str, int]) -> dict[str, str]:
    """Kafka makes topics in the background: until every partition has its leader."""
    from confluent_kafka import KafkaException, TopicCollection

    deadline = time.monotonic() + CALL_SECONDS
    missing, ids = dict(topics), {}
    while missing:
        described = admin.describe_topics(TopicCollection(list(missing)))
        for name, answer in described.items():
            try:
                found = answer.result(CALL_SECONDS)
            except KafkaException:
                continue
            led = [each for each in found.partitions if each.leader is not None]
            if len(led) == missing[name]:
                ids[name] = _hexadecimal(found.topic_id)
                del missing[name]
        if missing and time.monotonic() > deadline:
            raise RuntimeError(f"topics are missing: {', '.join(missing)}")
        if missing:
            time.sleep(0.05)
    return ids


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _hexadecimal(topic_id: Any) -> str:
    mask = 2**64 - 1
    high = topic_id.get_most_significant_bits() & mask
    return f"{high << 64 | topic_id.get_least_significant_bits() & mask:032x}"
