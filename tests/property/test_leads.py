"""Whatever calls are made while the leads of a topic and of its dead letters come and go:
what was answered as done stays done."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.conftest import copy_of
from tests.unit.engine.second_node import CHANGES, Stage, named
from tests.unit.engine.transaction_bench import START_MS, TOPIC

from headrace.core.errors import FencedLeader
from headrace.core.settings import TopicSettings
from headrace.core.values import Delivery, MessageId, Outgoing
from headrace.engine.broker import Broker
from headrace.engine.commit import Commit
from headrace.engine.leasing import Wishes
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk

GROUP, LETTERS = "workers", TOPIC + ".dlq"

acts = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 3)),
    st.tuples(st.sampled_from(("lease", "ack", "reject")), st.integers(1, 3)),
    st.tuples(st.sampled_from(("sync", "begin to sync", "wait")), st.just(0)),
    st.tuples(st.sampled_from(CHANGES), st.integers(0, 1)),
    st.tuples(st.just("give back"), st.just(0)),
)


class Play:
    def __init__(self) -> None:
        self.stage = stage = Stage()
        self.broker = broker = stage.broker
        topic = broker.topics.create(TOPIC, 1, TopicSettings(), stage.now_ms)
        commit = broker.commit()
        settings = {"start": "earliest", "leases_per_consumer_max": 100_000}
        self.group = broker.groups.open(GROUP, [topic], settings, stage.now_ms, commit)
        self.topic = topic
        self.partitions = [named(stage, TOPIC)]
        broker.groups.dead_letters(topic, stage.now_ms)
        self.partitions.append(named(stage, LETTERS))
        stage.settle()
        # Calls that are not answered yet, and what is true once they are.
        self.under_way: list[tuple[Commit, Callable[[], None]]] = []
        self.held: list[Delivery] = []
        self.published: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.rejected: set[int] = set()
        # What may have been rejected, though nobody was told.
        self.tried: set[int] = set()
        self._number = 0

    def act(self, name: str, count: int) -> None:
        stage = self.stage
        try:
            if name == "publish":
                self.publish(count)
            elif name == "lease":
                self.lease(count)
            elif name in ("ack", "reject"):
                self.settle(count, is_reject=name == "reject")
            elif name == "sync":
                stage.sync()
            elif name == "begin to sync":
                stage.sync(lambda: self.publish(1) if self.partitions[0].is_leader else None)
            elif name == "wait":
                stage.now_ms += 100_000
            elif name == "give back":
                stage.give_back()
            elif self.partitions[count].is_leader:
                stage.take(self.partitions[count], name)  # type: ignore[arg-type]
        except FencedLeader:
            assert not all(each.is_leader for each in self.partitions)
        self.hear()
        self.look()

    def publish(self, count: int) -> None:
        commit, values = self.broker.commit(), []
        for _ in range(count):
            self._number += 1
            values.append(b"%d" % self._number)
        messages = [Outgoing(value) for value in values]
        placed = self.broker.publisher.publish(self.topic, messages, self.stage.now_ms, commit)
        offsets = [each.offset for each in placed]

        def on_done() -> None:
            self.published.update(zip(offsets, values, strict=True))

        self.wait_for(commit, on_done)

    def lease(self, count: int) -> None:
        broker, now_ms = self.broker, self.stage.now_ms
        found = broker.leasing.lease(self.group, [self.topic], "ann", count, Wishes(), now_ms)
        done = self.acked | self.rejected
        assert not [each.offset for each in found if each.offset in done]
        assert all(self.published.get(each.offset, each.value) == each.value for each in found)
        self.held += found

    def settle(self, count: int, *, is_reject: bool) -> None:
        taken, self.held = self.held[:count], self.held[count:]
        receipts, commit = [each.receipt for each in taken], self.broker.commit()
        settling, now_ms = self.broker.settling, self.stage.now_ms
        if is_reject:
            outcomes = settling.reject(self.group, receipts, None, now_ms, commit)
        else:
            outcomes = settling.ack(self.group, receipts, now_ms, commit)
        settled = {
            each.offset for each, outcome in zip(taken, outcomes, strict=True) if outcome is None
        }
        if is_reject:
            self.tried |= settled
        target = self.rejected if is_reject else self.acked
        self.wait_for(commit, lambda: target.update(settled))

    def wait_for(self, commit: Commit, on_done: Callable[[], None]) -> None:
        commit.seal()
        self.under_way.append((commit, on_done))

    def hear(self) -> None:
        left = []
        for commit, on_done in self.under_way:
            if commit.is_done():
                on_done()
            elif commit.failure() is None:
                left.append((commit, on_done))
        self.under_way = left

    def look(self) -> None:
        partition = self.partitions[0]
        assert all(offset < partition.high_watermark for offset in self.published)
        if partition.is_leader:
            for offset in self.acked:
                assert self.state_of(self.broker, offset) == "acked"
            for offset in self.rejected:
                assert self.state_of(self.broker, offset) == "dead-lettered"

    def state_of(self, broker: Broker, offset: int) -> str:
        return broker.status(MessageId(TOPIC, 0, offset), self.group).state

    def check(self, broker: Broker) -> None:
        """When everything is at rest and led here."""
        topics = broker.topics
        partition = topics.partition(topics.named(TOPIC), 0)
        stored = {each.offset: each.value for each in partition.read([0, partition.log.end_offset])}
        assert self.published.items() <= stored.items()
        for offset in self.acked:
            assert self.state_of(broker, offset) == "acked"
        letters = topics.partition(topics.named(LETTERS), 0)
        values = [each.value for each in letters.read([0, letters.log.end_offset])]
        for offset in self.rejected | self.tried:
            # Once, whoever copied it; and never if it goes on where it was.
            expected = self.state_of(broker, offset) == "dead-lettered"
            assert expected or offset not in self.rejected
            assert values.count(stored[offset]) == expected or stored[offset] == b"theirs"


@given(st.lists(acts, max_size=60))
def test_what_was_answered_as_done_stays_done(made: list[tuple[str, int]]) -> None:
    play = Play()
    for name, count in made:
        play.act(name, count)
    play.stage.give_back()
    play.stage.settle()
    play.hear()
    assert not play.under_way
    play.look()
    play.check(play.broker)
    assert isinstance(play.stage.disk, MemoryDisk)
    again = Broker(copy_of(play.stage.disk), SystemEntropy(), START_MS + 10**9)
    play.check(again)
