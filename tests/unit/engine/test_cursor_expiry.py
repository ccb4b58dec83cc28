"""Positions of groups that nobody reads as, and names that mean one kind of group."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from headrace.core.errors import CorruptBatch, GroupKindMismatch
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.engine.catalog import Topic
from headrace.engine.cursor import Commitment
from headrace.engine.cursor_expiry import CursorExpiry
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch, read_header
from headrace.record.batch import HEADER_BYTES

WEEK_MS = 7 * 24 * 3_600_000
CRC_AT, CHECKED_FROM = 17, 21


class Bench:
    def __init__(self) -> None:
        self.broker = Broker(MemoryDisk(), SystemEntropy(), 1)
        self.topic: Topic = self.broker.topics.create("orders", 2, TopicSettings(), 1)
        self.expiry = CursorExpiry(self.broker.cursors, WEEK_MS)
        self.active: set[str] = set()

    def commit(self, group: str, index: int, now_ms: int) -> None:
        self.broker.cursors.commit(group, {(self.topic.id, index): Commitment(5)}, now_ms)
        self.sync(now_ms)

    def sync(self, now_ms: int) -> None:
        done = self.broker.begin_sync(list(self.broker.topics))
        self.broker.on_synced(done, now_ms)

    def tick(self, now_ms: int) -> None:
        self.expiry.tick(now_ms, self.active)
        self.sync(now_ms)

    def kept(self, group: str) -> list[int]:
        return sorted(index for _, index in self.broker.cursors.of(group))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_positions_go_when_their_group_had_no_members_for_long_enough(bench: Bench) -> None:
    bench.commit("readers", 0, 1_000)
    bench.tick(2_000)
    bench.tick(2_000 + WEEK_MS - 1)
    assert bench.kept("readers") == [0]
    bench.tick(2_000 + WEEK_MS)
    assert bench.kept("readers") == []


def test_a_later_commit_lasts_longer(bench: Bench) -> None:
    bench.commit("tools", 0, 1_000)
    bench.tick(1_000)
    bench.commit("tools", 1, 5_000)
    bench.tick(1_000 + WEEK_MS)
    assert bench.kept("tools") == [1]
    bench.tick(5_000 + WEEK_MS)
    assert bench.kept("tools") == []


def test_a_group_with_members_keeps_everything(bench: Bench) -> None:
    bench.commit("readers", 0, 1_000)
    bench.active = {"readers"}
    bench.tick(1_000)
    bench.tick(1_000 + 5 * WEEK_MS)
    assert bench.kept("readers") == [0]
    # From the moment that it has none, the time begins.
    bench.active = set()
    bench.tick(1_000 + 6 * WEEK_MS)
    assert bench.kept("readers") == [0]
    bench.tick(1_000 + 7 * WEEK_MS)
    assert bench.kept("readers") == []


def test_members_of_the_sdk_count(bench: Bench) -> None:
    bench.commit("readers", 0, 1_000)
    bench.broker.cursors.join("readers", "m", ["orders"], "earliest")
    bench.tick(1_000)
    bench.tick(1_000 + 2 * WEEK_MS)
    assert bench.kept("readers") == [0]


def test_a_name_with_committed_offsets_is_no_queue(bench: Bench) -> None:
    bench.commit("readers", 0, 1_000)
    with pytest.raises(GroupKindMismatch, match="reads as a stream"):
        bench.broker.groups.open("readers", [bench.topic], {}, 1, bench.broker.commit())


def test_an_offset_that_is_on_its_way_to_the_disk_counts_as_well(bench: Bench) -> None:
    bench.broker.cursors.commit("readers", {(bench.topic.id, 0): Commitment(5)}, 1)
    with pytest.raises(GroupKindMismatch):
        bench.broker.groups.open("readers", [bench.topic], {}, 1, bench.broker.commit())


def test_a_queue_commits_no_offsets(bench: Bench) -> None:
    bench.broker.groups.open("workers", [bench.topic], {}, 1, bench.broker.commit())
    with pytest.raises(GroupKindMismatch, match="reads as a queue"):
        bench.broker.cursors.commit("workers", {(bench.topic.id, 0): Commitment(5)}, 1)


def test_a_topic_that_finds_duplicates_stores_nothing_that_it_cannot_read() -> None:
    broker = Broker(MemoryDisk(), SystemEntropy(), 1)
    topic = broker.topics.create("once", 1, TopicSettings(dedup=True), 1)
    partition = broker.topics.partition(topic, 0)
    batch = bytearray(build_batch([NewRecord(None, b"v" * 50)]))
    # A length that leads out of the batch, under a checksum that is right.
    batch[HEADER_BYTES] = 0x7F
    batch[CRC_AT:CHECKED_FROM] = crc32c(bytes(batch[CHECKED_FROM:])).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        partition.append(batch, read_header(batch), 1)
    assert partition.log.end_offset == 0
    good = build_batch([NewRecord(None, b"v")])
    assert partition.append(good, read_header(good), 1).first_offset == 0
