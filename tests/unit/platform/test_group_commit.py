"""Group commit: who carries calls out, who waits, and what interrupts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.gated_disk import TIMEOUT_SECONDS, Gate, GatedDisk

from headrace.core.errors import FencedLeader, UnknownTopic
from headrace.core.values import Outgoing
from headrace.node import Node


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
    gate.close()
    leader = publish(node)
    gate.wait_until_reached()
    return leader


def wait_until_queued(node: Node, count: int) -> None:
    queue = node._commits._queue
    turn = threading.Event()
    for _ in range(TIMEOUT_SECONDS * 1000):
        if len(queue) >= count:
            return
        turn.wait(0.001)
    raise AssertionError(f"{len(queue)} calls are queued instead of {count}")


def test_what_needs_no_sync_does_not_wait_for_one(node: Node, gate: Gate) -> None:
    node.create_topic("hints", partitions=1, settings={"durability": "os"})
    leader = begin_round(node, gate)
    assert publish(node, "hints").finish()[0].offset == 0
    assert leader.is_alive()
    gate.open()
    leader.finish()


def test_an_error_reaches_its_own_caller_alone(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    wrong = publish(node, "absent")
    right = publish(node)
    wait_until_queued(node, 2)
    gate.open()
    assert leader.finish() and right.finish()
    with pytest.raises(UnknownTopic):
        wrong.finish()


def test_an_interrupted_leader_leaves_the_round_to_another(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    waiting = publish(node)
    wait_until_queued(node, 1)
    gate.error = KeyboardInterrupt()
    gate.open()
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
    gate.open()
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


def test_a_sync_that_fails_in_an_interrupted_round_is_not_repeated(node: Node, gate: Gate) -> None:
    node.create_topic("bills", partitions=1)
    node.publish("bills", [Outgoing(b"x")])
    leader = begin_round(node, gate)
    others = [publish(node, "orders"), publish(node, "bills")]
    wait_until_queued(node, 2)

    def pass_through() -> None:
        if threading.current_thread().name.startswith("headrace-sync"):
            raise OSError(5, "Input/output error")
        raise KeyboardInterrupt

    # The next round has two files, one of them for the pool.
    gate.pass_through = pass_through  # type: ignore[method-assign]
    gate.open()
    leader.finish()
    errors = []
    for other in others:
        try:
            other.finish()
        except BaseException as error:
            errors.append(type(error))
    # One of them led, and was interrupted.
    assert sorted(error.__name__ for error in errors) == ["KeyboardInterrupt", "SyncFailed"]
    assert node._commits.failed is not None


def test_waiting_for_a_partition_fails_when_another_node_leads_it(node: Node, gate: Gate) -> None:
    leader = begin_round(node, gate)
    waiting = publish(node)
    wait_until_queued(node, 1)
    topics = node._broker.topics
    with node._lock:
        node._broker.leading.resign(topics.partition(topics.named("orders"), 0))
    gate.open()
    for caller in (leader, waiting):
        with pytest.raises(FencedLeader):
            caller.finish()
    assert node.create_topic("others", partitions=1) is not None
    assert publish(node, "others").finish()[0].offset == 0
