"""A node on a memory disk whose clock the test moves, and crashes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from headrace.core.values import Delivery, MessageId, Outgoing, Receipt
from headrace.engine.partition import Partition
from headrace.node import Node
from headrace.platform.memory_disk import MemoryContent, MemoryDisk
from headrace.record import attribute_headers, reader
from headrace.record.reader import read_block

TOPIC = "orders"
GROUP = "workers"
START_MS = 1_000_000


class HandClock:
    def __init__(self) -> None:
        self.time_ms = START_MS

    def now_ms(self) -> int:
        return self.time_ms


def copy_of(disk: MemoryDisk) -> MemoryDisk:
    """What a process that is killed now leaves behind."""
    copied = MemoryDisk()
    copied.folders = set(disk.folders)
    copied.names = {name: MemoryContent(bytes(it.data)) for name, it in disk.names.items()}
    return copied


class Bench:
    """One topic and one group, with short ways to say what most tests do."""

    topic = TOPIC
    group = GROUP

    def __init__(self) -> None:
        self.clock = HandClock()
        self.disk = MemoryDisk()
        self._nodes: list[Node] = []
        self.node = self._open()

    def _open(self) -> Node:
        node = Node.open(":memory:", disk=self.disk, clock=self.clock)
        self._nodes.append(node)
        return node

    def make(
        self,
        *,
        partitions: int = 1,
        topic: Mapping[str, Any] | None = None,
        group: Mapping[str, Any] | None = None,
    ) -> None:
        self.node.create_topic(TOPIC, partitions=partitions, settings=topic)
        self.node.open_queue(GROUP, [TOPIC], "ann", group)

    def skip(self, passed_ms: int) -> None:
        self.clock.time_ms += passed_ms

    def reopen(self) -> None:
        self.node.close()
        self.node = self._open()

    def crash(self, disk: MemoryDisk | None = None) -> None:
        """Kill the process; what it wrote is there, what it held is not."""
        self.disk = disk or copy_of(self.disk)
        self.node = self._open()

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def publish(self, *values: bytes, key: bytes | None = None, **attributes: Any) -> list[int]:
        headers = attribute_headers(**attributes)
        outgoing = [Outgoing(value, key, headers) for value in values]
        return [place.offset for place in self.node.publish(TOPIC, outgoing)]

    def lease(self, count: int = 10, *, group: str = GROUP, by: str = "ann") -> list[Delivery]:
        return self.node.lease(group, [TOPIC], by, count)

    def values(self, count: int = 10, *, group: str = GROUP) -> list[bytes | None]:
        return [delivery.value for delivery in self.lease(count, group=group)]

    def receipts(self, count: int = 10, *, group: str = GROUP) -> list[Receipt]:
        return [delivery.receipt for delivery in self.lease(count, group=group)]

    def state(self, offset: int, *, group: str = GROUP) -> str:
        return self.node.status(MessageId(TOPIC, 0, offset), group).state

    def attempts(self, offset: int) -> int:
        return self.node.status(MessageId(TOPIC, 0, offset), GROUP).attempts

    def partition(self, index: int = 0, *, topic: str = TOPIC) -> Partition:
        topics = self.node._broker.topics
        return topics.partition(topics.named(topic), index)

    def files(self, part: str) -> list[str]:
        return sorted(name for name in self.disk.names if part in name)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def copy_disk() -> Callable[[MemoryDisk], MemoryDisk]:
    return copy_of


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first offset of each batch that was uncompressed to be read."""
    offsets: list[int] = []

    def note(batch: Any, header: Any, *more: int) -> bytes:
        offsets.append(header.base_offset)
        return read_block(batch, header, *more)

    monkeypatch.setattr(reader, "read_block", note)
    return offsets
