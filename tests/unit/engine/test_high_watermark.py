"""How far a partition may be read and settled: as far as every member of its in-sync set
has it. The other member is played by a value that says what it has confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from headrace.core.settings import TopicSettings
from headrace.core.values import Delivery
from headrace.engine import state as events
from headrace.engine.broker import Broker
from headrace.engine.catalog import Group, Topic
from headrace.engine.confirmed import Confirmed
from headrace.engine.leasing import Wishes
from headrace.engine.partition import Partition
from headrace.engine.state_log import TransactionDecided
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, attribute_headers, build_batch, read_header

TOPIC, GROUP = "orders", "workers"
NOW_MS = 1_000_000
WAITS_FOR_THE_DISK = pytest.mark.parametrize("durability", ["synced", "os"])


class Pair:
    """A partition that this node leads, with another node in its in-sync set."""

    def __init__(self, **settings: Any) -> None:
        self.disk = MemoryDisk()
        self.broker = Broker(self.disk, SystemEntropy(), NOW_MS)
        self.topic: Topic = self.broker.topics.create(TOPIC, 1, TopicSettings(**settings), NOW_MS)
        self.partition = self.broker.topics.partition(self.topic, 0)
        self.other = Confirmed()
        self.partition.become_leader(self.partition.epoch + 1, NOW_MS, self.other)
        commit = self.broker.commit()
        self.group: Group = self.broker.groups.open(GROUP, [self.topic], {}, NOW_MS, commit)

    def append(self, *values: bytes, **attributes: Any) -> None:
        headers = attribute_headers(**attributes)
        batch = build_batch([NewRecord(None, value, headers, NOW_MS) for value in values])
        self.partition.append(batch, read_header(batch), NOW_MS)

    def sync(self) -> None:
        self.partition.log.sync_now()
        if self.partition.state is not None:
            self.partition.state.log.sync_now()
        self.partition.on_synced(NOW_MS)

    def confirm(self, data_end: int | None = None, state_end: int | None = None) -> None:
        if data_end is not None:
            self.other.data_end = data_end
        if state_end is not None:
            self.other.state_end = state_end
        self.partition.on_synced(NOW_MS)

    def lease(self) -> list[Delivery]:
        return self.broker.leasing.lease(self.group, [self.topic], "ann", 10, Wishes(), NOW_MS)

    def ack(self, *deliveries: Delivery) -> Any:
        commit = self.broker.commit()
        receipts = [each.receipt for each in deliveries]
        assert self.broker.settling.ack(self.group, receipts, NOW_MS, commit) == [None] * len(
            receipts
        )
        return commit

    @property
    def state_log_end(self) -> int:
        assert self.partition.state is not None
        return self.partition.state.log.end_offset

    def opened_again(self, *, read_only: bool = False) -> Partition:
        """As this node finds it after a restart, before it leads."""
        self.sync()
        self.partition.close()
        return Partition(self.disk, self.topic, 0, NOW_MS, read_only=read_only)

    @property
    def groups(self) -> Mapping[int, Group]:
        return self.broker.topics.catalog.groups_by_id


@pytest.fixture
def pair() -> Pair:
    return Pair()


def values(partition: Partition) -> list[bytes | None]:
    return [record.value for record in partition.read([0, partition.log.end_offset])]


def state_events(partition: Partition) -> Iterator[events.Event | TransactionDecided]:
    assert partition.state is not None
    for _, event in partition.state._read(0, partition.state.log.end_offset):
        yield event


# Before it is led.


def test_a_partition_shows_nothing_before_it_is_led(pair: Pair) -> None:
    pair.append(b"0", b"1")
    pair.confirm(data_end=2)
    again = pair.opened_again()
    assert again.log.end_offset == 2
    assert (again.high_watermark, again.last_stable_offset) == (0, 0)
    assert values(again) == []
    # What is synced is no word of a leader.
    again.on_synced(NOW_MS)
    assert again.high_watermark == 0


def test_alone_a_leader_shows_all_that_it_finds(pair: Pair) -> None:
    pair.append(b"0", b"1")
    again = pair.opened_again()
    again.become_leader(9, NOW_MS)
    assert again.high_watermark == 2
    assert values(again) == [b"0", b"1"]


def test_a_partition_begins_where_records_were_deleted_to(pair: Pair) -> None:
    pair.append(b"0")
    pair.append(b"1")
    pair.sync()
    pair.partition.log.delete_before(1)
    assert pair.opened_again().high_watermark == 1


def test_whoever_only_looks_sees_all_that_is_there(pair: Pair) -> None:
    pair.append(b"0", b"1")
    again = pair.opened_again(read_only=True)
    again.load(pair.groups, NOW_MS)
    assert values(again) == [b"0", b"1"]


# The log.


@WAITS_FOR_THE_DISK
def test_the_high_watermark_stays_where_the_other_member_confirmed(durability: str) -> None:
    pair = Pair(durability=durability)
    pair.append(b"0")
    pair.append(b"1")
    pair.append(b"2")
    pair.sync()
    assert (pair.partition.log.synced_end, pair.partition.high_watermark) == (3, 0)
    pair.confirm(data_end=2)
    assert pair.partition.high_watermark == 2
    assert values(pair.partition) == [b"0", b"1"]
    assert [each.value for each in pair.lease()] == [b"0", b"1"]
    pair.confirm(data_end=3)
    assert [each.value for each in pair.lease()] == [b"2"]


def test_what_only_the_other_member_has_on_its_disk_is_not_safe(pair: Pair) -> None:
    pair.append(b"0")
    pair.confirm(data_end=1)
    assert pair.partition.high_watermark == 0
    pair.sync()
    assert pair.partition.high_watermark == 1


def test_the_high_watermark_never_goes_back(pair: Pair) -> None:
    pair.append(b"0", b"1")
    pair.sync()
    pair.confirm(data_end=2)
    pair.partition.become_leader(9, NOW_MS, Confirmed())
    pair.sync()
    assert pair.partition.high_watermark == 2


def test_a_partition_that_is_not_led_any_more_keeps_its_high_watermark(pair: Pair) -> None:
    pair.append(b"0")
    pair.other.data_end = 1
    pair.partition.resign()
    pair.sync()
    assert pair.partition.high_watermark == 0


@WAITS_FOR_THE_DISK
def test_nothing_is_answered_before_the_other_member_has_it(durability: str) -> None:
    pair = Pair(durability=durability)
    pair.append(b"0")
    commit = pair.broker.commit()
    commit.data.append((pair.partition, 1))
    pair.sync()
    assert not commit.is_done()
    pair.confirm(data_end=1)
    assert commit.is_done()


def test_after_a_restart_the_high_watermark_is_what_is_confirmed_anew(pair: Pair) -> None:
    pair.append(b"0", b"1")
    pair.append(b"2")
    again = pair.opened_again()
    other = Confirmed(data_end=2)
    again.become_leader(9, NOW_MS, other)
    again.load(pair.groups, NOW_MS)
    assert again.high_watermark == 2
    [view] = again.views.values()
    assert view.window.end == 2
    other.data_end = 3
    again.on_synced(NOW_MS)
    assert (again.high_watermark, view.window.end) == (3, 3)


# The state log.


@WAITS_FOR_THE_DISK
def test_an_ack_counts_when_the_other_member_has_it(durability: str) -> None:
    pair = Pair(durability=durability)
    pair.append(b"0")
    pair.sync()
    pair.confirm(data_end=1)
    [leased] = pair.lease()
    commit = pair.ack(leased)
    before = pair.partition.state_high_watermark
    pair.sync()
    [view] = pair.partition.views.values()
    assert pair.partition.state_high_watermark == before < pair.state_log_end
    assert not commit.is_done() and view.totals["acked"] == 0
    # Nobody else gets it meanwhile.
    assert pair.lease() == []
    pair.confirm(state_end=pair.state_log_end)
    assert commit.is_done() and view.totals["acked"] == 1


def test_the_two_logs_are_confirmed_apart(pair: Pair) -> None:
    pair.append(b"0")
    pair.sync()
    pair.confirm(data_end=1)
    assert (pair.partition.high_watermark, pair.partition.state_high_watermark) == (1, 0)
    pair.append(b"1")
    pair.sync()
    pair.confirm(state_end=pair.state_log_end)
    assert pair.partition.high_watermark == 1
    assert pair.partition.state_high_watermark == pair.state_log_end


def test_what_an_event_speaks_of_was_safe_already(pair: Pair) -> None:
    """The new leader has heard of nobody yet, and its logs are whole: nothing of them may
    be taken for lost, and nothing of what was settled comes again."""
    pair.append(b"0", b"1", b"2")
    pair.append(b"3")
    pair.sync()
    pair.confirm(data_end=3)
    first, second, _ = pair.lease()
    pair.ack(first, second)
    again = pair.opened_again()
    other = Confirmed()
    again.become_leader(9, NOW_MS, other)
    again.load(pair.groups, NOW_MS)
    assert not any(isinstance(event, events.Cut) for event in state_events(again))
    assert again.high_watermark == 3
    [view] = again.views.values()
    assert (view.totals["acked"], view.window.start, view.window.end) == (2, 2, 3)
    other.data_end = 4
    again.on_synced(NOW_MS)
    assert (again.high_watermark, view.window.end) == (4, 4)


def test_a_delay_that_is_not_safe_when_a_leader_begins_ends_in_time(pair: Pair) -> None:
    pair.append(b"0")
    pair.append(b"late", delay_ms=500)
    again = pair.opened_again()
    other = Confirmed(data_end=1)
    again.become_leader(9, NOW_MS, other)
    again.load(pair.groups, NOW_MS)
    other.data_end = 2
    again.on_synced(NOW_MS)
    [view] = again.views.values()
    assert sum(view.ready()) == 1
    again.end_delays(NOW_MS + 501)
    assert sum(view.ready()) == 2
