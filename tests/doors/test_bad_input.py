"""What makes no sense is refused at every door: with the right status, and words that say
what to do; and the door serves whoever comes next."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import httpx
import msgspec
import pytest
from tests.doors.conftest import DoorsProcess, done, refused
from tests.doors.grpc_client import SECONDS, GrpcClient
from tests.doors.grpc_client import refused as grpc_refused
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from headrace.core import limits
from headrace.wire.grpc.generated import headrace_pb2 as pb

DEEP = b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
MESSAGES = [{"value": 1}] * (limits.HTTP_MESSAGES_MAX + 1)
TOO_MANY = {"op": "enqueue", "id": 1, "topic": "x", "messages": MESSAGES}
LARGE = b"x" * (limits.HTTP_BODY_BYTES_MAX + 1)


@pytest.fixture
def client(doors: DoorsProcess) -> Iterator[GrpcClient]:
    made = GrpcClient(doors.doors["grpc"])
    yield made
    made.close()


@pytest.fixture
def peer(doors: DoorsProcess) -> Iterator[ClientConnection]:
    with connect(f"ws://{doors.doors['http']}/ws", max_size=None) as made:
        assert json.loads(made.recv(timeout=SECONDS))["op"] == "welcome"
        yield made


# HTTP.


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("/topics/{topic}/messages", b'{"value": 1', "the body is not what this takes"),
        ("/topics/{topic}/messages", b"\xff\xfe", "the body is not what this takes"),
        ("/topics/{topic}/messages", b'{"value": "\\ud800"}', "half of a character"),
        ("/topics/{topic}/messages", b'{"value": 1, "key": "x\\ud83d!"}', "half of a character"),
        ("/topics/{topic}/messages", b'{"value": 1, "key": "\\\\ud83d"', "truncated"),
        ("/topics/{topic}/messages", b'{"value": 1, "delay": "soon"}', "`$.delay`"),
        ("/topics/{topic}/messages", b'{"value": 1, "delay": 1e999}', "delay"),
        ("/topics/{topic}/messages", b'{"value": 1, "priority": "urgent"}', "`$.priority`"),
        ("/topics/{topic}/messages", b'[{"value": 1}]', "Expected `object`"),
        ("/topics/{topic}/messages", DEEP, "recursion"),
        ("/topics", b'{"name": 17}', "`$.name`"),
        ("/topics", b'{"name": "x", "partitions": 0}', "`$.partitions`"),
        ("/queues/g/lease", b'{"topics": "orders"}', "`$.topics`"),
        ("/messages/ack", b'{"receipts": "AAAA"}', "`$.receipts`"),
        ("/messages/ack", b'{"receipt": "AAAA", "receipts": []}', "give one `receipt`, or many"),
        ("/messages", b"{}", "give `messages` to publish"),
    ],
)
def test_http_says_which_part_of_a_body_is_wrong(
    http: httpx.Client, topic: str, path: str, body: bytes, word: str
) -> None:
    answer = http.post(path.format(topic=topic), content=body)
    assert word in refused(answer, 400, "invalid-argument")
    assert done(http.get(f"/topics/{topic}"))["partitions"][0]["end_offset"] == 0


def test_http_refuses_a_body_that_is_too_large_however_it_comes(
    http: httpx.Client, topic: str
) -> None:
    path = f"/topics/{topic}/messages"
    pieces = (LARGE[at : at + 1024 * 1024] for at in range(0, len(LARGE), 1024 * 1024))
    for content in (LARGE, pieces):
        detail = refused(http.post(path, content=content), 413, "body-too-large")
        assert "send several smaller ones" in detail


def test_http_takes_large_bodies_only_where_messages_are_published(http: httpx.Client) -> None:
    receipts = b'{"receipts": ["%b"]}' % (b"x" * limits.HTTP_REQUEST_BYTES_MAX)
    detail = refused(http.post("/messages/ack", content=receipts), 413, "body-too-large")
    assert f"{limits.HTTP_REQUEST_BYTES_MAX} bytes" in detail


def test_http_refuses_more_messages_than_one_request_may_have(
    http: httpx.Client, topic: str
) -> None:
    path = f"/topics/{topic}/messages"
    answer = http.post(path, json={"messages": MESSAGES})
    detail = refused(answer, 413, "too-many-messages")
    assert "send several smaller ones" in detail
    # What is in a message is not counted.
    many = {"messages": [{"value": [1] * limits.HTTP_MESSAGES_MAX}, {"value": 2}]}
    assert len(done(http.post(path, json=many))["messages"]) == 2
    most = {"messages": [{"value": 3}] * limits.HTTP_MESSAGES_MAX}
    assert len(done(http.post(path, json=most))["messages"]) == limits.HTTP_MESSAGES_MAX


@pytest.mark.parametrize("size", [0, 100_000])
def test_http_refuses_json_that_is_not_utf_8(http: httpx.Client, topic: str, size: int) -> None:
    body = b'{"messages": [{"value": "%b\xff"}]}' % (b"x" * size)
    answer = http.post(
        f"/topics/{topic}/messages", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert "utf-8" in answer.json()["detail"]
    assert http.get(f"/topics/{topic}/messages").json()["messages"] == []


@pytest.mark.parametrize("parameter", ["key", "dedup_id"])
def test_http_refuses_a_query_that_is_not_utf_8(
    http: httpx.Client, topic: str, parameter: str
) -> None:
    answer = http.post(
        f"/topics/{topic}/messages?{parameter}=%ff",
        content=b"x",
        headers={"content-type": "text/plain"},
    )
    assert answer.status_code == 400
    assert "not UTF-8" in answer.json()["detail"]


def test_http_refuses_a_request_with_two_hosts(doors: DoorsProcess) -> None:
    host, _, port = doors.doors["http"].rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as made:
        made.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n")
        assert made.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_http_refuses_headers_without_end(doors: DoorsProcess) -> None:
    host, _, port = doors.doors["http"].rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as made:
        made.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n")
        # As long as nobody answers, more of them.
        for number in range(100_000):
            if select.select([made], [], [], 0.01)[0]:
                break
            made.sendall(b"x-%d: %b\r\n" % (number, b"y" * 1000))
        received = b""
        with suppress(ConnectionResetError):
            while piece := made.recv(65_536):
                received += piece
    assert received.startswith(b"HTTP/1.1 431 ")
    problem = json.loads(received.partition(b"\r\n\r\n")[2])
    assert (problem["code"], problem["status"]) == ("head-too-large", 431)
    assert "fewer or shorter headers" in problem["detail"]


def test_http_wants_json_to_be_called_so(http: httpx.Client, topic: str) -> None:
    answer = http.post("/topics", content=b"{}", headers={"content-type": "text/csv"})
    assert "application/json" in refused(answer, 415, "unsupported-media-type")
    assert "see /docs" in refused(http.get("/nowhere"), 404, "unknown-path")
    assert "see /docs" in refused(http.put("/topics", json={}), 405, "method-not-allowed")


# WebSocket.


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        ("{", "the frame is not what this takes"),
        ('{"op": "tail", "id": 1, "topic": "\\ud800"}', "half of a character"),
        ("[1, 2]", "Expected `object`"),
        (json.dumps({"op": "ack", "id": 1, "receipts": "AAAA"}), "`$.receipts`"),
        (json.dumps({"op": "enqueue", "id": 1, "topic": "x", "messages": [{"vale": 1}]}), "vale"),
        ('{"op": "enqueue", "id": 1, "topic": "x", "messages": [' + DEEP.decode() + "]}", "recur"),
        (b"\xc1", "the frame is not what this takes"),
        (b"\x91" * 100_000, "the frame is not what this takes"),
        (msgspec.msgpack.encode({"op": "fly", "id": 1}), "Invalid value 'fly'"),
        (json.dumps(TOO_MANY), "publishes at most"),
        (msgspec.msgpack.encode(TOO_MANY), "publishes at most"),
    ],
)
def test_a_websocket_says_which_part_of_a_frame_is_wrong(
    peer: ClientConnection, frame: str | bytes, word: str
) -> None:
    peer.send(frame)
    assert word in _read(peer)["detail"]
    peer.send(json.dumps({"op": "ack", "id": 2, "receipts": ["nonsense"]}))
    [result] = _read(peer)["results"]
    assert result["code"] == "invalid-receipt"
    assert "pass the one that came with the message" in result["detail"]


def test_a_websocket_that_sends_too_much_at_once_is_told_why_it_ends(
    peer: ClientConnection,
) -> None:
    with pytest.raises(ConnectionClosedError, match="1009"):
        peer.send(LARGE)
        peer.recv(timeout=SECONDS)


def _read(peer: ClientConnection) -> dict[str, Any]:
    received = peer.recv(timeout=SECONDS)
    decoded = (
        json.loads(received) if isinstance(received, str) else msgspec.msgpack.decode(received)
    )
    assert isinstance(decoded, dict)
    return decoded


# gRPC.


def test_grpc_refuses_bytes_that_are_no_request(client: GrpcClient) -> None:
    call = client.channel.unary_unary("/headrace.v1.Queues/Ack")
    detail = grpc_refused(
        lambda: call(b"\xff\xff\xff", timeout=SECONDS),
        grpc.StatusCode.INVALID_ARGUMENT,
        "malformed-message",
    )
    assert "this is not a AckRequest of headrace.v1" in detail


def test_grpc_refuses_what_is_too_large_and_says_how_much_is_not(
    client: GrpcClient, topic: str
) -> None:
    many = pb.PublishRequest(topic=topic, messages=[pb.NewMessage(value=bytes(90))] * 30_000)
    detail = grpc_refused(
        lambda: client.messages.Publish(many, timeout=SECONDS),
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid-argument",
    )
    assert "send several" in detail
    large = pb.PublishRequest(topic=topic, messages=[pb.NewMessage(value=bytes(20_000_000))])
    detail = grpc_refused(
        lambda: client.messages.Publish(large, timeout=SECONDS),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "limit-exceeded",
    )
    assert str(limits.GRPC_MESSAGE_BYTES_MAX) in detail
    assert "send less at once" in detail
    assert [each.offset for each in client.publish(topic, b"small")] == [0]


def test_grpc_refuses_metadata_without_end(client: GrpcClient, topic: str) -> None:
    endless = [(f"x-{number}", "y" * 1000) for number in range(64)]
    with pytest.raises(grpc.RpcError):
        client.node.Describe(pb.DescribeNodeRequest(), metadata=endless, timeout=SECONDS)
    assert [each.offset for each in client.publish(topic, b"small")] == [0]


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        (pb.LeaseRequest(group="g"), "at least one topic"),
        (pb.LeaseRequest(group="g", topics=["x"], wait_ms=60_000), "ask again to wait longer"),
        (pb.LeaseRequest(group="g", topics=["x"], visibility_ms=-1), "a lease lasts"),
        (pb.LeaseRequest(group="g", topics=["x"], settings={"backof_ms": "1"}), "backof_ms"),
        (pb.LeaseRequest(group="g", topics=["x"], consumer=""), "a consumer id"),
    ],
)
def test_grpc_says_which_part_of_a_lease_is_wrong(
    client: GrpcClient, wanted: Any, word: str
) -> None:
    detail = grpc_refused(
        lambda: client.queues.Lease(wanted, timeout=SECONDS),
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid-argument",
    )
    assert word in detail


def test_grpc_refuses_a_transaction_that_names_a_topic_twice_or_is_empty(
    client: GrpcClient, topic: str
) -> None:
    publication = pb.PublishRequest(topic=topic, messages=[pb.NewMessage(value=b"x")])
    twice = pb.TransactRequest(publications=[publication, publication])
    detail = grpc_refused(
        lambda: client.messages.Transact(twice, timeout=SECONDS),
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid-argument",
    )
    assert "name each topic once" in detail
    detail = grpc_refused(
        lambda: client.messages.Transact(pb.TransactRequest(), timeout=SECONDS),
        grpc.StatusCode.INVALID_ARGUMENT,
        "invalid-argument",
    )
    assert "without messages, positions or acks" in detail


def test_grpc_moves_a_cursor_in_a_transaction(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"in")
    position = pb.Position(topic=topic, partition=0, offset=1)
    answer = client.messages.Transact(
        pb.TransactRequest(
            publications=[pb.PublishRequest(topic=topic, messages=[pb.NewMessage(value=b"out")])],
            commits=[pb.CommitRequest(group=f"s-{topic}", positions=[position])],
        ),
        timeout=SECONDS,
    )
    assert [each.offset for each in answer.publications[0].places] == [1]
    wanted = pb.CommittedRequest(group=f"s-{topic}", topic=topic)
    assert client.groups.Committed(wanted).offsets[0] == 1
