"""A handle that holds leases comes back by itself when its connection breaks, over either
link: whoever works on a message for long makes no call within the node's grace.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.cut_proxy import CutProxy
from tests.contract.loop_node import SETTINGS, LoopNode

import headrace
from headrace import testing
from headrace.client.remote import RemoteBackend
from headrace.client.socket_link import SocketLink
from headrace.core.node_settings import Address
from headrace.platform.clock import SystemClock

# Nothing here may come back because a lease ended by time.
HOURS = 6 * 3600
WAIT = 30
GRACE_MS = 1_000


@pytest.fixture
def node() -> Iterator[LoopNode]:
    settings = replace(SETTINGS, lease_grace_ms=GRACE_MS)
    running = LoopNode(testing.MemoryDisk(), SystemClock(), ("kafka", "grpc"), settings)
    yield running
    running.close()


@pytest.fixture
def topic(node: LoopNode, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with one partition and two messages."""
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with headrace.connect(str(node.address)) as handle:
        handle.create_topic(name, 1)
        handle.publish_many(name, ["one", "two"])
    return name


def let_the_grace_pass(node: LoopNode, topic: str) -> None:
    """Until somebody else has lost a lease whose connection broke now."""
    way = CutProxy(str(node.address))
    with headrace.connect(way.address, retry=0) as gone:
        assert len(gone.queue(topic, visibility=HOURS).receive(1, wait=WAIT)) == 1
        way.close()
        with headrace.connect(str(node.address)) as other:
            [lost] = other.queue(topic).receive(1, wait=WAIT)
            assert lost.attempt == 2


def test_a_cut_costs_no_lease_of_a_handle_that_makes_no_call(
    node: LoopNode, proxy: CutProxy, url: str, topic: str
) -> None:
    with headrace.connect(url) as handle:
        queue = handle.queue(topic, visibility=HOURS)
        [job] = queue.receive(1, wait=WAIT)
        proxy.cut()
        let_the_grace_pass(node, topic)
        job.ack()
        assert handle.status(job.id, "default").state == "acked"
        assert job.attempt == queue.stats().acked == 1


def test_a_cut_costs_no_lease_of_an_async_handle_either(
    node: LoopNode, proxy: CutProxy, url: str, topic: str
) -> None:
    async def main() -> None:
        async with headrace.connect_async(url) as handle:
            queue = await handle.queue(topic, visibility=HOURS)
            [job] = await queue.receive(1, wait=WAIT)
            proxy.cut()
            await asyncio.to_thread(let_the_grace_pass, node, topic)
            await job.ack()
            assert (await handle.status(job.id, "default")).state == "acked"

    asyncio.run(main())


class Rare(SocketLink):
    """A link to a node that is away until the test says that it is back."""

    is_back = threading.Event()
    tried = threading.Semaphore(0)

    def __init__(self, address: Address, client_id: str, **options: Any) -> None:
        if not self.is_back.is_set():
            self.tried.release()
            raise ConnectionRefusedError("not yet")
        super().__init__(address, client_id, **options)


@pytest.fixture
def rare() -> type[Rare]:
    class Own(Rare):
        is_back = threading.Event()
        tried = threading.Semaphore(0)

    Own.is_back.set()
    return Own


@pytest.fixture
def way(node: LoopNode) -> Iterator[CutProxy]:
    proxy = CutProxy(str(node.address))
    yield proxy
    proxy.close()


def backend_on(way: CutProxy, link: type[Rare]) -> RemoteBackend:
    return RemoteBackend(Address.parse("node", way.address), retry_seconds=0, link=link)


def test_it_is_tried_until_the_node_is_back(
    node: LoopNode, way: CutProxy, rare: type[Rare], topic: str
) -> None:
    with headrace.Headrace(backend_on(way, rare), "node") as handle:
        queue = handle.queue(topic, visibility=HOURS)
        [job] = queue.receive(1, wait=WAIT)
        rare.is_back.clear()
        way.cut()
        for _ in range(3):
            assert rare.tried.acquire(timeout=WAIT)
        rare.is_back.set()
        let_the_grace_pass(node, topic)
        job.ack()
        assert handle.status(job.id, "default").state == "acked"


def test_who_comes_back_too_late_hears_of_it_while_it_works(
    node: LoopNode, way: CutProxy, rare: type[Rare], topic: str
) -> None:
    """Long before half of its lease is over, when it would have asked for more time."""
    with headrace.Headrace(backend_on(way, rare), "node") as handle:
        [job] = handle.queue(topic, visibility=HOURS).receive(1, wait=WAIT)
        told: queue.SimpleQueue[headrace.HeadraceError] = queue.SimpleQueue()
        job.keep(lambda delivery, error: told.put(error))
        rare.is_back.clear()
        way.cut()
        with headrace.connect(str(node.address)) as other:
            taken = other.queue(topic, visibility=HOURS).receive(2, wait=WAIT)
            while job.id not in {each.id for each in taken}:
                taken += other.queue(topic, visibility=HOURS).receive(1, wait=WAIT)
            rare.is_back.set()
            assert isinstance(told.get(timeout=WAIT), headrace.StaleReceipt)
            assert job.lost
            job.drop()


def test_a_handle_that_is_closed_meanwhile_stops_trying(
    way: CutProxy, rare: type[Rare], topic: str
) -> None:
    with headrace.Headrace(backend_on(way, rare), "node") as handle:
        assert handle.queue(topic).consumer
        rare.is_back.clear()
        way.cut()
        assert rare.tried.acquire(timeout=WAIT)
    assert not returning()


def test_a_handle_is_closed_although_the_node_does_not_answer_it(
    way: CutProxy, rare: type[Rare], topic: str
) -> None:
    heard = threading.Event()

    class Unheard(rare):  # type: ignore[misc, valid-type]
        def _transmit(self, number: int, request: bytes) -> None:
            heard.set()

    backend = backend_on(way, rare)
    with headrace.Headrace(backend, "node") as handle:
        assert handle.queue(topic).consumer
        backend._link_kind = Unheard
        way.cut()
        assert heard.wait(WAIT)
    assert not returning()


def test_a_queue_that_is_closed_while_its_handle_comes_back_has_left(
    way: CutProxy, rare: type[Rare], topic: str
) -> None:
    closed = threading.Event()
    backend = backend_on(way, rare)
    with headrace.Headrace(backend, "node") as handle:
        queue = handle.queue(topic)

        class Closing(rare):  # type: ignore[misc, valid-type]
            def _transmit(self, number: int, request: bytes) -> None:
                if b"open_queue" in request and not closed.is_set():
                    backend.leave(queue.group, queue.consumer)
                    closed.set()
                super()._transmit(number, request)

        backend._link_kind = Closing
        way.cut()
        assert closed.wait(WAIT)
        second = handle.queue(topic, consumer="another")
        assert {each.attempt for each in second.receive(10, wait=WAIT)} == {1}
        assert handle.group("default").consumers == ("another",)


def test_a_handle_that_holds_nothing_comes_back_with_its_next_call(
    way: CutProxy, rare: type[Rare], topic: str
) -> None:
    backend = backend_on(way, rare)
    with headrace.Headrace(backend, "node") as handle:
        handle.queue(topic).close()
        ended = threading.Event()
        link: Any = backend._link
        come_back = link._on_ended

        def on_ended() -> None:
            come_back()
            ended.set()

        link.when_ended(on_ended)
        way.cut()
        assert ended.wait(WAIT)
        assert not returning()
        assert handle.topic(topic).name == topic


def returning() -> list[str]:
    return [each.name for each in threading.enumerate() if "headrace-return" in each.name]
