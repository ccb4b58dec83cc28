"""Connections and calls of gRPC that get nowhere end, spoken to as no honest client would."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.conftest import DoorsProcess
from tests.doors.grpc_client import GrpcClient

import headrace
from headrace.core import limits
from headrace.wire.grpc.generated import headrace_pb2 as pb

# Long enough that only a node that cuts nothing gets there.
SECONDS = 20.0
CONNECTIONS_MAX = 50
VALUE_BYTES = 12 * 1024 * 1024
DEAF = 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big")
    return head + payload


DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
# SETTINGS, and that the node's are known.
READY = PREFACE + frame(SETTINGS, 0, 0, b"") + frame(SETTINGS, 1, 0, b"")


def call_of(method: str) -> bytes:
    """The head of a call, in HPACK without its tables."""
    path = f"/headrace.v1.{method}".encode()
    fields = b"\x83\x86\x44" + bytes([len(path)]) + path + b"\x41\x01a"
    fields += b"\x5f\x10application/grpc\x40\x02te\x08trailers"
    return READY + frame(HEADERS, END_HEADERS, 1, fields)


# A message of a hundred bytes, of which three come.
HALF_A_MESSAGE = frame(DATA, 0, 1, b"\0\0\0\0\x64abc")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorsProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_STALL_TIMEOUT_MS", "300")
        patch.setenv("HEADRACE_CONNECTIONS_MAX_IDLE_MS", "1500")
        patch.setenv("HEADRACE_CONNECTIONS_MAX", str(CONNECTIONS_MAX))
        node = DoorsProcess(tmp_path_factory.mktemp("stalls") / "data")
    yield node
    node.stop()


def is_told(node: DoorsProcess, sent: bytes, text: bytes) -> bool:
    """Whether the node says so before it hangs up; TimeoutError when it does neither."""
    host, _, port = node.doors["grpc"].rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as peer:
        peer.sendall(sent)
        said = b""
        while text not in said and (some := peer.recv(65_536)):
            said += some
        return text in said


@pytest.mark.parametrize(
    "sent", [b"", PREFACE[:9], PREFACE], ids=["nothing", "half a preface", "a preface"]
)
def test_a_connection_that_does_not_begin_is_cut(node: DoorsProcess, sent: bytes) -> None:
    # Before it would be idle, which takes much longer by default.
    assert is_told(node, sent, b"handshake timeout")


@pytest.mark.parametrize(
    "sent",
    [
        READY,
        READY + frame(HEADERS, END_HEADERS, 1, bytes(20))[:15],
        READY + frame(HEADERS, 0, 1, b"\x83"),
    ],
    ids=["no call", "half a frame", "headers without end"],
)
def test_a_connection_without_a_call_is_cut_when_it_is_idle(
    node: DoorsProcess, sent: bytes
) -> None:
    assert is_told(node, sent, b"connection idle")


@pytest.mark.parametrize("method", ["Topics/List", "Messages/Tail", "Queues/Consume"])
@pytest.mark.parametrize("sent", [b"", HALF_A_MESSAGE], ids=["nothing", "half a message"])
def test_a_call_whose_request_does_not_come_is_ended(
    node: DoorsProcess, method: str, sent: bytes
) -> None:
    assert is_told(node, call_of(method) + sent, b"did not come")


def cut_for(node: DoorsProcess, reason: str) -> float:
    shown = httpx.get(f"{node.http}/metrics", timeout=SECONDS).text
    beginning = f'headrace_connections_cut_total{{door="grpc",reason="{reason}"}}'
    [line] = [line for line in shown.splitlines() if line.startswith(beginning)]
    return float(line.split()[-1])


def test_what_was_cut_is_counted(node: DoorsProcess) -> None:
    assert is_told(node, call_of("Topics/List"), b"did not come")
    assert cut_for(node, "body") >= 1


def is_over(peer: socket.socket) -> bool:
    """Whether the node has hung up, without taking anything from it."""
    polling = select.poll()
    polling.register(peer, select.POLLRDHUP)
    return bool(polling.poll(0))


@pytest.fixture
def large(tmp_path: Path) -> Iterator[tuple[DoorsProcess, bytes]]:
    """A node that takes as many connections as come, and what its topic has."""
    node = DoorsProcess(tmp_path / "data")
    value = random.Random(1).randbytes(VALUE_BYTES)
    with headrace.connect(node.doors["kafka"]) as handle:
        handle.create_topic("large", 1, record_bytes_max=16 * 1024 * 1024)
        handle.publish("large", value)
    yield node, value
    node.stop()


TAIL = pb.TailRequest(topic="large", start=pb.START_EARLIEST)
READ = pb.ReadRequest(topic="large", count=1)


@pytest.mark.parametrize(("method", "wanted"), [("Tail", TAIL), ("Read", READ)])
def test_who_takes_no_large_answers_is_hung_up_on_when_they_are_too_much(
    large: tuple[DoorsProcess, bytes], method: str, wanted: Any
) -> None:
    node, value = large
    encoded = wanted.SerializeToString()
    request = b"\0" + len(encoded).to_bytes(4, "big") + encoded
    host, _, port = node.doors["grpc"].rpartition(":")
    deaf: list[socket.socket] = []
    with ExitStack() as stack:
        for _ in range(DEAF):
            peer = stack.enter_context(socket.create_connection((host, int(port)), SECONDS))
            peer.sendall(call_of(f"Messages/{method}") + frame(DATA, END_STREAM, 1, request))
            deaf.append(peer)
        # Each answer is there twice.
        room_for = limits.UNTAKEN_BYTES_MAX // (2 * VALUE_BYTES)
        while sum(map(is_over, deaf)) < DEAF - room_for:
            pass
        assert cut_for(node, "memory") == DEAF - room_for
        # Who reads gets it beside the others.
        client = GrpcClient(node.doors["grpc"], ("grpc.max_receive_message_length", -1))
        stack.callback(client.close)
        answer = client.messages.Read(READ, timeout=SECONDS)
        assert answer.records[0].value == value


def test_connections_beyond_the_limit_are_refused_and_those_before_go_on(
    node: DoorsProcess,
) -> None:
    with ExitStack() as stack:
        client = GrpcClient(node.doors["grpc"])
        stack.callback(client.close)
        client.topics.List(pb.ListTopicsRequest(), timeout=SECONDS)
        host, _, port = node.doors["grpc"].rpartition(":")
        others = []
        for _ in range(CONNECTIONS_MAX):
            peer = stack.enter_context(socket.create_connection((host, int(port)), SECONDS))
            peer.sendall(READY)
            others.append(peer)
        assert b"" in [peer.recv(1) for peer in others]
        client.topics.List(pb.ListTopicsRequest(), timeout=SECONDS)
