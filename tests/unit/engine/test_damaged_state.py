"""A state log that cannot be read: its partition's queues stop and say so, all else
serves, and a repair saves what is left without delivering anything again as if new."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from headrace.core.errors import CorruptLog, InUse, ReadOnly
from headrace.core.ports import File
from headrace.core.values import Delivery, MessageId, Outgoing
from headrace.engine import state
from headrace.engine.queue import QueueView
from headrace.engine.salvage import UNSURE, Saved
from headrace.node import Node
from headrace.node.repairing import repair
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import build_values_batch

TOPIC, GROUP = "orders", "workers"
PARTITIONS = 2

Damage = Callable[[MemoryDisk, str], None]


class HandClock:
    time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Shop:
    """A directory with messages in two partitions: of each, two are acked, one failed
    once, one is leased, one is delayed by nobody and three are untouched."""

    def __init__(self) -> None:
        self.disk, self.clock = MemoryDisk(), HandClock()
        self.node = self.open()
        self.node.create_topic(TOPIC, partitions=PARTITIONS, settings={"trace_sample": None})
        self.node.open_queue(GROUP, [TOPIC], "ann", {"backoff_ms": 0})
        self.node.publish(TOPIC, self.messages(8))
        leased = self.lease(8)
        for partition in range(PARTITIONS):
            mine = [each for each in leased if each.partition == partition]
            self.node.ack(GROUP, [mine[0].receipt, mine[1].receipt])
            self.node.nack(GROUP, [mine[2].receipt], error="no")
            self.node.release(GROUP, [each.receipt for each in mine[4:]])

    def messages(self, count: int) -> list[Outgoing]:
        return [
            Outgoing(b"%d" % n, None, (), partition=index)
            for index in range(PARTITIONS)
            for n in range(count)
        ]

    def open(self) -> Node:
        return Node.open(":memory:", disk=self.disk, clock=self.clock)

    def lease(self, count: int = 100) -> list[Delivery]:
        return self.node.lease(GROUP, [TOPIC], "ann", count * PARTITIONS)

    @property
    def folder(self) -> str:
        topics = self.node._broker.topics
        return topics.partition(topics.named(TOPIC), 0).path

    def damage(self, damage: Damage) -> None:
        folder = self.folder
        self.node.close()
        damage(self.disk, f"{folder}/state")
        self.node = self.open()

    def states(self, partition: int) -> list[str]:
        return [
            self.node.status(MessageId(TOPIC, partition, offset), GROUP).state
            for offset in range(8)
        ]

    def repair(self, *, dry_run: bool = False) -> list[Saved]:
        return repair(self.disk, SystemEntropy(), self.clock, dry_run=dry_run)


@pytest.fixture
def shop() -> Any:
    made = Shop()
    yield made
    made.node.close()


def log_file(disk: MemoryDisk, folder: str) -> bytearray:
    (name,) = [name for name in disk.names if name.startswith(folder) and name.endswith(".log")]
    return disk.names[name].data


def flip_a_bit(disk: MemoryDisk, folder: str) -> None:
    data = log_file(disk, folder)
    data[len(data) // 2] ^= 0x10


def flip_the_first_byte(disk: MemoryDisk, folder: str) -> None:
    log_file(disk, folder)[0] ^= 0x10


def cut_the_end(disk: MemoryDisk, folder: str) -> None:
    del log_file(disk, folder)[-20:]


def empty_it(disk: MemoryDisk, folder: str) -> None:
    log_file(disk, folder).clear()


def remove_it(disk: MemoryDisk, folder: str) -> None:
    for name in [name for name in disk.names if name.startswith(folder) and ".log" in name]:
        del disk.names[name]


def fill_with_nonsense(disk: MemoryDisk, folder: str) -> None:
    data = log_file(disk, folder)
    data[:] = bytes(n * 7 % 256 for n in range(len(data)))


DAMAGES = [flip_a_bit, flip_the_first_byte, cut_the_end, empty_it, remove_it, fill_with_nonsense]
every_damage = pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)


@every_damage
def test_a_damaged_state_log_stops_the_queues_of_its_partition_and_nothing_else(
    shop: Shop, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = next(each.receipt for each in shop.lease() if each.partition == 0)
    shop.damage(damage)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "orders:0 are stopped" in caplog.text and "headrace repair" in caplog.text
    ((topic, partition, reason),) = shop.node.stopped_queues()
    assert (topic, partition) == (TOPIC, 0) and "headrace repair" in reason
    # The other partition serves, and so does this one where no queue is needed.
    assert {each.partition for each in shop.lease()} == {1}
    shop.node.publish(TOPIC, shop.messages(1))
    assert len(shop.node.read(TOPIC, 0, 0)[0]) == 9
    (outcome,) = shop.node.ack(GROUP, [receipt])
    assert isinstance(outcome, CorruptLog)
    with pytest.raises(CorruptLog, match="repair"):
        shop.node.status(MessageId(TOPIC, 0, 0), GROUP)
    assert [each.stopped for each in shop.node.overview().topics if each.name == TOPIC] == [1]


class RefusingDisk(MemoryDisk):
    """Refuses to open files below one folder. Permission bits would not stop tests that
    run as root."""

    def __init__(self, content: MemoryDisk, folder: str, number: int) -> None:
        super().__init__()
        self.names, self.folders = content.names, content.folders
        self._folder, self.number = folder, number

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> File:
        if self.number and path.startswith(self._folder):
            raise OSError(self.number, os.strerror(self.number), path)
        return super().open(path, create=create, read_only=read_only, note=note)


OF_ONE_FILE = [
    errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.EUCLEAN,
]  # fmt: skip
OF_THE_PROCESS = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EROFS]


@pytest.mark.parametrize("number", OF_ONE_FILE, ids=errno.errorcode.get)
def test_a_state_log_that_the_system_does_not_open_stops_the_queues_of_its_partition(
    shop: Shop, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    shop.node.close()
    disk = shop.disk = RefusingDisk(shop.disk, f"{shop.folder}/state/", number)
    shop.node = shop.open()
    assert "orders:0 are stopped" in caplog.text and os.strerror(number) in caplog.text
    assert {each.partition for each in shop.lease()} == {1}
    shop.node.publish(TOPIC, shop.messages(1))
    assert len(shop.node.read(TOPIC, 0, 0)[0]) == 9
    # Nothing is damaged: with the cause gone, the queues are as they were.
    shop.node.close()
    disk.number = 0
    shop.node = shop.open()
    assert shop.node.stopped_queues() == []
    assert shop.states(0)[:3] == ["acked", "acked", "pending"]


@pytest.mark.parametrize("number", OF_THE_PROCESS, ids=errno.errorcode.get)
def test_what_the_system_refuses_to_the_whole_process_stops_no_queues(
    shop: Shop, number: int
) -> None:
    shop.node.close()
    disk = shop.disk = RefusingDisk(shop.disk, f"{shop.folder}/state/", number)
    with pytest.raises((OSError, ReadOnly), match="state/"):
        shop.open()
    disk.number = 0
    shop.node = shop.open()
    assert shop.node.stopped_queues() == []


@every_damage
def test_a_repair_keeps_the_damaged_files_and_delivers_nothing_again_as_if_new(
    shop: Shop, damage: Damage
) -> None:
    shop.damage(damage)
    folder, before = shop.folder, dict(shop.disk.names)
    with pytest.raises(InUse):
        shop.repair()
    shop.node.close()
    content = {
        name: bytes(each.data) for name, each in before.items() if f"{folder}/state/" in name
    }
    (planned,) = shop.repair(dry_run=True)
    assert planned.lost
    (saved,) = shop.repair()
    assert saved.kept_in == f"{folder}/state.damaged-1"
    kept = {name: bytes(each.data) for name, each in shop.disk.names.items()}
    assert {
        name.replace("/state.damaged-1/", "/state/"): data
        for name, data in kept.items()
        if "/state.damaged-1/" in name
    } == content
    assert shop.repair() == []
    shop.node = shop.open()
    assert shop.node.stopped_queues() == []
    assert "leased" not in shop.states(0)
    again = [each for each in shop.lease() if each.partition == 0]
    assert again and saved.groups[0].pending == len(again)
    # Whatever may have been done already is not as if it were new.
    assert all(each.attempt > 1 and each.error == UNSURE for each in again)
    assert {each.offset for each in again} >= set(range(2, 8))
    assert not any(shop.node.ack(GROUP, [each.receipt for each in again]))
    shop.node.close()
    shop.node = shop.open()
    assert set(shop.states(0)) == {"acked"}


@every_damage
def test_a_message_whose_dead_letter_waits_stays_dead(shop: Shop, damage: Damage) -> None:
    """Otherwise it would be ready again, with its letter beside it."""
    given_up = next(each for each in shop.lease() if each.partition == 0)
    shop.node.reject(GROUP, [given_up.receipt], reason="no")
    shop.damage(damage)
    shop.node.close()
    (saved,) = shop.repair()
    shop.node = shop.open()
    assert shop.states(0)[given_up.offset] == "dead-lettered"
    again = [each for each in shop.lease() if each.partition == 0]
    assert len(again) == saved.groups[0].pending
    assert given_up.offset not in {each.offset for each in again}
    [letter] = shop.node.dead_letters(TOPIC)
    result = shop.node.redrive(TOPIC, [MessageId(letter.topic, letter.partition, letter.offset)])
    assert (result.in_place, result.copied) == (1, 0)
    assert given_up.offset in {each.offset for each in shop.lease()}


def test_what_is_sound_before_and_behind_the_damage_counts(shop: Shop) -> None:
    """The ack lies before the damage, and the one of the last message behind it."""
    last = next(each for each in shop.lease() if each.partition == 0)
    middle = len(log_file(shop.disk, f"{shop.folder}/state"))
    shop.node.extend(GROUP, [last.receipt])
    shop.node.ack(GROUP, [last.receipt])

    def flip_the_middle(disk: MemoryDisk, folder: str) -> None:
        log_file(disk, folder)[middle + 30] ^= 1

    shop.damage(flip_the_middle)
    shop.node.close()
    (saved,) = shop.repair()
    assert len(saved.lost) == 1
    shop.node = shop.open()
    states = shop.states(0)
    assert [states[0], states[1], states[last.offset]] == ["acked"] * 3


def test_an_event_of_a_newer_version_stops_queues_and_is_skipped_by_a_repair(shop: Shop) -> None:
    partition = shop.node._broker.topics.find(shop.node._broker.topics.named(TOPIC).id, 0)
    assert partition is not None and partition.state is not None
    partition.state.log.append(
        build_values_batch([b"\x92\x63\x01"], shop.clock.time_ms), partition.epoch, 0
    )
    shop.damage(lambda disk, folder: None)
    ((_, _, reason),) = shop.node.stopped_queues()
    assert "newer Headrace" in reason
    shop.node.close()
    (saved,) = shop.repair()
    assert len(saved.lost) == 1 and "newer Headrace" in saved.lost[0]
    shop.node = shop.open()
    assert shop.states(0)[:2] == ["acked", "acked"]


def test_an_event_that_raises_stops_queues_and_is_skipped_by_a_repair(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours must not keep a directory from opening."""
    apply = QueueView.apply

    def fail(view: QueueView, event: state.GroupEvent) -> None:
        if isinstance(event, state.Retried):
            raise KeyError(0)
        apply(view, event)

    monkeypatch.setattr(QueueView, "apply", fail)
    shop.damage(lambda disk, folder: None)
    assert len(shop.node.stopped_queues()) == PARTITIONS
    assert "KeyError: 0" in shop.node.stopped_queues()[0][2]
    shop.node.close()
    saved = shop.repair()
    assert [len(each.lost) for each in saved] == [1, 1]
    monkeypatch.undo()
    shop.node = shop.open()
    assert shop.states(0)[:2] == shop.states(1)[:2] == ["acked", "acked"]


