"""A connection that is open and silent is given up, over either link: a proxy that takes
everything and passes nothing on, a node that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from tests.contract.cut_proxy import CutProxy
from tests.contract.loop_node import SETTINGS, LoopNode

import headrace
from headrace import testing
from headrace.core.errors import Disconnected, InvalidArgument
from headrace.platform.clock import SystemClock

HOURS = 6 * 3600
WAIT = 60
# Long enough for a node that is busy to say something.
SILENCE_SECONDS = 4


@pytest.fixture
def node() -> Iterator[LoopNode]:
    running = LoopNode(testing.MemoryDisk(), SystemClock(), ("kafka", "grpc"), SETTINGS)
    yield running
    running.close()


@pytest.fixture
def handle(url: str) -> Iterator[headrace.Headrace]:
    with headrace.connect(url, timeout=SILENCE_SECONDS, retry=WAIT) as connected:
        yield connected


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_what_is_safe_is_sent_again_and_of_all_else_the_caller_is_told(
    handle: headrace.Headrace, proxy: CutProxy, door: str
) -> None:
    topic = f"silent-{door}"
    handle.create_topic(topic, 1)
    handle.publish(topic, "one")
    with handle.queue(topic, visibility=HOURS) as queue, handle.producer(timeout=WAIT) as producer:
        [message] = queue.receive(1, wait=WAIT)
        producer.publish(topic, "two").result()
        proxy.swallow()
        calls = {
            "ack": in_thread(message.ack),
            "look": in_thread(lambda: handle.topic(topic).name),
            "produce": in_thread(lambda: producer.publish(topic, "three").result().offset),
            "publish": in_thread(lambda: handle.publish(topic, "four")),
        }
        for thread, _ in calls.values():
            thread.join(WAIT)
        found = {name: outcome for name, (_, outcome) in calls.items()}
        assert found["ack"] == [None] and found["look"] == [topic] and found["produce"] == [2]
        [error] = found["publish"]
        assert isinstance(error, Disconnected) and error.retriable
        assert "not known" in str(error)
        # Acked over the new connection, by the receipt of before.
        assert [each.value for each in queue.receive(3, wait=WAIT)] == ["two", "three"]


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
def test_a_timeout_is_some_time(timeout: object) -> None:
    with pytest.raises(InvalidArgument):
        headrace.connect("127.0.0.1:1", timeout=timeout)  # type: ignore[arg-type]
