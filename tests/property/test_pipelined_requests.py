"""A client that sends requests without waiting is answered as if it had waited for each.

Two worlds that are alike get the same requests on one connection: the first all at once,
on a disk that takes its time, the second one by one. Every answer is the same in both,
also where the first connection has used its share of the loop and stands in line with others.
The rule is in server/kafka/turns.py. Where a connection is cut, which is all that a
failed Produce without acks can cause, answers that were not sent yet are lost with it.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import product
from math import gcd
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.api_requests import (
    CLASSIC,
    MODERN,
    OLD,
    PAYING,
    POLL_WAIT_MS,
    RECORD_MS,
    SHARE,
    SPARE,
    STREAMS,
    TOPIC,
    Ask,
    Standing,
    ask,
    batch,
    produce,
    requests,
)
from tests.unit.server.asking import ManualLoop
from tests.unit.server.connected import Line, feed
from tests.unit.server.rich_shares import make_poor, make_poorest, make_rich

from headrace.core.node_settings import NodeSettings
from headrace.core.ports import File
from headrace.core.settings import TopicSettings
from headrace.engine.broker import Broker
from headrace.platform.memory_disk import MemoryContent, MemoryDisk, MemoryFile
from headrace.record import NewRecord, build_batch
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.door import Door
from headrace.server.kafka.errors import Error
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.service import Service
from headrace.testing import ManualClock
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.frame import decode_response_header, encode_request_frame
from headrace.wire.kafka.generated import (
    consumer_group_heartbeat_request,
    init_producer_id_request,
    join_group_request,
    offset_commit_request,
    share_fetch_request,
    share_group_heartbeat_request,
    streams_group_heartbeat_request,
    sync_group_request,
)

START = datetime.fromtimestamp(RECORD_MS / 1000, UTC)
# What an engine that handled requests at once would have time for.
TURNS = 20


LABELS = [each.label for each in requests(Standing(bytes(16), "", "", 0, 0))]
COUNT = len(LABELS)


class SlowFile(MemoryFile):
    def __init__(self, path: str, content: MemoryContent, read_only: bool, gate: Gate) -> None:
        super().__init__(path, content, read_only)
        self._gate = gate

    def sync(self) -> None:
        self._gate.wait()
        super().sync()


class Gate:
    """Syncs of other threads wait while it is shut."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self._loop_thread = threading.current_thread()

    def wait(self) -> None:
        if threading.current_thread() is not self._loop_thread:
            self.is_open.wait()


class SlowDisk(MemoryDisk):
    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def _handle(self, path: str, content: MemoryContent, read_only: bool) -> File:
        return SlowFile(path, content, read_only, self._gate)


class SeededEntropy:
    def __init__(self) -> None:
        self._chance = random.Random(12)

    def random_bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)