@pytest.mark.parametrize("behind", [0, 1])
def test_a_snapshot_that_is_damaged_counts_for_nothing(
    shop: Shop, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came before it is gone with it; what came behind it still counts."""
    partition = shop.node._broker.topics.find(shop.node._broker.topics.named(TOPIC).id, 0)
    assert partition is not None
    partition.snapshot(shop.clock.time_ms, force=True)
    shop.node.publish(TOPIC, shop.messages(1))
    if behind:
        held = [each for each in shop.lease() if each.partition == 0]
        shop.node.ack(GROUP, [held[0].receipt])
    shop.damage(flip_the_first_byte)
    assert len(shop.node.stopped_queues()) == 1
    shop.node.close()
    (saved,) = shop.repair()
    shop.node = shop.open()
    assert shop.states(0).count("acked") == behind
    again = [each for each in shop.lease() if each.partition == 0]
    assert len(again) == 9 - behind and all(each.attempt > 1 for each in again)
    assert saved.groups[0].unsure == 9 - behind


def test_a_repair_that_was_cut_short_is_done_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.damage(flip_a_bit)
    shop.node.close()
    rename = shop.disk.rename

    def stop_before_the_second(source: str, target: str) -> None:
        if source.endswith("state.repaired"):
            raise OSError("power is gone")
        rename(source, target)

    monkeypatch.setattr(shop.disk, "rename", stop_before_the_second)
    with pytest.raises(OSError, match="power"):
        shop.repair()
    monkeypatch.undo()
    shop.node = shop.open()
    assert "cut short" in shop.node.stopped_queues()[0][2]
    shop.node.close()
    (saved,) = shop.repair()
    assert saved.kept_in is not None and saved.kept_in.endswith("state.damaged-1")
    shop.node = shop.open()
    assert shop.node.stopped_queues() == []
    assert all(each.attempt > 1 for each in shop.lease() if each.partition == 0)


def test_retention_removes_nothing_while_it_is_not_known_what_queues_owe(shop: Shop) -> None:
    shop.node.alter_topic(TOPIC, {"retention": "acked"})
    shop.damage(flip_a_bit)
    with shop.node._writing() as (now_ms, _):
        for partition in shop.node._broker.topics:
            partition.log.roll(now_ms)
    shop.node.publish(TOPIC, shop.messages(1))
    with shop.node._writing() as (now_ms, _):
        shop.node._broker.maintain(now_ms)
    starts = [each.start_offset for each in shop.node.topic(TOPIC).partitions]
    assert starts[0] == 0


def test_a_group_that_is_made_while_queues_are_stopped_reads_all_after_the_repair(
    shop: Shop,
) -> None:
    shop.damage(flip_a_bit)
    shop.node.open_queue("others", [TOPIC], "ann", {})
    assert {d.partition for d in shop.node.lease("others", [TOPIC], "ann", 100)} == {1}
    shop.node.close()
    shop.repair()
    shop.node = shop.open()
    seen = shop.node.lease("others", [TOPIC], "ann", 100)
    assert {d.partition for d in seen} == {0, 1}


def test_the_positions_of_a_repaired_state_log_are_new(shop: Shop) -> None:
    """Traces of before and after must not be taken for each other."""
    partition = shop.node._broker.topics.find(shop.node._broker.topics.named(TOPIC).id, 0)
    assert partition is not None and partition.state is not None
    end = partition.state.log.end_offset
    shop.damage(flip_the_first_byte)
    shop.node.close()
    shop.repair()
    shop.node = shop.open()
    partition = shop.node._broker.topics.find(shop.node._broker.topics.named(TOPIC).id, 0)
    assert partition is not None and partition.state is not None
    assert partition.state.log.start_offset >= end
