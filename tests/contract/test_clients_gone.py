"""A client that goes away while something is looked for: the node stops looking at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.contract.loop_node import LoopNode
from tests.doors.grpc_client import GrpcClient

from headrace import testing
from headrace.calls import tracing
from headrace.core.trace_values import TraceQuery
from headrace.platform.clock import SystemClock
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.remote import codec

SECONDS = 30


class Endless:
    """A search that never ends by itself."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()

    def steps(self, *_: Any) -> Iterator[Callable[[int], int]]:
        try:
            while True:
                yield self._step
        finally:
            self.ended.set()

    def _step(self, most_bytes: int) -> int:
        self.begun.set()
        return most_bytes


@pytest.fixture(scope="module")
def node() -> Iterator[LoopNode]:
    running = LoopNode(testing.MemoryDisk(), SystemClock(), ("kafka", "http", "grpc"))
    client = GrpcClient(str(running.addresses["grpc"]))
    client.topics.Create(pb.CreateTopicRequest(name="orders", partitions=1))
    client.close()
    yield running
    running.close()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    search = Endless()
    for name in ("search", "trace_one"):
        monkeypatch.setattr(tracing, name, search.steps)
    return search


def ask_http(node: LoopNode, path: str) -> Callable[[], None]:
    address = node.addresses["http"]
    connection = socket.create_connection((address.host, address.port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return connection.close


def search_over_http(node: LoopNode) -> Callable[[], None]:
    return ask_http(node, "/trace?outcome=expired")


def trace_over_http(node: LoopNode) -> Callable[[], None]:
    return ask_http(node, "/trace/orders:0:0")


def search_over_grpc(node: LoopNode) -> Callable[[], None]:
    client = GrpcClient(str(node.addresses["grpc"]))
    call = client.traces.Search.future(pb.SearchTracesRequest(outcome="expired"))

    def leave() -> None:
        # A call that nobody holds is cancelled at once, maybe before the node has seen it.
        assert not call.done()
        client.close()

    return leave


def search_by_sdk(node: LoopNode) -> Callable[[], None]:
    connection = socket.create_connection((node.address.host, node.address.port))
    request = codec.encode_request("traces", (TraceQuery(outcome="expired"), None, 100))
    connection.sendall(codec.encode_request_frame(1, b"test", request))
    return connection.close


@pytest.mark.parametrize(
    "ask", [search_over_http, trace_over_http, search_over_grpc, search_by_sdk]
)
def test_a_search_ends_when_its_client_is_gone(
    node: LoopNode, endless: Endless, ask: Callable[[LoopNode], Callable[[], None]]
) -> None:
    leave = ask(node)
    assert endless.begun.wait(SECONDS)
    leave()
    assert endless.ended.wait(SECONDS)
