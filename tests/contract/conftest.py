"""The backends over which the SDK's contract is run.

    memory      a memory disk, kept while a test closes and opens again
    directory   a real directory under tmp_path
    remote      a node behind a socket, on a memory disk
    grpc        the same node behind a stream of gRPC

Each has a clock that a test moves. A test that needs real time asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.cut_proxy import CutProxy
from tests.contract.loop_node import LoopNode

import headrace
from headrace import testing
from headrace.client.grpc_link import GrpcLink
from headrace.client.link import Link
from headrace.client.remote import RemoteBackend
from headrace.client.socket_link import SocketLink
from headrace.core.ports import Clock


class SdkBackend:
    """Opens handles on one and the same data, again and again."""

    # Whether there is one handle at a time.
    is_exclusive = True

    def __init__(self, path: str, disk: testing.MemoryDisk | None) -> None:
        self.clock = testing.ManualClock()
        self._path = path
        self._disk = disk
        self._opened: list[headrace.Headrace] = []

    def open(
        self, *, clock: Clock | None = None, read_only: bool = False, auto_create: bool = False
    ) -> headrace.Headrace:
        handle = testing.open(
            clock or self.clock,
            path=self._path,
            disk=self._disk,
            read_only=read_only,
            auto_create=auto_create,
        )
        self._opened.append(handle)
        return handle

    def open_async(
        self, *, clock: Clock | None = None, auto_create: bool = False
    ) -> headrace.AsyncHeadrace:
        return testing.open_async(
            clock or self.clock, path=self._path, disk=self._disk, auto_create=auto_create
        )

    def close(self) -> None:
        for handle in self._opened:
            handle.close()


class RemoteSdkBackend(SdkBackend):
    """A node that lives for the whole test; handles connect to it."""

    is_exclusive = False

    def __init__(self, link: type[Link] = SocketLink) -> None:
        super().__init__("", testing.MemoryDisk())
        self._node: LoopNode | None = None
        self._link = link

    def _backend(self, clock: Clock | None, auto_create: bool) -> RemoteBackend:
        if self._node is None:
            assert self._disk is not None
            self._node = LoopNode(self._disk, clock or self.clock, (self._link.door,))
        return RemoteBackend(
            self._node.addresses[self._link.door],
            auto_create=auto_create,
            clock=clock or self.clock,
            link=self._link,
        )

    def open(
        self, *, clock: Clock | None = None, read_only: bool = False, auto_create: bool = False
    ) -> headrace.Headrace:
        if read_only:
            pytest.skip("what only reads a directory has no counterpart on a node")
        handle = headrace.Headrace(self._backend(clock, auto_create), "node")
        self._opened.append(handle)
        return handle

    def open_async(
        self, *, clock: Clock | None = None, auto_create: bool = False
    ) -> headrace.AsyncHeadrace:
        return headrace.AsyncHeadrace(headrace.Headrace(self._backend(clock, auto_create), "node"))

    def close(self) -> None:
        super().close()
        if self._node is not None:
            self._node.close()


def _in_memory(tmp_path: Path) -> SdkBackend:
    return SdkBackend(":memory:", testing.MemoryDisk())


def _in_a_directory(tmp_path: Path) -> SdkBackend:
    return SdkBackend(str(tmp_path / "queue"), None)


def _on_a_node(tmp_path: Path) -> SdkBackend:
    return RemoteSdkBackend()


def _over_grpc(tmp_path: Path) -> SdkBackend:
    return RemoteSdkBackend(GrpcLink)


BACKENDS: dict[str, Callable[[Path], SdkBackend]] = {
    "memory": _in_memory,
    "directory": _in_a_directory,
    "remote": _on_a_node,
    "grpc": _over_grpc,
}


@pytest.fixture(params=BACKENDS)
def sdk_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SdkBackend]:
    backend = BACKENDS[request.param](tmp_path)
    yield backend
    backend.close()


@pytest.fixture
def handle(sdk_backend: SdkBackend) -> headrace.Headrace:
    """A handle on the backend's manual clock, with nothing in it."""
    return sdk_backend.open()


@pytest.fixture
def clock(sdk_backend: SdkBackend) -> testing.ManualClock:
    return sdk_backend.clock


# A way that a test can cut, over either link, to the `node` of its module.


@pytest.fixture(params=["kafka", "grpc"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(node: LoopNode, door: str) -> Iterator[CutProxy]:
    way = CutProxy(str(node.addresses[door]))
    yield way
    way.close()


@pytest.fixture
def url(proxy: CutProxy, door: str) -> str:
    return f"grpc://{proxy.address}" if door == "grpc" else proxy.address
