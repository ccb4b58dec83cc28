"""The two drivers of group commit, each below the calls that its callers make.

threads    a handle in this process: one of the callers syncs for all
loop       a node on an event loop, without a door
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from tests.gated_disk import TIMEOUT_SECONDS, Gate, GatedDisk

from headrace.calls import Face
from headrace.core.errors import SyncFailed
from headrace.core.values import Outgoing, Published
from headrace.engine.broker import Broker
from headrace.node import Node
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.server.loop_calls import Calls
from headrace.server.service import Service

T = TypeVar("T")
CALLERS = 16


class Driver(Protocol):
    broker: Broker

    def call(self, method: Callable[..., T], *given: Any, **named: Any) -> Future[T]:
        """A call of the face, which is under way."""
        ...

    def count_unanswered(self) -> int: ...

    def failed(self) -> SyncFailed | None: ...

    def close(self) -> None: ...


class ThreadsDriver:
    def __init__(self, gate: Gate) -> None:
        self._node = Node.open(":memory:", disk=GatedDisk(gate))
        self._callers = ThreadPoolExecutor(CALLERS)
        self.broker = self._node._broker

    def call(self, method: Callable[..., T], *given: Any, **named: Any) -> Future[T]:
        return self._callers.submit(method, self._node, *given, **named)

    def count_unanswered(self) -> int:
        commits = self._node._commits
        return len(commits._queue) + len(commits._rounds.waiting)

    def failed(self) -> SyncFailed | None:
        return self._node._commits.failed

    def close(self) -> None:
        self._callers.submit(self._node.close).result(TIMEOUT_SECONDS)
        self._callers.shutdown()


class LoopDriver:
    def __init__(self, gate: Gate) -> None:
        self._disk = GatedDisk(gate)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._calls = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()

    async def _open(self) -> Calls:
        clock, entropy = SystemClock(), SystemEntropy()
        self.broker = Broker(self._disk, entropy, clock.now_ms())
        self._service = Service(self.broker, self._disk, clock, entropy, node_id=0, cluster_id="c")
        return Calls(self._service)

    def call(self, method: Callable[..., T], *given: Any, **named: Any) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(
            self._calls.run(method, *given, **named), self._loop
        )

    def count_unanswered(self) -> int:
        return len(self._service.commits._rounds.waiting)

    def failed(self) -> SyncFailed | None:
        return self._service.commits.failed

    async def _close(self) -> None:
        await self._service.close()
        self.broker.close()
        await self._loop.shutdown_default_executor()

    def close(self) -> None:
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        closing.result(TIMEOUT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Bench:
    """A driver with a topic `orders` of one partition, whose files are there."""

    def __init__(self, make: Callable[[Gate], Driver]) -> None:
        self.gate = Gate()
        self.driver = make(self.gate)
        self.broker = self.driver.broker
        self.is_closed = False
        self.make_topic("orders")
        answer(self.publish())
        self.gate.syncs = 0

    def make_topic(self, name: str, **settings: Any) -> None:
        answer(self.driver.call(Face.create_topic, name, partitions=1, settings=settings))

    def publish(self, topic: str = "orders") -> Future[list[Published]]:
        return self.driver.call(Face.publish, topic, [Outgoing(b"x")])

    def publish_held(self, topic: str = "orders") -> Future[list[Published]]:
        """A message whose sync has begun, and does not end before the gate opens."""
        self.gate.close()
        begun = self.publish(topic)
        self.gate.wait_until_reached()
        return begun

    def delete(self, topic: str = "orders") -> Future[None]:
        return self.driver.call(Face.delete_topic, topic)

    def wait_until_unanswered(self, count: int) -> None:
        self.wait_until(lambda: self.driver.count_unanswered() >= count)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        turn = threading.Event()
        for _ in range(TIMEOUT_SECONDS * 1000):
            if is_so():
                return
            turn.wait(0.001)
        raise AssertionError("it never came to that")

    def break_on_synced(self, error: Exception, times: int) -> list[int]:
        """What should follow a round fails so often; a number is added for each round."""
        real, rounds = self.broker.on_synced, list[int]()

        def on_synced(*given: Any) -> Any:
            rounds.append(len(rounds))
            if len(rounds) <= times:
                raise error
            return real(*given)

        self.broker.on_synced = on_synced  # type: ignore[method-assign, assignment]
        return rounds

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.gate.open()
            self.driver.close()


def answer(call: Future[T]) -> T:
    return call.result(TIMEOUT_SECONDS)


DRIVERS: dict[str, Callable[[Gate], Driver]] = {"threads": ThreadsDriver, "loop": LoopDriver}
