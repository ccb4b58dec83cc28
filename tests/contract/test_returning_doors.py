"""Clients of HTTP, WebSockets and gRPC whose connection breaks while they hold leases: a
call's lease is bound to no connection, and a subscription's has a grace.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.contract.cut_proxy import CutProxy
from tests.contract.loop_node import SETTINGS, LoopNode
from tests.contract.test_returning import GRACE_MS, let_the_grace_pass
from tests.doors.grpc_client import GrpcClient
from tests.doors.test_grpc_queues import Conversation
from websockets.sync.client import ClientConnection, connect

import headrace
from headrace import testing
from headrace.platform.clock import SystemClock
from headrace.server import leasing
from headrace.wire.grpc.generated import headrace_pb2 as pb

WAIT = 30
GROUP = "ours"
HOURS = 6 * 3600


@pytest.fixture
def node() -> Iterator[LoopNode]:
    settings = replace(SETTINGS, lease_grace_ms=GRACE_MS)
    running = LoopNode(testing.MemoryDisk(), SystemClock(), ("kafka", "http", "grpc"), settings)
    yield running
    running.close()


@pytest.fixture
def topic(node: LoopNode, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with one partition and a message."""
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with headrace.connect(str(node.address)) as handle:
        handle.create_topic(name, 1)
        handle.publish(name, b"job")
    return name


# Leases of single calls.


def test_a_lease_over_http_is_bound_to_no_connection(node: LoopNode, topic: str) -> None:
    way = CutProxy(str(node.addresses["http"]))
    wanted = {"topics": [topic], "visibility": HOURS}
    with httpx.Client(base_url=f"http://{way.address}", timeout=WAIT) as client:
        [leased] = client.post(f"/queues/{GROUP}/lease", json=wanted).json()["messages"]
        way.cut()
    let_the_grace_pass(node, topic)
    way.close()
    with httpx.Client(base_url=f"http://{node.addresses['http']}", timeout=WAIT) as other:
        assert other.post(f"/queues/{GROUP}/lease", json=wanted).json()["messages"] == []
        answer = other.post("/messages/ack", json={"receipt": leased["receipt"]}).json()
    assert answer["ok"]


def test_a_lease_over_grpc_is_bound_to_no_connection(node: LoopNode, topic: str) -> None:
    way = CutProxy(str(node.addresses["grpc"]))
    client = GrpcClient(way.address)
    [leased] = client.lease(topic, GROUP, visibility_ms=HOURS * 1000)
    way.cut()
    client.close()
    let_the_grace_pass(node, topic)
    way.close()
    other = GrpcClient(str(node.addresses["grpc"]))
    assert other.lease(topic, GROUP) == []
    answer = other.queues.Ack(pb.AckRequest(receipts=[leased.receipt]))
    other.close()
    assert [each.ok for each in answer.results] == [True]


# Subscriptions whose client comes back in time, to a node that takes its time.


class SlowOpening:
    """Holds queues that are opened, from when it is told to."""

    def __init__(self) -> None:
        self.is_slow = False
        self.begun = threading.Event()
        self.go_on: Future[None] = Future()

    async def scan_ahead(self, *_: Any) -> None:
        if self.is_slow:
            self.begun.set()
            await asyncio.wrap_future(self.go_on)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowOpening]:
    opening = SlowOpening()
    monkeypatch.setattr(leasing, "scan_ahead", opening.scan_ahead)
    yield opening
    if not opening.go_on.done():
        opening.go_on.set_result(None)


def frame_of(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(timeout=WAIT))
    return found


def test_a_websocket_that_comes_back_in_time_keeps_its_leases_however_long_that_takes(
    node: LoopNode, topic: str, slow: SlowOpening
) -> None:
    address = f"ws://{node.addresses['http']}/ws"
    wanted = {"op": "dequeue", "id": 1, "topics": [topic], "group": GROUP, "visibility": HOURS}
    with connect(address) as first:
        consumer = frame_of(first)["consumer"]
        first.send(json.dumps({**wanted, "credit": 1}))
        assert frame_of(first)["op"] == "done"
        receipt = frame_of(first)["message"]["receipt"]
        first.socket.close()
    slow.is_slow = True
    with connect(f"{address}?consumer={consumer}") as second:
        frame_of(second)
        second.send(json.dumps({**wanted, "credit": 1, "in_hand": [receipt]}))
        assert slow.begun.wait(WAIT)
        let_the_grace_pass(node, topic)
        slow.go_on.set_result(None)
        assert "lost" not in frame_of(second)
        second.send(json.dumps({"op": "ack", "id": 2, "receipts": [receipt]}))
        assert [each["ok"] for each in frame_of(second)["results"]] == [True]


def test_a_grpc_stream_that_comes_back_in_time_keeps_its_leases_however_long_that_takes(
    node: LoopNode, topic: str, slow: SlowOpening
) -> None:
    address = str(node.addresses["grpc"])
    wanted = {
        "topics": [topic], "group": GROUP, "consumer": topic, "visibility_ms": HOURS * 1000
    }  # fmt: skip
    client = GrpcClient(address)
    first = Conversation(client, **wanted, credit=1)
    first.next()
    [leased] = first.deliveries(1)
    first.call.cancel()
    client.close()
    slow.is_slow = True
    client = GrpcClient(address)
    second = Conversation(client, **wanted, credit=0, in_hand=[leased.receipt])
    assert slow.begun.wait(WAIT)
    let_the_grace_pass(node, topic)
    slow.go_on.set_result(None)
    assert list(second.next().opened.lost) == []
    second.send(id=2, ack=pb.AckRequest(receipts=[leased.receipt]))
    assert [each.ok for each in second.next().settled.results] == [True]
    second.end()
    assert second.is_over()
    first.end()
    client.close()
