"""The SDK's stream of gRPC, and what becomes of it: on a node in this process that has
both doors open.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from tests.contract.cut_proxy import CutProxy
from tests.contract.loop_node import SETTINGS, LoopNode

import headrace
from headrace import testing
from headrace.client.caller import Caller
from headrace.client.grpc_link import GrpcLink
from headrace.core import limits
from headrace.platform.clock import SystemClock
from headrace.wire.remote import codec
from headrace.wire.remote.methods import GRPC_METHOD
from headrace.wire.remote.stream import encode_stream_request

HOURS = 6 * 3600
WAIT = 60


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[LoopNode]:
    """Its parameter is the grace for leases of connections that broke."""
    grace_ms = getattr(request, "param", SETTINGS.lease_grace_ms)
    settings = replace(SETTINGS, lease_grace_ms=grace_ms)
    running = LoopNode(testing.MemoryDisk(), SystemClock(), ("kafka", "grpc"), settings)
    yield running
    running.close()


@pytest.fixture
def url(node: LoopNode) -> str:
    return f"grpc://{node.addresses['grpc']}"


@pytest.fixture
def topic(url: str, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with one partition and three messages."""
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with headrace.connect(url) as handle:
        handle.create_topic(name, 1)
        handle.publish_many(name, ["one", "two", "three"])
    return name


def cut(handle: headrace.Headrace) -> None:
    """As a broken network does it, without a word."""
    backend = handle.connection.reach()
    assert isinstance(backend, Caller)
    link = backend._link
    assert isinstance(link, GrpcLink)
    link._stream.cancel()


def test_the_address_may_come_from_the_environment(
    url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_URL", url)
    with headrace.connect() as handle:
        assert handle.depth(topic) == 3


def test_nobody_who_listens_is_an_error_that_names_the_door() -> None:
    with pytest.raises(headrace.Unreachable, match="headrace serve --grpc 127.0.0.1:1"):
        headrace.connect("grpc://127.0.0.1:1", retry=0)


def test_a_port_that_speaks_no_grpc_is_an_error(node: LoopNode) -> None:
    with pytest.raises(headrace.Unreachable, match="without grpc://, or to the port"):
        headrace.connect(f"grpc://{node.addresses['kafka']}", retry=0)


def test_a_message_above_the_limit_is_refused_by_both_links_and_they_go_on(
    node: LoopNode, url: str, topic: str
) -> None:
    most = limits.REMOTE_PUBLISH_BYTES_MAX
    for address in (str(node.addresses["kafka"]), url):
        with headrace.connect(address) as handle:
            with pytest.raises(headrace.LimitExceeded, match="send less at once"):
                handle.publish(topic, bytes(most))
            # Larger than what the node, and grpc, take at all.
            with pytest.raises(headrace.LimitExceeded, match="send less at once"):
                handle.publish_many(topic, [b"good", bytes(7 * most), b"behind"])
            # The largest request there is, for which a message of the stream has to have room.
            with pytest.raises(headrace.RecordTooLarge, match="elsewhere"):
                handle.publish(topic, bytes(most - len(topic) - 64))
            assert handle.depth(topic) >= 3


@pytest.mark.parametrize("node", [500], indirect=True)
def test_a_stream_that_breaks_for_good_gives_its_leases_back_after_the_grace(
    node: LoopNode, url: str, topic: str
) -> None:
    way = CutProxy(str(node.addresses["grpc"]))
    with headrace.connect(f"grpc://{way.address}") as gone, headrace.connect(url) as other:
        queue = gone.queue(topic, visibility=HOURS)
        assert len(queue.receive(10, wait=WAIT)) == 3
        second = other.queue(topic)
        way.close()
        again = second.receive(10, wait=WAIT)
        assert [message.value for message in again] == ["one", "two", "three"]
        assert {message.attempt for message in again} == {2}


def test_a_queue_goes_on_over_a_new_stream(url: str, topic: str) -> None:
    with headrace.connect(url) as handle:
        queue = handle.queue(topic, visibility=HOURS)
        [job] = queue.receive(1, wait=WAIT)
        cut(handle)
        rest = queue.receive(10, wait=WAIT)
        assert [each.value for each in rest] == ["two", "three"]
        assert queue.ack([job, *rest]) == [None] * 3


def test_a_handle_that_closes_gives_its_leases_back_and_they_do_not_count(
    url: str, topic: str
) -> None:
    with headrace.connect(url) as gone:
        gone.queue(topic, visibility=HOURS).receive(10, wait=WAIT)
    with headrace.connect(url) as other:
        again = other.queue(topic).receive(10, wait=WAIT)
        assert {message.attempt for message in again} == {1}


def test_a_consumer_that_comes_back_over_the_other_door_keeps_what_it_has(
    node: LoopNode, topic: str
) -> None:
    way = CutProxy(str(node.addresses["grpc"]))
    with headrace.connect(str(node.address)) as after:
        with headrace.connect(f"grpc://{way.address}") as before:
            before.queue(topic, consumer="worker")
            queue = after.queue(topic, consumer="worker", visibility=HOURS)
            messages = queue.receive(10, wait=WAIT)
            way.close()
        assert queue.ack(messages) == [None] * 3


def test_a_producer_stores_once_what_it_sends_again(url: str, topic: str) -> None:
    with headrace.connect(url) as handle, handle.producer(linger_ms=0) as producer:
        pending = []
        for n in range(300):
            pending.append(producer.publish(topic, n))
            if n % 100 == 50:
                pending[-20].result(WAIT)
                cut(handle)
        assert [each.result(WAIT).offset for each in pending] == list(range(3, 303))
        assert handle.topic(topic).partitions[0].high_watermark == 303


def stream_of(node: LoopNode, messages: list[bytes]) -> Any:
    channel = grpc.insecure_channel(str(node.addresses["grpc"]))
    return channel, channel.stream_stream(GRPC_METHOD)(iter(messages))


def test_what_can_be_read_is_answered_and_what_cannot_ends_the_stream(node: LoopNode) -> None:
    refused = encode_stream_request(7, codec.encode_request("no_such_call", ()))
    channel, answers = stream_of(node, [refused, b"\0\0"])
    with channel:
        [answer] = list(answers)
    number, status = struct.unpack_from(">iB", answer)
    assert (number, status) == (7, 1)
    assert b"no_such_call" in answer
    channel, answers = stream_of(node, [struct.pack(">i", 1) + b"\xff" * 20])
    with channel:
        assert list(answers) == []
