"""Messages that cannot be read when a directory is opened: their partition stops and says
so, its files are left alone, all else serves, and with the file back it goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.core.errors import CorruptLog, HeadraceError
from headrace.core.ports import File
from headrace.core.values import Delivery, MessageId, Outgoing
from headrace.engine.catalog import CURSOR_TOPIC
from headrace.node import Node
from headrace.node.repairing import repair
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryContent, MemoryDisk
from headrace.record.attribute_headers import DEDUP_ID

TOPIC, GROUP, READERS = "orders", "workers", "readers"
COUNT = 8

Files = dict[str, bytes]
Damage = Callable[[MemoryDisk, str], None]


class HandClock:
    time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Shop:
    """Messages in two partitions: of each, two are acked, one is leased, and a stream has
    read three."""

    def __init__(self) -> None:
        self.disk, self.clock = MemoryDisk(), HandClock()
        self.node = self.open()
        settings = {"trace_sample": None, "dedup": True}
        self.node.create_topic(TOPIC, partitions=2, settings=settings)
        self.node.open_queue(GROUP, [TOPIC], "ann", {"max_attempts": 1})
        self.node.join_stream(READERS, [TOPIC], "bob", "earliest")
        self.publish(range(COUNT), 0)
        self.publish(range(COUNT), 1)
        for partition in range(2):
            first, second, _ = self.lease(partition, 3)
            self.node.ack(GROUP, [first.receipt, second.receipt])
            self.node.commit(READERS, {(TOPIC, partition): 3})
        topics = self.node._broker.topics
        self.folder = topics.partition(topics.named(TOPIC), 0).path

    def publish(self, numbers: range, partition: int) -> None:
        messages = [
            Outgoing(b"%d" % n, None, ((DEDUP_ID, b"%d-%d" % (partition, n)),), partition=partition)
            for n in numbers
        ]
        self.node.publish(TOPIC, messages)

    def open(self) -> Node:
        return Node.open(":memory:", disk=self.disk, clock=self.clock)

    def lease(self, partition: int, count: int = 100) -> list[Delivery]:
        leased = self.node.lease(GROUP, [TOPIC], "ann", 2 * count)
        others = [each.receipt for each in leased if each.partition != partition]
        mine = [each.receipt for each in leased if each.partition == partition]
        self.node.release(GROUP, others + mine[count:])
        return [each for each in leased if each.partition == partition][:count]

    def files(self, folder: str) -> Files:
        names = self.disk.names
        return {name: bytes(names[name].data) for name in names if name.startswith(folder + "/")}

    def put_back(self, files: Files, instead_of: Files) -> None:
        for name in instead_of:
            del self.disk.names[name]
        for name, content in files.items():
            self.disk.names[name] = MemoryContent(content)


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.node.close()


def log_name(disk: MemoryDisk, folder: str) -> str:
    (name,) = [
        name
        for name in disk.names
        if name.startswith(f"{folder}/0") and name.endswith(".log") and "/state/" not in name
    ]
    return name


def log_file(disk: MemoryDisk, folder: str) -> bytearray:
    return disk.names[log_name(disk, folder)].data


def cut_the_end(disk: MemoryDisk, folder: str) -> None:
    del log_file(disk, folder)[-20:]


def empty_it(disk: MemoryDisk, folder: str) -> None:
    log_file(disk, folder).clear()


def remove_it(disk: MemoryDisk, folder: str) -> None:
    del disk.names[log_name(disk, folder)]


def spoil_the_start(disk: MemoryDisk, folder: str) -> None:
    disk.names[f"{folder}/start"] = MemoryContent(b"nonsense")


def flip_what_dedup_reads(disk: MemoryDisk, folder: str) -> None:
    """Below the synced end, where only those look who need its contents."""
    data = log_file(disk, folder)
    data[len(data) // 2] ^= 0x10


DAMAGES = [cut_the_end, empty_it, remove_it, spoil_the_start, flip_what_dedup_reads]
every_damage = pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)


@every_damage
def test_damaged_messages_stop_their_partition_and_nothing_else(
    shop: Shop, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    shop.node.close()
    whole = shop.files(shop.folder)
    damage(shop.disk, shop.folder)
    damaged = shop.files(shop.folder)
    shop.node = shop.open()
    node = shop.node
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "orders:0 is stopped" in caplog.text and f"{shop.folder}/" in caplog.text
    for ask in questions(node):
        with pytest.raises(CorruptLog, match="orders:0 is stopped"):
            ask()
    assert [each.stopped for each in node.overview().topics if each.name == TOPIC] == [1]
    # Whoever reads the other partition notices nothing.
    assert len(node.read(TOPIC, 1, 0)[0]) == COUNT
    assert {each.partition for each in node.lease(GROUP, [TOPIC], "ann", 100)} == {1}
    shop.publish(range(COUNT, COUNT + 1), 1)
    # Positions stay where they are, whoever joins meanwhile.
    node.join_stream(READERS, [TOPIC], "carl", "latest")
    assert node.committed(READERS, TOPIC) == {0: 3, 1: 3}
    node.join_stream("new", [TOPIC], "dora", "latest")
    assert node.committed("new", TOPIC) == {0: COUNT, 1: COUNT + 1}
    node.close()
    assert shop.files(shop.folder) == damaged
    # It is no matter of the queues: there is nothing that a repair could save.
    assert repair(shop.disk, SystemEntropy(), shop.clock, dry_run=False) == []
    assert shop.files(shop.folder) == damaged
    shop.put_back(whole, instead_of=damaged)
    shop.node = node = shop.open()
    assert len(node.read(TOPIC, 0, 0)[0]) == COUNT
    states = [node.status(MessageId(TOPIC, 0, n), GROUP).state for n in range(COUNT)]
    assert states == ["acked"] * 2 + ["dead-lettered"] + ["pending"] * (COUNT - 3)
    assert node.committed(READERS, TOPIC) == {0: 3, 1: 3}


def questions(node: Node) -> list[Callable[[], object]]:
    """What cannot be done with a partition whose messages cannot be read."""
    place = MessageId(TOPIC, 0, 3)
    return [
        lambda: node.read(TOPIC, 0, 0),
        lambda: node.read(TOPIC, 0, COUNT),
        lambda: node.offset_at(TOPIC, 0, 0),
        lambda: node.publish(TOPIC, [Outgoing(b"", None, (), partition=0)]),
        lambda: node.status(place, GROUP),
        lambda: node.delete_records(TOPIC, 0, 1),
    ]


@pytest.mark.parametrize("number", [errno.EACCES, errno.ELOOP, errno.EISDIR])
def test_messages_that_the_system_does_not_open_stop_their_partition_alone(
    shop: Shop, number: int
) -> None:
    name = log_name(shop.disk, shop.folder)
    shop.node.close()
    opened = shop.disk.open

    def refuse(path: str, **words: Any) -> File:
        if path == name:
            raise OSError(number, os.strerror(number), path)
        return opened(path, **words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shop.disk, "open", refuse)
        shop.node = shop.open()
        ((topic, partition, reason),) = shop.node.stopped_partitions()
        assert (topic, partition) == (TOPIC, 0) and os.strerror(number) in reason
        assert shop.lease(1) and not shop.lease(0)
        shop.node.close()
    shop.node = shop.open()
    assert shop.node.stopped_partitions() == [] and shop.lease(0)


def test_rot_under_a_lease_stops_its_partition_when_a_directory_opens(shop: Shop) -> None:
    """Records that are leased are read then, for how often each may be delivered."""
    shop.node.alter_topic(TOPIC, {"dedup": False})
    shop.node.lease(GROUP, [TOPIC], "ann", 100)
    shop.node.close()
    flip_what_dedup_reads(shop.disk, shop.folder)
    shop.node = shop.open()
    assert [each[:2] for each in shop.node.stopped_partitions()] == [(TOPIC, 0)]
    with pytest.raises(CorruptLog):
        shop.node.read(TOPIC, 0, 0)
    assert len(shop.node.read(TOPIC, 1, 0)[0]) == COUNT
    # Nothing more may be tried with those of the other partition.
    assert {each.partition for each in shop.node.dead_letters(TOPIC)} == {1}


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_rot_that_a_first_queue_finds_stops_its_partition_alone(shop: Shop, ordering: str) -> None:
    """Of a topic that only streams have read, nobody has looked into the records yet."""
    node = shop.node
    node.create_topic("late", partitions=2, settings={"ordering": ordering, "trace_sample": None})
    for partition in range(2):
        node.publish("late", [Outgoing(b"%d" % partition, b"k", (), partition=partition)])
    topics = node._broker.topics
    rotten = topics.partition(topics.named("late"), 0)
    log_file(shop.disk, rotten.path)[-1] ^= 1
    node.open_queue("late-workers", ["late"], "ann", {})
    assert [each[:2] for each in node.stopped_partitions()] == [("late", 0)]
    leased = node.lease("late-workers", ["late"], "ann", 10)
    assert [each.partition for each in leased] == [1]


def spoil_the_first_header(disk: MemoryDisk, folder: str) -> None:
    """Below the synced end, where only the first append looks."""
    log_file(disk, folder)[16] = 97


@pytest.mark.parametrize("damage", [remove_it, spoil_the_first_header])
def test_messages_whose_dead_letters_are_damaged_wait_and_keep_nobody_waiting(
    shop: Shop, damage: Damage
) -> None:
    """They are given up when the letters can be written again."""
    [first] = shop.lease(0, 1)
    shop.node.reject(GROUP, [first.receipt], reason="no")
    topics = shop.node._broker.topics
    letters = topics.partition(topics.named(f"{TOPIC}.dlq"), 0).path
    shop.node.close()
    whole = shop.files(letters)
    damage(shop.disk, letters)
    shop.node = shop.open()
    [second] = shop.lease(0, 1)
    shop.node.reject(GROUP, [second.receipt], reason="no")
    assert len(shop.lease(0)) == COUNT - 5
    shop.node.close()
    shop.put_back(whole, instead_of=shop.files(letters))
    shop.node = shop.open()
    found = shop.node.dead_letters(TOPIC)
    assert {first.offset, second.offset} <= {each.offset for each in found}


def test_a_topic_with_damaged_messages_can_be_deleted(shop: Shop) -> None:
    shop.node.close()
    remove_it(shop.disk, shop.folder)
    shop.node = shop.open()
    shop.node.delete_topic(TOPIC)
    assert shop.files(shop.folder) == {}
    shop.node.create_topic(TOPIC, partitions=1)
    shop.node.publish(TOPIC, [Outgoing(b"anew", None, ())])


def test_positions_that_cannot_be_read_keep_a_directory_from_opening(shop: Shop) -> None:
    """Without them streams would begin anew, and nobody would have been told."""
    topics = shop.node._broker.topics
    folder = topics.partition(topics.named(CURSOR_TOPIC), 0).path
    shop.node.close()
    whole = shop.files(folder)
    cut_the_end(shop.disk, folder)
    with pytest.raises(HeadraceError, match=f"{folder}/0.*put it back"):
        shop.open()
    shop.put_back(whole, instead_of=whole)
    shop.node = shop.open()


def test_what_is_refused_again_and_again_keeps_nothing_of_the_calls(shop: Shop) -> None:
    shop.node.close()
    cut_the_end(shop.disk, shop.folder)
    shop.node = shop.open()
    for ask in questions(shop.node):
        # The error is the same object each time, and what is raised notes where it came by.
        frames = set()
        for _ in range(3):
            with pytest.raises(CorruptLog) as refused:
                ask()
            frames.add(len(refused.traceback))
        assert len(frames) == 1
