"""Who asks and until when, at every method of every door, as the engine's calls have it.

Every request here is one that its door takes; most are about what is not there, which only
the engine can tell.
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import grpc
import pytest
from tests.contract.doors.door import New
from tests.contract.doors.http_door import HttpDoor
from tests.contract.loop_node import LoopNode
from tests.property.api_requests import Ask, Standing, requests
from websockets.sync.client import connect

from headrace.core import limits
from headrace.core.request_context import ANONYMOUS, REQUEST_SECONDS_MAX, RequestContext
from headrace.core.settings import OffsetReset
from headrace.core.trace_values import TraceQuery
from headrace.core.values import (
    Acknowledged,
    CursorMove,
    Headers,
    MessageId,
    Outgoing,
    PlacedBatch,
    Publication,
    Receipt,
)
from headrace.platform.clock import SystemClock
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server.http.route import Call as HttpCall
from headrace.server.http.route import Route
from headrace.server.http.table import ROUTES
from headrace.server.kafka.door import Call, Door
from headrace.server.kafka.handlers import HANDLERS
from headrace.server.loop_calls import _LoopFace
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.http import frames
from headrace.wire.http.examples import EXAMPLES, QUERY_EXAMPLES
from headrace.wire.kafka.api import encode_request
from headrace.wire.kafka.frame import encode_request_frame
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest
from headrace.wire.remote import codec
from headrace.wire.remote.methods import METHODS, Many, Place, Settings

TOPIC, GROUP = "orders", "billing"
PATIENCE_SECONDS = 60
CLIENT_SECONDS = 25.0
RECEIPT = Receipt(bytes(16), 0, 1, 0, 1, 1)
# What is answered without a call: from what the node knows of itself.
WITHOUT_A_CALL = {
    "http": {
        "GET /overview", "GET /overview/topics", "GET /overview/groups", "GET /node",
        "GET /node/live", "GET /dead-letters",
    },
    "grpc": {"Node/Describe"},
    "sdk": {"hello", "watch", "overview", "figures"},
    "websocket": {"GiveCredit", "Stop"},
}  # fmt: skip


class Seen(NamedTuple):
    """What the engine's calls, and the handlers of Kafka's door, were handed."""

    calls: list[RequestContext]
    routes: list[RequestContext]
    kafka: list[tuple[int, RequestContext]]

    def clear(self) -> None:
        for each in self:
            each.clear()


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    found = Seen([], [], [])
    begin, begin_route, dispatch = _LoopFace.begin, HttpCall.begin, Door._dispatch

    def note_call(face: _LoopFace, looks_left: int, context: RequestContext) -> Any:
        found.calls.append(context)
        return begin(face, looks_left, context)

    def note_route(call: HttpCall) -> None:
        begin_route(call)
        found.routes.append(call.calls.context)

    def note_kafka(door: Door, call: Call, *others: Any) -> None:
        found.kafka.append((call.api.key, call.context))
        dispatch(door, call, *others)

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(_LoopFace, "begin", note_call)
        patching.setattr(HttpCall, "begin", note_route)
        patching.setattr(Door, "_dispatch", note_kafka)
        yield found


@pytest.fixture(scope="module")
def node(seen: Seen) -> Iterator[LoopNode]:
    opened = LoopNode(MemoryDisk(), SystemClock(), ("kafka", "http", "grpc"))
    # Its threads start as they are needed: here, and not within a test.
    door = HttpDoor(str(opened.addresses["http"]))
    door.create_topic("warm", 8)
    door.publish("warm", *(New(b"x", partition=number) for number in range(8)))
    door.delete_topic("warm")
    door.create_topic(TOPIC)
    door.close()
    yield opened
    opened.close()


def check(contexts: list[RequestContext], within_seconds: float = REQUEST_SECONDS_MAX) -> None:
    now = time.monotonic()
    for each in contexts:
        assert each.principal == ANONYMOUS
        assert now - PATIENCE_SECONDS < each.deadline <= now + within_seconds


# HTTP.


def body_of(route: Route, name: str, group_id: int) -> bytes | None:
    if route.body is None:
        return None
    body = dict(EXAMPLES.get(name, {}))
    if "wait" in body:
        body["wait"] = 0.01
    if "receipt" in body:
        body["receipt"] = RECEIPT._replace(group_id=group_id).encode()
    return json.dumps(body).encode()


def posted(node: LoopNode, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(str(node.addresses["http"]), timeout=PATIENCE_SECONDS)
    connection.request("POST", path, json.dumps(body))
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def subscribed(node: LoopNode) -> str:
    """A member of a stream group, as its routes name it."""
    return str(posted(node, "/subscribe", {"group": "readers", "topics": [TOPIC]})["member_id"])


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_of_http_says_who_asks_and_until_when(
    route: Route, node: LoopNode, seen: Seen
) -> None:
    name = f"{route.method} {route.path}"
    # Other routes may have deleted them.
    posted(node, "/topics", {"name": TOPIC})
    posted(node, f"/queues/{GROUP}/lease", {"topics": [TOPIC]})
    assert node.broker is not None
    group_id = node.broker.topics.catalog.groups[GROUP].id
    is_of_member = "{member}" in route.path
    path = route.path.format(
        topic=TOPIC,
        group="readers" if is_of_member else GROUP,
        member=subscribed(node) if is_of_member else "",
        partition=0,
        offset=0,
        message=f"{TOPIC}:0:0",
    )
    seen.clear()
    query = "&".join(f"{key}={value}" for key, value in QUERY_EXAMPLES.get(name, {}).items())
    connection = http.client.HTTPConnection(str(node.addresses["http"]), timeout=PATIENCE_SECONDS)
    headers = {"x-request-id": "walk-1", "content-type": "application/json"}
    connection.request(route.method, f"{path}?{query}", body_of(route, name, group_id), headers)
    answer = connection.getresponse()
    assert answer.status not in (405, 500), answer.read()
    connection.close()
    [context] = seen.routes
    assert (context.principal, context.request_id) == (ANONYMOUS, "walk-1")
    check(seen.calls, REQUEST_SECONDS_MAX + 30)
    assert {each.request_id for each in seen.calls} <= {"walk-1"}
    assert bool(seen.calls) != (name in WITHOUT_A_CALL["http"]), answer.status


def test_every_frame_of_a_websocket_says_who_asks_and_until_when(
    node: LoopNode, seen: Seen
) -> None:
    walked = set()
    headers = {"x-request-id": "walk-2"}
    with connect(f"ws://{node.addresses['http']}/ws", additional_headers=headers) as websocket:
        json.loads(websocket.recv(timeout=PATIENCE_SECONDS))

        def send(kind: type, **fields: Any) -> None:
            seen.clear()
            walked.add(kind.__name__)
            op = kind.__struct_config__.tag  # type: ignore[attr-defined]
            if kind is not frames.GiveCredit:
                fields["id"] = len(walked)
            websocket.send(json.dumps({"op": op, **fields}))
            if kind is not frames.GiveCredit:
                told = json.loads(websocket.recv(timeout=PATIENCE_SECONDS))
                assert told["op"] == "done", told
            check(seen.calls)
            assert {each.request_id for each in seen.calls} <= {"walk-2"}
            assert seen.calls or kind.__name__ in WITHOUT_A_CALL["websocket"]

        send(frames.Enqueue, topic="walked", messages=[{"value": 1}])
        send(frames.Dequeue, topics=["walked"], group="walkers")
        subscription = len(walked)
        told = json.loads(websocket.recv(timeout=PATIENCE_SECONDS))
        check(seen.calls)
        receipts = [told["message"]["receipt"]]
        send(frames.GiveCredit, subscription=subscription, credit=1)
        send(frames.Extend, receipts=receipts, visibility=30)
        for kind in (frames.Nack, frames.Reject, frames.Release, frames.Ack):
            send(kind, receipts=receipts)
        send(frames.Stop, subscription=subscription)
        send(frames.Tail, topic="walked")
        send(frames.Commit, subscription=len(walked), positions={"0": 0})
    assert walked == {each.__name__ for each in get_args(frames.Request)}


# gRPC.

METHODS_OF_GRPC = [
    (name, method) for name, service in pb.DESCRIPTOR.services_by_name.items()
    for method in service.methods
]  # fmt: skip


LEFT_OUT = {"settings", "after", "wait_ms", "start", "priority", "outcome", "headers", "header"}


def filled(message: Any, receipt: str) -> Any:
    """With something in every field that a call needs."""
    for field in message.DESCRIPTOR.fields:
        if field.name in LEFT_OUT:
            continue
        value = getattr(message, field.name)
        is_many = hasattr(value, "append") or hasattr(value, "add")
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            filled(value.add() if is_many else value, receipt)
            if not is_many:
                value.SetInParent()
        elif field.name in ("receipts", "acks"):
            value.append(receipt)
        elif field.name == "message":
            message.message = f"{TOPIC}:0:0"
        elif field.cpp_type == field.CPPTYPE_STRING and field.type == field.TYPE_STRING:
            text = GROUP if field.name == "group" else TOPIC
            if is_many:
                value.append(text)
            else:
                setattr(message, field.name, text)
        elif field.name in ("partitions", "count", "limit", "credit"):
            setattr(message, field.name, 1)
    return message


@pytest.fixture
def leased(node: LoopNode) -> str:
    """A receipt of the topic and the group that the requests name."""
    with grpc.insecure_channel(str(node.addresses["grpc"])) as channel:

        def ask(name: str, request: Any, answer: Any) -> Any:
            path = f"/{pb.DESCRIPTOR.package}.{name}"
            method = channel.unary_unary(path, request.SerializeToString, answer.FromString)
            return method(request, timeout=PATIENCE_SECONDS)

        messages = [pb.NewMessage(value=b"x")]
        ask("Topics/Create", pb.CreateTopicRequest(name=TOPIC, exist_ok=True), pb.Topic)
        publishing = pb.PublishRequest(topic=TOPIC, messages=messages)
        ask("Messages/Publish", publishing, pb.PublishResponse)
        leasing = pb.LeaseRequest(group=GROUP, topics=[TOPIC], wait_ms=1_000)
        [message] = ask("Queues/Lease", leasing, pb.LeaseResponse).messages
        return str(message.receipt)


@pytest.mark.parametrize(
    ("noun", "method"), METHODS_OF_GRPC, ids=[f"{name}/{m.name}" for name, m in METHODS_OF_GRPC]
)
def test_every_method_of_grpc_says_who_asks_and_until_when(
    noun: str, method: Any, node: LoopNode, seen: Seen, leased: str
) -> None:
    request_type: Any = getattr(pb, method.input_type.name)
    request = filled(request_type(), leased)
    if method.name == "Consume":
        opening = pb.ConsumeOpen(group="readers", topics=[TOPIC], consumer="c", credit=0)
        request = pb.ConsumeRequest(id=1, open=opening)
    if method.name == "Tail":
        request = pb.TailRequest(topic=TOPIC, start=pb.START_EARLIEST)
    path = f"/{method.containing_service.full_name}/{method.name}"
    is_stream = method.server_streaming
    with grpc.insecure_channel(str(node.addresses["grpc"])) as channel:
        seen.clear()
        metadata = (("x-request-id", "walk-3"),)
        call = channel.stream_stream(path)(
            iter([request.SerializeToString()]), timeout=CLIENT_SECONDS, metadata=metadata
        )
        try:
            next(call, None)
        except grpc.RpcError as error:
            assert error.code() not in (
                grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            ), error  # fmt: skip
        contexts = list(seen.calls)
        call.cancel()
    # grpc itself rounds what it tells of the time that is left.
    check(contexts, REQUEST_SECONDS_MAX if is_stream else CLIENT_SECONDS + 1)
    assert {each.request_id for each in contexts} <= {"walk-3"}
    assert bool(contexts) != (f"{noun}/{method.name}" in WITHOUT_A_CALL["grpc"])


# The SDK's sessions.

SCALARS: dict[Any, Any] = {
    str: TOPIC, int: 1, bool: False, bytes: b"x", Headers: (), Settings: {},
    OffsetReset: "earliest", dict[Place, int]: {(TOPIC, 0): 0}, MessageId: MessageId(TOPIC, 0, 0),
    Outgoing: Outgoing(b"x"), Receipt: RECEIPT, Publication: Publication(TOPIC, [Outgoing(b"x")]),
    PlacedBatch: PlacedBatch(TOPIC, 0, build_batch([NewRecord(None, b"x")])),
    CursorMove: CursorMove("readers", [(TOPIC, 0, 0)]), TraceQuery: TraceQuery(),
    Acknowledged: Acknowledged(GROUP, [RECEIPT]),
}  # fmt: skip


def argument(name: str, wanted: Any) -> Any:
    if name == "what":
        return f"{TOPIC}:0:0"
    if isinstance(wanted, Many):
        return [SCALARS[wanted.element]]
    return SCALARS.get(wanted)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "watch"])
def test_every_method_of_the_sdk_says_who_asks_and_until_when(
    name: str, node: LoopNode, seen: Seen
) -> None:
    seen.clear()
    parameters = METHODS[name].parameters
    request = codec.encode_request(
        name, tuple(argument(each, wanted) for each, wanted in parameters.items())
    )
    with socket.create_connection(node.address, PATIENCE_SECONDS) as line:
        line.sendall(codec.encode_request_frame(1, b"walk", request))
        [answer] = received(line, 1)
    assert codec.decode_answer_id(answer) == 1
    check(seen.calls)
    assert bool(seen.calls) != (name in WITHOUT_A_CALL["sdk"])


# Kafka's APIs.

WALKED = requests(Standing(bytes(16), "m", "m", 1, 0))


def test_every_api_of_kafkas_door_is_walked() -> None:
    assert {each.key for each in WALKED} == set(HANDLERS)


@pytest.mark.parametrize("ask", WALKED, ids=lambda ask: ask.label)
def test_every_api_of_kafkas_door_says_who_asks_and_until_when(
    ask: Ask, node: LoopNode, seen: Seen
) -> None:
    seen.clear()
    body = encode_request(ask.key, ask.version, ask.request)
    with socket.create_connection(node.address, PATIENCE_SECONDS) as line:
        line.sendall(b"".join(encode_request_frame(ask.key, ask.version, 7, "walk", body)))
        if not ask.has_answer:
            follow = encode_request(18, 0, ApiVersionsRequest())
            line.sendall(b"".join(encode_request_frame(18, 0, 8, "walk", follow)))
        received(line, 1)
    key, context = seen.kafka[0]
    assert (key, context.request_id) == (ask.key, 7)
    timeout_ms = getattr(ask.request, "timeout_ms", 0)
    wait_ms = getattr(ask.request, "max_wait_ms", 0)
    longest_ms = min(timeout_ms, limits.REQUEST_MS_MAX) if timeout_ms > 0 else (
        wait_ms + limits.REQUEST_MS_MAX
    )  # fmt: skip
    check([context, *seen.calls], longest_ms / 1000)


def received(line: socket.socket, count: int) -> list[bytes]:
    """So many frames; fewer when the node hangs up."""
    found = []
    with line.makefile("rb") as stream:
        for _ in range(count):
            size = stream.read(4)
            if len(size) < 4:
                break
            found.append(stream.read(struct.unpack(">i", size)[0]))
    return found
