"""Peers that misbehave: whatever they send, or do not take, the node stays up, stays
small, and serves the others as if they were not there.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, fresh_name, make, publish

from headrace.wire.kafka.api import encode_request
from headrace.wire.kafka.frame import encode_request_frame
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import metadata_request as metadata
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest

MEGABYTE = 1024 * 1024
IDLE_CONNECTIONS = 2_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("robust") / "data", "--log-level", "error")
    with WireClient(process.bootstrap) as client:
        make(client, "orders")
        publish(client, "orders")
    yield process
    process.stop()
    assert process.process.returncode == 0


@pytest.fixture(autouse=True)
def still_serving(shared: NodeProcess) -> Iterator[None]:
    """A client that was there before is served during and after every test."""
    with WireClient(shared.bootstrap) as bystander:
        assert bystander.call("ApiVersions", 3, ApiVersionsRequest("test", "1")).error_code == 0
        yield
        publish(bystander, "orders", 1)
    assert shared.process.poll() is None


def connect(node: NodeProcess) -> socket.socket:
    host, _, port = node.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def resident_bytes(node: NodeProcess) -> int:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def is_hung_up(peer: socket.socket) -> bool:
    """Whether the other side has ended the connection, once all is read."""
    try:
        while peer.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def api_versions_frame(number: int = 1) -> bytes:
    body = encode_request(18, 3, ApiVersionsRequest("test", "1"))
    return b"".join(encode_request_frame(18, 3, number, "robust", body))


def produce_free_frames() -> list[bytes]:
    """A few good requests, of which to make bad ones."""
    topics = (metadata.MetadataRequestTopic(name="orders"),)
    wanted = fetch.FetchTopic("orders", partitions=(fetch.FetchPartition(0, fetch_offset=0),))
    return [
        api_versions_frame(),
        b"".join(
            encode_request_frame(
                3, 9, 2, "robust", encode_request(3, 9, metadata.MetadataRequest(topics))
            )
        ),
        b"".join(
            encode_request_frame(
                1,
                11,
                3,
                "robust",
                encode_request(1, 11, fetch.FetchRequest(max_wait_ms=0, topics=(wanted,))),
            )
        ),
    ]


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, 100 * MEGABYTE + 1])
def test_an_impossible_length_ends_the_connection(shared: NodeProcess, length: int) -> None:
    with connect(shared) as peer:
        peer.sendall(struct.pack(">i", length) + b"x" * 20)
        assert is_hung_up(peer)


def test_random_bytes_end_the_connection_or_are_waited_out(shared: NodeProcess) -> None:
    chance = random.Random(7)
    for _ in range(200):
        with connect(shared) as peer:
            payload = chance.randbytes(chance.randrange(1, 2_000))
            with contextlib.suppress(ConnectionError):
                # A length that is possible, so that the bytes behind it are read.
                if chance.random() < 0.7:
                    payload = struct.pack(">i", len(payload)) + payload
                peer.sendall(payload)
                peer.shutdown(socket.SHUT_WR)
                assert is_hung_up(peer)


def test_requests_with_one_byte_changed_do_no_harm(shared: NodeProcess) -> None:
    chance = random.Random(11)
    for frame in produce_free_frames():
        for _ in range(150):
            changed = bytearray(frame)
            changed[chance.randrange(4, len(changed))] = chance.randrange(256)
            with connect(shared) as peer, contextlib.suppress(ConnectionError):
                peer.sendall(changed)
                peer.shutdown(socket.SHUT_WR)
                assert is_hung_up(peer)


def test_a_connection_may_end_after_any_byte_of_a_request(shared: NodeProcess) -> None:
    for frame in produce_free_frames():
        for cut in range(len(frame)):
            with connect(shared) as peer:
                peer.sendall(frame[:cut])


def test_a_request_may_come_byte_by_byte(shared: NodeProcess) -> None:
    frame = api_versions_frame()
    with connect(shared) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(frame)):
            peer.sendall(frame[at : at + 1])
        (size,) = struct.unpack(">i", peer.recv(4))
        assert size > 100


def test_thousands_of_requests_at_once_are_answered_in_order(shared: NodeProcess) -> None:
    count = 10_000
    payload = b"".join(api_versions_frame(number) for number in range(count))
    with connect(shared) as peer, peer.makefile("rb") as answers:
        # They are sent and taken at the same time, or both sides would wait.
        peer.setblocking(True)
        sent = 0
        for number in range(count):
            while sent < len(payload) and sent < (number + 2_000) * len(api_versions_frame()):
                sent += peer.send(payload[sent : sent + 65_536])
            (size,) = struct.unpack(">i", answers.read(4))
            (correlation_id,) = struct.unpack(">i", answers.read(size)[:4])
            assert correlation_id == number


def test_lengths_alone_cost_no_memory(shared: NodeProcess) -> None:
    before = resident_bytes(shared)
    peers = [connect(shared) for _ in range(50)]
    for peer in peers:
        peer.sendall(struct.pack(">i", 100 * MEGABYTE) + b"x" * 1_000)
    with WireClient(shared.bootstrap) as client:
        publish(client, "orders", 1)
    assert resident_bytes(shared) - before < 60 * MEGABYTE
    for peer in peers:
        peer.close()


def test_who_never_takes_answers_is_stopped_and_not_buffered(shared: NodeProcess) -> None:
    name = fresh_name()
    with WireClient(shared.bootstrap) as client:
        make(client, name, 1)
        for _ in range(20):
            publish(client, name, 50_000)
    before = resident_bytes(shared)
    wanted = fetch.FetchTopic(
        name, partitions=(fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=2**31 - 1),)
    )
    request = fetch.FetchRequest(
        max_wait_ms=30_000, min_bytes=1, max_bytes=2**31 - 1, session_epoch=-1, topics=(wanted,)
    )
    frame = b"".join(encode_request_frame(1, 11, 1, "slow", encode_request(1, 11, request)))
    peers = [connect(shared) for _ in range(4)]
    for peer in peers:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            peer.send(frame * 200)
    with WireClient(shared.bootstrap) as client:
        for _ in range(20):
            publish(client, name, 1)
    # Each may hold one answer and what the high mark allows.
    assert resident_bytes(shared) - before < 4 * 32 * MEGABYTE
    for peer in peers:
        peer.close()


def test_a_crowd_of_idle_connections_costs_little(shared: NodeProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = IDLE_CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} open files are allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    before = resident_bytes(shared)
    peers: list[socket.socket] = []
    try:
        for _ in range(IDLE_CONNECTIONS):
            peers.append(connect(shared))
        with WireClient(shared.bootstrap) as client:
            publish(client, "orders", 1)
        assert resident_bytes(shared) - before < 40 * MEGABYTE
        peers[-1].sendall(api_versions_frame())
        assert len(peers[-1].recv(4)) == 4
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_beyond_the_limit_are_refused_and_room_is_given_back(tmp_path: Path) -> None:
    config = tmp_path / "headrace.toml"
    config.write_text("connections_max = 5\n")
    node = NodeProcess(tmp_path / "data", "--config", str(config), "--log-level", "error")
    try:
        peers = [connect(node) for _ in range(5)]
        for peer in peers:
            peer.sendall(api_versions_frame())
            assert len(peer.recv(4)) == 4
        with connect(node) as sixth:
            assert is_hung_up(sixth)
        for peer in peers:
            peer.close()
        with contextlib.ExitStack() as stack:
            # The node hears of the ends in its own time.
            for _ in range(200):
                again = stack.enter_context(connect(node))
                with contextlib.suppress(ConnectionError):
                    again.sendall(api_versions_frame())
                    if len(again.recv(4)) == 4:
                        return
        raise AssertionError("no room was given back")
    finally:
        node.stop()
