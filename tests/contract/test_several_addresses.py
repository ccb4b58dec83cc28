"""A client that is told several addresses of a cluster goes on at the next when one is away."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.contract.cut_proxy import CutProxy
from tests.contract.loop_node import SETTINGS, LoopNode

import headrace
from headrace import testing
from headrace.client.connecting import way_to
from headrace.client.grpc_link import GrpcLink
from headrace.client.remote import RemoteBackend
from headrace.client.socket_link import SocketLink
from headrace.core.environment import PORT_DEFAULT
from headrace.core.errors import Disconnected, InvalidArgument, Unreachable
from headrace.core.node_settings import Address
from headrace.platform.clock import SystemClock
from headrace.server.service import Service

WAIT = 30
HOURS = 6 * 3600
# Nobody listens there.
NOWHERE = "127.0.0.1:1"


class Ways(NamedTuple):
    """Two addresses of one cluster: what one node was told is known at the other."""

    first: CutProxy
    second: CutProxy

    @property
    def url(self) -> str:
        return f"headrace://{self.first.address},{self.second.address}"


@pytest.fixture
def node() -> Iterator[LoopNode]:
    settings = replace(SETTINGS, lease_grace_ms=WAIT * 1_000)
    running = LoopNode(testing.MemoryDisk(), SystemClock(), ("kafka", "grpc"), settings)
    with headrace.connect(str(running.address)) as handle:
        handle.create_topic("orders", 1)
    yield running
    running.close()


@pytest.fixture
def ways(node: LoopNode) -> Iterator[Ways]:
    found = Ways(CutProxy(str(node.address)), CutProxy(str(node.address)))
    yield found
    for each in found:
        each.close()


def test_the_first_address_that_answers_is_taken(ways: Ways) -> None:
    with headrace.connect(f"{NOWHERE},{ways.second.address}") as handle:
        handle.publish("orders", "one")
    with headrace.connect(f"{ways.first.address},{NOWHERE}") as handle:
        assert handle.topics()


def test_calls_loops_and_leases_go_on_at_the_next_address(ways: Ways) -> None:
    with headrace.connect(ways.url) as handle:
        handle.publish("orders", "one")
        queue = handle.queue("orders", visibility=HOURS)
        [job] = queue.receive(1, wait=WAIT)
        ways.first.close()
        # It came back by itself with what it holds, and its receipt is good.
        job.ack()
        assert handle.status(job.id, "default").state == "acked"
        handle.publish("orders", "two")
        [job] = queue.receive(1, wait=WAIT)
        assert (job.value, job.attempt) == ("two", 1)
        job.ack()


def test_a_producer_goes_on_at_the_next_address_with_every_message_once(ways: Ways) -> None:
    with headrace.connect(ways.url) as handle, handle.producer(timeout=WAIT) as producer:
        pending = [producer.publish("orders", str(number)) for number in range(50)]
        pending[-1].result(WAIT)
        ways.first.close()
        pending += [producer.publish("orders", str(number)) for number in range(50, 100)]
        for each in pending:
            each.result(WAIT)
        with handle.stream("orders", start="earliest") as stream:
            values = [record.value for record in stream.poll(1_000, wait=WAIT)]
        assert sorted(map(int, values)) == list(range(100))


def test_where_none_answers_all_of_them_are_named() -> None:
    with pytest.raises(Unreachable, match=r"any of 127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        headrace.connect("127.0.0.1:1,127.0.0.1:2")


def test_each_is_asked_once_before_there_is_a_pause(ways: Ways) -> None:
    asked: list[Address] = []

    class Noted(SocketLink):
        def __init__(self, address: Address, client_id: str, **options: Any) -> None:
            asked.append(address)
            super().__init__(address, client_id, **options)

    addresses = [Address.parse("node", each) for each in (NOWHERE, ways.second.address)]
    backend = RemoteBackend(*addresses, link=Noted, wait_seconds=0)
    try:
        assert asked == addresses
        # The one that answered is the first to be asked again.
        ways.second.cut()
        while len(asked) == 2:
            backend.topics()
        assert asked[2] == addresses[1]
    finally:
        backend.close()


def test_a_node_of_another_cluster_is_not_taken_for_the_next(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Service.__init__

    def make(service: Service, *args: Any, **named: Any) -> None:
        made(service, *args, **{**named, "cluster_id": "another"})

    monkeypatch.setattr(Service, "__init__", make)
    other = LoopNode(testing.MemoryDisk(), SystemClock())
    try:
        url = f"{ways.first.address},{other.address}"
        with headrace.connect(url, retry=0) as handle:
            assert handle.topics()
            ways.first.close()
            with pytest.raises(Unreachable, match="is of cluster another"):
                while True:
                    # Of a call that is under way when the node ends.
                    with contextlib.suppress(Disconnected):
                        handle.topics()
    finally:
        other.close()


def test_a_handle_that_is_closed_asks_no_further_address(ways: Ways) -> None:
    closed = threading.Event()
    closed.set()
    addresses = [Address.parse("node", each.address) for each in ways]
    with pytest.raises(headrace.Closed):
        RemoteBackend(*addresses, closed=closed)


def test_addresses_are_read_as_people_write_them() -> None:
    a, b = Address("a", 1), Address("b", PORT_DEFAULT)
    assert way_to("a:1") == ([a], SocketLink)
    assert way_to("headrace://a:1,b/") == ([a, b], SocketLink)
    assert way_to("a:1, b, a:1") == ([a, b], SocketLink)
    assert way_to("headrace://a:1,b,grpc://a:9081,b:9081") == ([a, b], SocketLink)
    assert way_to("grpc://a:1,headrace://b") == ([a], GrpcLink)
    assert way_to("grpc://a:1,[::1]:2") == ([a, Address("::1", 2)], GrpcLink)
    for wrong in ("a:1,", ",", "a:1,b:x"):
        with pytest.raises(InvalidArgument, match="must look like"):
            way_to(wrong)
