"""Topics for tests of Spark jobs, on a real node that is started once a session.

    source = headrace_topics("orders")
    source.publish({"total": 5}, {"total": 50})
    spark.read.format("headrace").options(**source.reading).load()     or readStream
    frame.write.format("headrace").options(**target.writing).mode("append").save()
    target.records()

Spark's executors are processes of their own, so memory does not do here: the node is a child
process on a free port of the loopback, which takes about a second. Every topic has a name
that no other has, so that tests share the node and not their records.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

from headrace.client.connecting import connect
from headrace.client.handle import Headrace
from headrace.client.views import Record
from headrace.core.errors import HeadraceError

_START = "from headrace.cli.main import main; main()"
_READY = "ready: kafka on "
STOP_SECONDS = 60


class NodeBeside:
    """A node in a child process, with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", _START, "serve", "--data", str(folder),
                "--kafka", "127.0.0.1:0", "--http", "", "--grpc", "", "--log-level", "warning",
            ],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            text=True,
            encoding="utf-8",
        )  # fmt: skip
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        if not ready.startswith(_READY):
            self.close()
            raise HeadraceError("the node for the tests did not start; what it said is above")
        self.servers = ready.removeprefix(_READY).split(",")[0].strip()

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class SparkTopic:
    """A topic of one test: what a job reads, or where it writes."""

    def __init__(self, handle: Headrace, servers: str, name: str, partitions: int) -> None:
        self.name = name
        self.servers = servers
        self._handle = handle
        # Records of any time stay, whatever a test says that they are from.
        handle.create_topic(name, partitions=partitions, retention_ms=None)

    @property
    def reading(self) -> dict[str, str]:
        """Options for `spark.read` and `spark.readStream`."""
        return {"servers": self.servers, "subscribe": self.name}

    @property
    def writing(self) -> dict[str, str]:
        """Options for a DataFrame's `write` and `writeStream`."""
        return {"servers": self.servers, "topic": self.name}

    def publish(self, *values: Any, **options: Any) -> None:
        """Bytes, texts, or what becomes JSON; `key`, `headers` and the other options are
        those of `Headrace.publish_many`, for all of them."""
        self._handle.publish_many(self.name, values, **options)

    def records(self) -> list[Record[Any]]:
        """What is in the topic now, in the order of each partition; committed records alone."""
        found: list[Record[Any]] = []
        with self._handle.stream(self.name, start="earliest") as stream:
            while records := stream.poll(wait=0):
                found += records
        return found


class SparkTopics:
    """Makes topics on the session's node: `headrace_topics("orders")`."""

    def __init__(self, folder: Path) -> None:
        self._node = NodeBeside(folder)
        self.servers = self._node.servers
        self._handle = connect(self.servers)
        self._numbers = count(1)

    def __call__(self, name: str = "topic", *, partitions: int = 1) -> SparkTopic:
        """A new topic, whose name begins so."""
        number = next(self._numbers)
        return SparkTopic(self._handle, self.servers, f"{name}-{number}", partitions)

    def close(self) -> None:
        self._handle.close()
        self._node.close()
