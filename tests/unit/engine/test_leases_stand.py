"""What becomes of leases when a directory is opened again, by a node and by a process that
has it open itself."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.engine.conftest import copy_of

from headrace.core.errors import StaleReceipt
from headrace.core.settings import TopicSettings
from headrace.core.values import Delivery
from headrace.engine import grant
from headrace.engine.broker import Broker
from headrace.engine.catalog import Group
from headrace.engine.leasing import Wishes
from headrace.engine.partition import Partition
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, attribute_headers, build_batch, read_header

TOPIC, GROUP = "orders", "workers"
START_MS = 1_000_000
VISIBILITY_MS = 30_000
STANDING = (grant.NOTHING, grant.CLIENT, grant.SOCKET, grant.STREAM)
ENDING = (grant.PROCESS, grant.SHARE)


class Opened:
    """A directory that a node has open, or a process of its own."""

    def __init__(self, disk: MemoryDisk | None = None, *, is_node: bool = True) -> None:
        self.disk = disk or MemoryDisk()
        self.now_ms = START_MS
        self.broker = Broker(self.disk, SystemEntropy(), self.now_ms, leases_stand=is_node)
        if TOPIC not in self.broker.topics.catalog.topics:
            self.broker.topics.create(TOPIC, 1, TopicSettings(), self.now_ms)
            topic = self.broker.topics.named(TOPIC)
            settings = {"visibility_ms": VISIBILITY_MS, "max_attempts": 2}
            commit = self.broker.commit()
            self.broker.groups.open(GROUP, [topic], settings, self.now_ms, commit)

    @property
    def partition(self) -> Partition:
        return self.broker.topics.partition(self.broker.topics.named(TOPIC), 0)

    @property
    def group(self) -> Group:
        return self.broker.groups.named(GROUP)

    def publish(self, *values: bytes, **attributes: Any) -> None:
        headers = attribute_headers(**attributes)
        batch = build_batch([NewRecord(None, value, headers, START_MS) for value in values])
        self.partition.append(batch, read_header(batch), self.now_ms)
        self.sync()

    def sync(self) -> None:
        for partition in self.broker.topics:
            partition.log.sync_now()
            if partition.state is not None:
                partition.state.log.sync_now()
        self.broker.on_synced(self.broker.begin_sync(self.broker.topics), self.now_ms)
        for partition in self.broker.topics:
            partition.on_synced(self.now_ms)

    def lease(self, by: str = "ann", count: int = 10, tie: int | None = None) -> list[Delivery]:
        topics = [self.broker.topics.named(TOPIC)]
        wishes = Wishes(tie=tie)
        return self.broker.leasing.lease(self.group, topics, by, count, wishes, self.now_ms)

    def ack(self, *deliveries: Delivery) -> list[bool]:
        """Whether each receipt was good."""
        commit = self.broker.commit()
        receipts = [each.receipt for each in deliveries]
        outcomes = self.broker.settling.ack(self.group, receipts, self.now_ms, commit)
        assert all(each is None or isinstance(each, StaleReceipt) for each in outcomes)
        self.sync()
        return [each is None for each in outcomes]

    def again(self, *, is_node: bool = True) -> Opened:
        """After `kill -9`."""
        return Opened(copy_of(self.disk), is_node=is_node)


@pytest.mark.parametrize("tie", STANDING)
def test_leases_of_a_node_stand_over_a_restart_and_their_receipts_are_good(tie: int) -> None:
    before = Opened()
    before.publish(b"0", b"1", b"2")
    held = before.lease(count=2, tie=tie)
    again = before.again()
    assert [each.value for each in again.lease("bob")] == [b"2"]
    assert again.ack(*held) == [True, True]
    assert again.partition.views[again.group.id].totals["acked"] == 2


@pytest.mark.parametrize("tie", STANDING)
def test_they_end_at_their_deadline_and_count_as_a_delivery(tie: int) -> None:
    before = Opened()
    before.publish(b"0")
    [held] = before.lease(tie=tie)
    again = before.again()
    again.now_ms += VISIBILITY_MS - 1
    assert again.lease("bob") == []
    again.now_ms += 1
    [later] = again.lease("bob")
    assert (later.value, later.attempt) == (b"0", 2)
    assert again.ack(held) == [False]


@pytest.mark.parametrize("tie", ENDING)
def test_leases_whose_holder_cannot_come_back_end_with_the_restart_of_a_node(tie: int) -> None:
    before = Opened()
    before.publish(b"0")
    [held] = before.lease(tie=tie)
    again = before.again()
    [later] = again.lease("bob")
    assert (later.value, later.attempt) == (b"0", 2)
    assert again.ack(held) == [False]


@pytest.mark.parametrize("tie", [*STANDING, *ENDING])
def test_embedded_all_leases_end_when_the_directory_is_opened(tie: int) -> None:
    before = Opened()
    before.publish(b"0")
    [held] = before.lease(tie=tie)
    again = before.again(is_node=False)
    [later] = again.lease("bob")
    assert (later.value, later.attempt) == (b"0", 2)
    assert again.ack(held) == [False]


def test_what_an_embedded_process_leased_ends_when_a_node_opens_its_directory() -> None:
    before = Opened(is_node=False)
    before.publish(b"0")
    before.lease()
    [later] = before.again().lease("bob")
    assert (later.value, later.attempt) == (b"0", 2)


def test_leases_stand_over_many_restarts_and_snapshots() -> None:
    now = Opened()
    now.publish(b"0", b"1")
    held = now.lease(tie=grant.CLIENT)
    for _ in range(3):
        now.partition.snapshot(now.now_ms, force=True)
        now.sync()
        now = now.again()
        [kept] = now.partition.views[now.group.id].grants.values()
        assert (kept.owner, kept.tie, kept.until_ms) == (
            "ann", grant.CLIENT, START_MS + VISIBILITY_MS,
        )  # fmt: skip
    assert now.ack(*held) == [True, True]


def test_a_lease_that_was_extended_is_what_it_was_before() -> None:
    before = Opened()
    before.publish(b"0")
    [held] = before.lease(tie=grant.SHARE)
    commit = before.broker.commit()
    before.broker.settling.extend(before.group, [held.receipt], 60_000, before.now_ms, commit)
    [later] = before.again().lease("bob")
    assert later.attempt == 2


def test_a_message_keeps_its_own_most_attempts_over_a_restart() -> None:
    before = Opened()
    before.publish(b"0", max_attempts=1)
    before.lease(tie=grant.NOTHING)
    again = before.again()
    again.now_ms += VISIBILITY_MS
    # The group would try twice.
    assert again.lease("bob") == []
    again.sync()
    assert again.broker.topics.catalog.dead_letters_of(again.partition.topic) is not None


def test_who_held_something_before_a_restart_is_held_to_its_maximum() -> None:
    before = Opened()
    before.publish(b"0", b"1")
    before.lease(count=1, tie=grant.NOTHING)
    again = before.again()
    assert again.partition.views[again.group.id].held == {"ann": 1}
    assert again.broker.groups.members(again.group, again.now_ms) == {"ann"}