class World:
    """A node with something in it, and one connection."""

    def __init__(self, make_shares: Callable[[], None]) -> None:
        self.gate = Gate()
        disk, entropy = SlowDisk(self.gate), SeededEntropy()
        clock = ManualClock(START, autoskip=False)
        self.broker = Broker(disk, entropy, clock.now_ms())
        make_shares()
        self.service = Service(self.broker, disk, clock, entropy, node_id=1, cluster_id="c")
        self.door = Door(self.service, NodeSettings(data=".", rebalance_delay_ms=0), HANDLERS)
        self.connection, self.line = Connection(self.door), Line()
        self.connection.connection_made(self.line)
        self._number = 0

    async def close(self) -> None:
        self.gate.is_open.set()
        self.connection.connection_lost(None)
        await self.door.close(0)
        await self.service.close()
        self.broker.close()

    async def furnish(self) -> Standing:
        now_ms = self.service.clock.now_ms()
        topics = self.broker.topics
        topic = topics.create(TOPIC, 2, TopicSettings(), now_ms)
        topics.create(SPARE, 1, TopicSettings(), now_ms)
        wanted = {"start": "earliest", "backoff_ms": 0}
        self.broker.groups.open(SHARE, [], wanted, now_ms, self.service.commit())
        values = [NewRecord(None, b"%d" % number, (), RECORD_MS) for number in range(6)]
        await self.ask(produce(bytes(build_batch(values))))
        await self._commit_old_offset()
        classic = await self._join_classic()
        modern = await self._join_modern()
        await self._join_streams()
        await self._join_share(topic.id)
        made = await self.ask(
            ask("InitProducerId", init_producer_id_request.InitProducerIdRequest(PAYING, 60_000))
        )
        who = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
        paid = batch(base_sequence=0, transactional=True, **who)
        await self.ask(produce(paid, 1, name=PAYING))
        return Standing(topic.id, classic, modern, **who)

    async def _commit_old_offset(self) -> None:
        commit = offset_commit_request
        topic = commit.OffsetCommitRequestTopic(
            TOPIC, partitions=(commit.OffsetCommitRequestPartition(0, 1),)
        )
        await self.ask(ask("OffsetCommit", commit.OffsetCommitRequest(OLD, topics=(topic,)), 9))

    async def _join_classic(self) -> str:
        protocols = (join_group_request.JoinGroupRequestProtocol("range", b"some"),)
        options = (None, "consumer", protocols)
        request = join_group_request.JoinGroupRequest(CLASSIC, 30_000, 30_000, "", *options)
        member: str = (await self.ask(ask("JoinGroup", request, 3))).member_id
        assignment = sync_group_request.SyncGroupRequestAssignment(member, b"mine")
        await self.ask(
            ask(
                "SyncGroup",
                sync_group_request.SyncGroupRequest(
                    CLASSIC, 1, member, None, "consumer", "range", (assignment,)
                ),
            )
        )
        return member

    async def _join_modern(self) -> str:
        answer = await self.ask(
            ask(
                "ConsumerGroupHeartbeat",
                consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(
                    MODERN, "modern-member", 0, rebalance_timeout_ms=30_000,
                    subscribed_topic_names=(TOPIC,), topic_partitions=(),
                ),
            )
        )  # fmt: skip
        member: str = answer.member_id
        return member

    async def _join_streams(self) -> None:
        beating = streams_group_heartbeat_request
        topology = beating.Topology(0, (beating.Subtopology("0", (TOPIC,)),))
        await self.ask(
            ask(
                "StreamsGroupHeartbeat",
                beating.StreamsGroupHeartbeatRequest(
                    STREAMS, "streams-member", 0, rebalance_timeout_ms=30_000, topology=topology
                ),
            )
        )

    async def _join_share(self, topic_id: bytes) -> None:
        beating = share_group_heartbeat_request
        beat = beating.ShareGroupHeartbeatRequest(SHARE, "m", 0, None, (TOPIC,))
        await self.ask(ask("ShareGroupHeartbeat", beat))
        fetching = share_fetch_request
        topic = fetching.FetchTopic(topic_id, (fetching.FetchPartition(0),))
        opening = fetching.ShareFetchRequest(SHARE, "m", 0, 0, 1, 1 << 20, 1, 1, 1, topics=(topic,))
        answer = await self.ask(ask("ShareFetch", opening))
        assert answer.responses[0].partitions[0].acquired_records, answer

    # Asking.

    def send(self, asked: Sequence[Ask]) -> None:
        data = b""
        for each in asked:
            self._number += 1
            body = encode_request(each.key, each.version, each.request)
            data += b"".join(
                encode_request_frame(each.key, each.version, self._number, "app", body)
            )
        feed(self.connection, data)

    async def ask(self, asked: Ask) -> Any:
        [answer] = await self.one_by_one([asked])
        return answer

    async def one_by_one(self, asked: Sequence[Ask]) -> list[Any]:
        answers = []
        for each in asked:
            if not self.line.ended:
                self.send([each])
                answers += await self._answers([each])
        return answers

    async def all_at_once(self, asked: Sequence[Ask]) -> list[Any]:
        self.gate.is_open.clear()
        self.send(asked)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.gate.is_open.set()
        return await self._answers(asked)

    def _is_busy(self) -> bool:
        """Requests are open, or wait for their turn."""
        return not self.connection.is_idle or not self.line.is_reading_now

    async def _answers(self, asked: Sequence[Ask]) -> list[Any]:
        expected = [each for each in asked if each.has_answer]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualLoop)
        turns = 0
        while len(found := self.line.frames()) < len(expected) or self._is_busy():
            if self.line.ended:
                return [_decode(*each) for each in zip(expected, found, strict=False)]
            turns += 1
            if turns % TURNS == 0 and self.service.commits.is_idle and self.connection.polls:
                # Nothing but time ends what waits for data now.
                loop.skipped_seconds += POLL_WAIT_MS / 1000
            await asyncio.sleep(0)
        self.line.sent = b""
        return [_decode(each, answer) for each, answer in zip(expected, found, strict=True)]


def _decode(asked: Ask, answer: bytes) -> Any:
    _, at = decode_response_header(asked.key, asked.version, answer)
    return decode_response(asked.key, asked.version, answer, at)


