"""A client address has so many calls under way at the gRPC door."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from headrace.core.errors import LimitExceeded
from headrace.core.node_settings import NodeSettings
from headrace.engine.broker import Broker
from headrace.platform.clock import SystemClock
from headrace.platform.entropy import SystemEntropy
from headrace.platform.memory_disk import MemoryDisk
from headrace.server.grpc.door import _answer, _answers, _conversation
from headrace.server.grpc.measured import Measured
from headrace.server.grpc.peers import host_of
from headrace.server.grpc.places import Client, Places
from headrace.server.service import Service
from headrace.server.shares import Account, Line
from headrace.wire.grpc.generated import headrace_pb2 as pb


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5Bfe80::1%5D:5000", "fe80::1"),
        ("ipv6:[fe80::1]:5000", "fe80::1"),
        ("unix:/tmp/socket", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_peer_is_found_in_every_form(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_places_are_counted_by_address_and_come_back() -> None:
    service: Any = SimpleNamespace(counts=SimpleNamespace(cuts=Counter()))
    places = Places(service, NodeSettings(connections_per_address_max=1))
    one, other, own = (
        Client(host, Account(Line(1, 1))) for host in ("10.0.0.1", "10.0.0.2", "127.0.0.1")
    )
    for _ in range(2):
        with places.taken(one), places.taken(other), places.taken(own), places.taken(own):
            with pytest.raises(LimitExceeded, match="connections_per_address_max"):
                with places.taken(one):
                    pass
    assert +service.counts.cuts == {("grpc", "address"): 2}


class Context:
    """What grpc tells of a call."""

    def __init__(self, request: object = "request") -> None:
        self.aborted: grpc.StatusCode | None = None
        self._request = request

    async def read(self) -> object:
        return self._request

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def abort(self, status: grpc.StatusCode, *_: object) -> None:
        self.aborted = status


def test_no_more_calls_are_under_way_than_there_may_be_connections() -> None:
    service: Any = SimpleNamespace(counts=SimpleNamespace(cuts=Counter()))
    places = Places(service, NodeSettings(connections_max=1))
    own = Client("127.0.0.1", Account(Line(1, 1)))
    for _ in range(2):
        with places.taken(own):
            with pytest.raises(LimitExceeded, match="raise connections_max"):
                with places.taken(own):
                    pass
    assert +service.counts.cuts == {("grpc", "full"): 2}


class Gone(Context):
    """Of a client that has gone away meanwhile."""

    async def abort(self, status: grpc.StatusCode, *_: object) -> None:
        raise grpc.aio.InternalError("there is nobody to be told")


def test_a_client_that_is_gone_when_it_is_refused_is_no_failure_of_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play() -> None:
        disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        broker = Broker(disk, entropy, clock.now_ms())
        service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="c")
        measured = Measured(service, Places(service, NodeSettings()), "Queues/Lease")

        gone = Gone(LimitExceeded("too much"))
        # grpc expects its own error, and is silent about it when the client is gone.
        with pytest.raises(grpc.aio.InternalError):
            await _answer(None, measured)(None, gone)
        await _answers(None, measured)(None, gone)
        await _conversation(None, measured)(None, gone)
        await service.close()
        broker.close()

    asyncio.run(play())
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_calls_beyond_are_refused_whatever_their_kind_and_those_under_way_go_on() -> None:
    async def play() -> None:
        disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        broker = Broker(disk, entropy, clock.now_ms())
        service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="c")
        places = Places(service, NodeSettings(connections_per_address_max=1))
        measured = Measured(service, places, "Queues/Lease")
        may_end = asyncio.Event()

        answer = pb.DescribeNodeResponse(version="1")

        async def act(_request: Any, _context: Any) -> Any:
            await may_end.wait()
            return answer

        async def act_often(request: Any, context: Any) -> AsyncIterator[Any]:
            yield await act(request, context)

        async def converse(first: Any, _requests: Any, context: Any) -> Any:
            return await act(first, context)

        first = asyncio.create_task(_answer(act, measured)(None, Context()))
        await asyncio.sleep(0)
        for beyond in (_answer(act, measured), _answers(act_often, measured)):
            context = Context()
            await beyond(None, context)
            assert context.aborted is grpc.StatusCode.RESOURCE_EXHAUSTED
        await _conversation(converse, measured)(None, context := Context())
        assert context.aborted is grpc.StatusCode.RESOURCE_EXHAUSTED
        may_end.set()
        assert await first == answer.SerializeToString()
        assert await _answer(act, measured)(None, Context()) == answer.SerializeToString()
        assert +service.counts.cuts == {("grpc", "address"): 3}
        await service.close()
        broker.close()

    asyncio.run(play())


def test_who_has_gone_without_a_request_is_not_refused() -> None:
    """What grpc is told to send to who is gone, it keeps for ever."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        disk, clock, entropy = MemoryDisk(), SystemClock(), SystemEntropy()
        broker = Broker(disk, entropy, clock.now_ms())
        service = Service(broker, disk, clock, entropy, node_id=0, cluster_id="c")
        measured = Measured(service, Places(service, NodeSettings()), "Queues/Lease")
        gone = Context(grpc.aio.EOF)
        call = asyncio.create_task(_answer(None, measured)(None, gone))
        # grpc finds out in a turn after the one in which the request did not come.
        await asyncio.sleep(0)
        loop.call_soon(call.cancel)
        with pytest.raises(asyncio.CancelledError):
            await call
        assert gone.aborted is None
        # Who is there and has sent none is told.
        await _answer(None, measured)(None, there := Context(grpc.aio.EOF))
        assert there.aborted is grpc.StatusCode.INVALID_ARGUMENT
        await service.close()
        broker.close()

    asyncio.run(play())


class Silent(Context):
    """Of a client whose request does not come."""

    async def read(self) -> object:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


def test_requests_that_do_not_come_are_given_up_and_those_that_came_are_not() -> None:
    async def play() -> None:
        counts = SimpleNamespace(cuts=Counter())
        service: Any = SimpleNamespace(counts=counts, loop=asyncio.get_running_loop())
        places = Places(service, NodeSettings(stall_timeout_ms=100))
        late = [asyncio.create_task(places.first_request(Silent())) for _ in range(3)]
        left = asyncio.create_task(places.first_request(Silent()))
        assert await places.first_request(Context("came")) == "came"
        assert await places.first_request(Context(grpc.aio.EOF)) is None
        left.cancel()
        for each in late:
            with pytest.raises(LimitExceeded, match=r"within 0\.1 s \(stall_timeout_ms\)"):
                await each
            assert each.cancelling() == 0
        # Who was cancelled by somebody else was not late.
        with pytest.raises(asyncio.CancelledError):
            await left
        assert +counts.cuts == {("grpc", "body"): 3}

    asyncio.run(play())


def test_a_call_that_is_late_and_cancelled_as_well_is_cancelled() -> None:
    async def play() -> None:
        counts = SimpleNamespace(cuts=Counter())
        service: Any = SimpleNamespace(counts=counts, loop=asyncio.get_running_loop())
        places = Places(service, NodeSettings(stall_timeout_ms=100))
        both = asyncio.create_task(places.first_request(Silent()))
        await asyncio.sleep(0)
        places._reading[both] = 0.0
        places._cut_late()
        both.cancel()
        with pytest.raises(asyncio.CancelledError):
            await both
        assert not +counts.cuts

    asyncio.run(play())
