"""Group commit: who carries calls out, who waits, and what interrupts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.core.errors import FencedLeader, SyncFailed, UnknownTopic
from headrace.core.ports import File
from headrace.core.values import Outgoing
from headrace.node import Node
from headrace.platform.memory_disk import MemoryDisk

TIMEOUT_SECONDS = 30


class Gate:
    """Stops syncs of message data until it is opened, and counts them."""

    def __init__(self) -> None:
        self.is_closed = False
        self.reached = threading.Semaphore(0)
        self.opened = threading.Semaphore(0)
        self.error: BaseException | None = None
        self.syncs = 0

    def pass_through(self) -> None:
        self.syncs += 1
        if self.is_closed:
            self.reached.release()
            assert self.opened.acquire(timeout=TIMEOUT_SECONDS)
        error, self.error = self.error, None
        if error is not None:
            raise error


class GatedFile:
    def __init__(self, file: File, gate: Gate) -> None:
        self._file = file
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._gate.pass_through()
        self._file.sync()


class GatedDisk(MemoryDisk):
    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    def open(
        self, path: str, *, create: bool = False, read_only: bool = False, note: bool = False
    ) -> Any:
        file = super().open(path, create=create, read_only=read_only, note=note)
        return GatedFile(file, self._gate) if path.startswith("topics/") else file


class Caller(threading.Thread):
    """Makes one call in a thread of its own, and keeps its answer."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.answer: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:
            self.error = error

    def finish(self) -> Any:
        self.join(TIMEOUT_SECONDS)
        assert not self.is_alive(), "the call never ended"
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def node(gate: Gate) -> Iterator[Node]:
    node = Node.open(":memory:", disk=GatedDisk(gate))
    node.create_topic("orders", partitions=1)
    node.publish("orders", [Outgoing(b"the first, which makes the files")])
    gate.syncs = 0
    yield node
    node.close()


def publish(node: Node, topic: str = "orders") -> Caller:
    return Caller(lambda: node.publish(topic, [Outgoing(b"x")]))


def begin_round(node: Node, gate: Gate) -> Caller:
    """Somebody whose sync is under way, and does not end yet."""
    gate.is_closed = True
    leader = publish(node)
    assert gate.reached.acquire(timeout=TIMEOUT_SECONDS)
    return leader


def wait_until_queued(node: Node, count: int) -> None:
    queue = node._commits._queue
    turn = threading.Event()
    for _ in range(TIMEOUT_SECONDS * 1000):
        if len(queue) >= count:
            return
        turn.wait(0.001)
    raise AssertionError(f"{len(queue)} calls are queued instead of {count}")


def test_calls_that_come_during_a_round_share_the_next_one(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    others = [publish(node) for _ in range(5)]
    wait_until_queued(node, 5)
    gate.is_closed = False
    gate.opened.release()
    offsets = sorted(caller.finish()[0].offset for caller in [leader, *others])
    assert offsets == [1, 2, 3, 4, 5, 6]
    assert gate.syncs == 2


def test_nobody_is_answered_before_the_sync(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    assert leader.is_alive()
    assert node.topic("orders").partitions[0].high_watermark == 1
    gate.is_closed = False
    gate.opened.release()
    leader.finish()
    assert node.topic("orders").partitions[0].high_watermark == 2


def test_what_needs_no_sync_does_not_wait_for_one(node: Node, gate: Gate) -> None:
    node.create_topic("hints", partitions=1, settings={"durability": "os"})
    leader = begin_round(node, gate)
    assert publish(node, "hints").finish()[0].offset == 0
    assert leader.is_alive()
    gate.is_closed = False
    gate.opened.release()
    leader.finish()


def test_an_error_reaches_its_own_caller_alone(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    wrong = publish(node, "absent")
    right = publish(node)
    wait_until_queued(node, 2)
    gate.is_closed = False
    gate.opened.release()
    assert leader.finish() and right.finish()
    with pytest.raises(UnknownTopic):
        wrong.finish()


def test_a_failed_sync_fails_everybody_and_is_not_repeated(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    waiting = publish(node)
    wait_until_queued(node, 1)
    gate.error = OSError(5, "Input/output error")
    gate.is_closed = False
    gate.opened.release()
    for caller in (leader, waiting):
        with pytest.raises(SyncFailed):
            caller.finish()
    assert gate.syncs == 1
    with pytest.raises(SyncFailed):
        node.publish("orders", [Outgoing(b"x")])
    assert gate.syncs == 1


def test_an_interrupted_leader_leaves_the_round_to_another(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    waiting = publish(node)
    wait_until_queued(node, 1)
    gate.error = KeyboardInterrupt()
    gate.is_closed = False
    gate.opened.release()
    with pytest.raises(KeyboardInterrupt):
        leader.finish()
    assert waiting.finish()[0].offset == 2
    assert node.publish("orders", [Outgoing(b"x")])[0].offset == 3


def test_an_interrupt_while_working_for_others_is_the_leaders_own(
    node: Node, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = begin_round(node, gate)
    others = [publish(node) for _ in range(3)]
    wait_until_queued(node, 3)
    publisher = node._broker.publisher
    honest = publisher.publish
    interrupts = [KeyboardInterrupt()]

    def interrupted(*arguments: Any) -> Any:
        if interrupts:
            raise interrupts.pop()
        return honest(*arguments)

    monkeypatch.setattr(publisher, "publish", interrupted)
    gate.is_closed = False
    gate.opened.release()
    leader.finish()
    answers: list[Any] = []
    errors: list[BaseException] = []
    for caller in others:
        try:
            answers.append(caller.finish())
        except BaseException as error:
            errors.append(error)
    # It hit the one who led, whose own call was the first to be carried out.
    assert [type(error) for error in errors] == [KeyboardInterrupt]
    assert len(answers) == 2


def test_waiting_for_a_topic_ends_when_it_is_deleted(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    deleting = Caller(lambda: node.delete_topic("orders"))
    with pytest.raises(UnknownTopic):
        leader_outcome(leader, gate, node)
    deleting.finish()
    assert node.topics() == []


def test_waiting_for_a_partition_fails_when_another_node_leads_it(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    waiting = publish(node)
    wait_until_queued(node, 1)
    topics = node._broker.topics
    with node._lock:
        node._broker.leading.resign(topics.partition(topics.named("orders"), 0))
    gate.is_closed = False
    gate.opened.release()
    for caller in (leader, waiting):
        with pytest.raises(FencedLeader):
            caller.finish()
    assert node.create_topic("others", partitions=1) is not None
    assert publish(node, "others").finish()[0].offset == 0


def leader_outcome(leader: Caller, gate: Gate, node: Node) -> Any:
    """Let the round go on once the topic is gone from the catalog."""
    turn = threading.Event()
    while node.topics():
        turn.wait(0.001)
    gate.is_closed = False
    gate.opened.release()
    return leader.finish()