# How much of the loop is left for a connection that sends all at once.
ACCOUNTS = (make_rich, make_poor, make_poorest)


def check(*numbers: int, account: Callable[[], None] = make_rich) -> None:
    """That these requests are answered alike, sent at once on a connection with such an account
    and one by one on a rich one."""

    async def play(*, at_once: bool) -> tuple[list[Any], str | None]:
        world = World(account if at_once else make_rich)
        try:
            known = requests(await world.furnish())
            ask_for = world.all_at_once if at_once else world.one_by_one
            answers = await ask_for([known[number] for number in numbers])
            # Nothing stands behind the polls that come next.
            assert not world.connection.is_hurried or world.line.ended, labels
            return answers, world.line.ended
        finally:
            await world.close()

    labels = [LABELS[number] for number in numbers], account
    with asyncio.Runner(loop_factory=ManualLoop) as runner:
        pipelined, is_cut = runner.run(play(at_once=True))
        waited, is_cut_too = runner.run(play(at_once=False))
    assert is_cut == is_cut_too, labels
    if is_cut:
        waited = waited[: len(pipelined)]
    alike = _count_before_abort(waited)
    assert pipelined[:alike] == waited[:alike], labels


def _count_before_abort(answers: list[Any]) -> int:
    """How many answers there are up to the one that says that a transaction is being aborted.
    That goes on after the answer, and what is asked next may see it done or not."""
    for number, answer in enumerate(answers, 1):
        if getattr(answer, "error_code", 0) == Error.CONCURRENT_TRANSACTIONS:
            return number
    return len(answers)


def test_every_api_is_among_the_requests() -> None:
    asked = requests(Standing(bytes(16), "", "", 0, 0))
    assert {each.key for each in asked} == set(HANDLERS)
    assert len({each.label for each in asked}) == len(asked)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("OffsetCommit", "OffsetFetch"),
        ("Produce", "ListOffsets of the end"),
        ("Produce without acks", "ListOffsets of the end"),
        ("Produce", "Fetch"),
        ("Produce in a transaction", "Produce"),
        ("DeleteRecords", "ListOffsets of the start"),
        ("DeleteTopics", "Metadata"),
        ("CreateTopics", "Metadata"),
        ("EndTxn", "OffsetFetch"),
        ("ShareAcknowledge", "ShareFetch"),
        ("Fetch that waits", "Produce"),
    ],
)
def test_a_request_sees_what_the_one_before_it_changed(first: str, second: str) -> None:
    check(LABELS.index(first), LABELS.index(second))


@pytest.mark.parametrize("account", ACCOUNTS)
def test_a_poll_that_ended_for_a_request_behind_it_hurries_no_other(
    account: Callable[[], None],
) -> None:
    check(LABELS.index("Fetch that waits"), LABELS.index("Metadata"), account=account)


@given(st.lists(st.integers(0, COUNT - 1), min_size=2, max_size=12), st.sampled_from(ACCOUNTS))
def test_requests_sent_at_once_are_answered_as_if_sent_one_by_one(
    numbers: list[int], account: Callable[[], None]
) -> None:
    check(*numbers, account=account)


def pairs(examples: int) -> list[tuple[int, int]]:
    """Of requests: all that there are from 2,000 examples on, otherwise some, in which each
    request is the first one and the second one."""
    step = max(1, 2_000 // examples)
    # With a factor in common with the number of requests, some would never be the second.
    while gcd(step, COUNT) > 1:
        step += 1
    return list(product(range(COUNT), range(COUNT)))[::step]


@pytest.mark.parametrize("profile", ["fast", "ci", "long"])
def test_every_request_is_the_first_and_the_second_of_a_pair_in_every_run(profile: str) -> None:
    chosen = pairs(settings.get_profile(profile).max_examples)
    assert {first for first, _ in chosen} == set(range(COUNT))
    assert {second for _, second in chosen} == set(range(COUNT))
    assert {account_of(*pair) for pair in chosen} == set(ACCOUNTS)


def account_of(first: int, second: int) -> Callable[[], None]:
    return ACCOUNTS[(first + second) % len(ACCOUNTS)]


def test_every_pair_of_apis_is_answered_as_if_the_second_had_waited() -> None:
    """All of them in `make properties`; otherwise some, spread over the APIs."""
    assert settings.default is not None
    for pair in pairs(settings.default.max_examples):
        check(*pair, account=account_of(*pair))
