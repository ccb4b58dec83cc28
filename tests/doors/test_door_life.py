"""Doors that cannot open, and doors that close while clients are inside."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.conftest import DoorsProcess, done
from tests.doors.grpc_client import SECONDS, GrpcClient
from tests.doors.plain_http import PlainHttp
from websockets.sync.client import connect

from headrace.core.node_settings import NodeSettings
from headrace.wire.grpc.generated import headrace_pb2 as pb

START = "from headrace.cli.main import main; main()"


def serve(tmp_path: Path, flags: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, "serve", "--data", str(tmp_path / "data"), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("door", ["http", "grpc"])
def test_an_address_that_is_taken_is_said_with_what_to_do(tmp_path: Path, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        addresses = {"kafka": "127.0.0.1:0", "http": "", "grpc": "", door: address}
        flags = [f"--{name}={each}" for name, each in addresses.items()]
        done = serve(tmp_path, flags)
    assert done.returncode == 1
    assert f"cannot listen on {address}: Address already in use" in done.stderr
    assert f"Choose another address with --{door}" in done.stderr


def test_a_default_that_is_given_and_taken_is_said_too(tmp_path: Path) -> None:
    default = NodeSettings().grpc
    with socket.socket() as taken:
        # Whoever has it, it is taken.
        with suppress(OSError):
            taken.bind(("127.0.0.1", int(default.rpartition(":")[2])))
            taken.listen()
        flags = ["--kafka=127.0.0.1:0", "--http=", f"--grpc={default}"]
        done = serve(tmp_path, flags)
    assert done.returncode == 1
    assert f"cannot listen on {default}" in done.stderr


def lease_all(tmp_path: Path) -> list[Any]:
    """What a node that is started again gives at once; it gets it back."""
    node = DoorsProcess(tmp_path / "data")
    try:
        answer = done(
            httpx.post(f"{node.http}/queues/g/lease", json={"topics": ["t"], "count": 10})
        )
        messages: list[Any] = answer["messages"]
        receipts = {"receipts": [each["receipt"] for each in messages]}
        if messages:
            done(httpx.post(f"{node.http}/messages/release", json=receipts))
        return messages
    finally:
        assert node.stop() == 0


def test_a_node_that_stops_ends_its_streams_and_their_leases_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = DoorsProcess(tmp_path / "data")
    address = node.doors["http"]
    done(httpx.post(f"{node.http}/topics", json={"name": "t", "partitions": 1}), 201)
    body = {"messages": [{"value": number} for number in range(4)]}
    done(httpx.post(f"{node.http}/topics/t/messages", json=body))
    streams = GrpcClient(node.doors["grpc"])
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    wanted = pb.ConsumeOpen(group="g", topics=["t"], credit=2, visibility_ms=3_600_000)
    requests.put(pb.ConsumeRequest(open=wanted))
    consuming = streams.queues.Consume(iter(requests.get, None))
    assert next(consuming).opened.consumer
    held = len(next(consuming).deliveries.messages)
    tailing = streams.messages.Tail(pb.TailRequest(topic="t", start=pb.START_EARLIEST))
    assert next(tailing).records
    empty = pb.LeaseRequest(group="empty", topics=["t2"], wait_ms=20_000)
    waiting = streams.queues.Lease.future(empty)
    with connect(f"ws://{address}/ws") as peer, httpx.Client(timeout=SECONDS) as client:
        assert json.loads(peer.recv(timeout=SECONDS))["op"] == "welcome"
        frame = {"op": "dequeue", "id": 1, "topics": ["t"], "group": "g", "credit": 2}
        peer.send(json.dumps({**frame, "visibility": 3600}))
        assert json.loads(peer.recv(timeout=SECONDS))["op"] == "done"
        assert json.loads(peer.recv(timeout=SECONDS))["op"] == "message"
        with client.stream("GET", f"{node.http}/topics/t/events") as events:
            assert next(events.iter_lines()) == ": tailing t"
            node.process.send_signal(signal.SIGTERM)
            assert node.stop() == 0
    for call in (consuming, tailing, waiting):
        call.cancel()
    requests.put(None)
    streams.close()
    assert held
    monkeypatch.setenv("HEADRACE_LEASE_GRACE_MS", "600000")
    assert not {each["value"] for each in lease_all(tmp_path)} & set(range(held))
    # Nobody came back.
    monkeypatch.setenv("HEADRACE_LEASE_GRACE_MS", "0")
    leased = lease_all(tmp_path)
    assert [each["value"] for each in leased] == [0, 1, 2, 3]
    assert leased[0]["attempt"] == 2


def test_what_a_stream_and_a_socket_have_in_hand_is_theirs_when_a_killed_node_is_back(
    tmp_path: Path,
) -> None:
    node = DoorsProcess(tmp_path / "data")
    done(httpx.post(f"{node.http}/topics", json={"name": "t", "partitions": 1}), 201)
    body = {"messages": [{"value": number} for number in range(2)]}
    done(httpx.post(f"{node.http}/topics/t/messages", json=body))
    frame = {"op": "dequeue", "id": 1, "topics": ["t"], "group": "g", "credit": 1}
    held = []
    with closing(GrpcClient(node.doors["grpc"])) as streams:
        first = pb.ConsumeOpen(group="g", topics=["t"], consumer="stream", credit=1)
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(pb.ConsumeRequest(open=first))
        consuming = streams.queues.Consume(iter(requests.get, None))
        assert next(consuming).opened.consumer == "stream"
        held.append(next(consuming).deliveries.messages[0].receipt)
        with connect(f"ws://{node.doors['http']}/ws?consumer=socket") as peer:
            peer.send(json.dumps(frame))
            while (said := json.loads(peer.recv(timeout=SECONDS)))["op"] != "message":
                pass
            held.append(said["message"]["receipt"])
            node.process.kill()
            node.stop()
        consuming.cancel()
        requests.put(None)
    again = DoorsProcess(tmp_path / "data")
    try:
        with closing(GrpcClient(again.doors["grpc"])) as streams:
            first.in_hand.append(held[0])
            requests.put(pb.ConsumeRequest(open=first))
            consuming = streams.queues.Consume(iter(requests.get, None))
            assert next(consuming).opened.lost == []
            with connect(f"ws://{again.doors['http']}/ws?consumer=socket") as peer:
                peer.send(json.dumps({**frame, "in_hand": held[1:]}))
                while (said := json.loads(peer.recv(timeout=SECONDS)))["op"] != "done":
                    pass
                assert "lost" not in said
                settled = done(httpx.post(f"{again.http}/messages/ack", json={"receipts": held}))
                assert [each["ok"] for each in settled["results"]] == [True, True]
            consuming.cancel()
            requests.put(None)
    finally:
        assert again.stop() == 0


def test_a_node_that_stops_answers_those_who_wait(tmp_path: Path) -> None:
    node = DoorsProcess(tmp_path / "data")

    async def run() -> list[tuple[int, Any]]:
        address = node.doors["http"]
        other = await PlainHttp(address).connect()
        await other.ask("/topics", {"name": "t", "partitions": 1})
        member = await other.ask("/subscribe", {"group": "streams", "topics": ["t"]})
        waiting = [await PlainHttp(address).connect() for _ in range(4)]
        for poll in waiting[:2]:
            poll.send("POST", "/queues/g/lease", {"topics": ["t"], "wait": 30})
        waiting[2].send("GET", "/consume?topic=t&wait=30", {})
        path = f"/groups/streams/members/{member['member_id']}/poll"
        waiting[3].send("POST", path, {"generation": member["generation"], "wait": 30})
        # What was sent before on other connections has been heard of by then.
        later = await PlainHttp(address).connect()
        await later.ask("/queues/g/lease", {"topics": ["t"]})
        node.process.send_signal(signal.SIGTERM)
        answers = [await poll.receive() for poll in waiting]
        for each in (other, later, *waiting):
            each.close()
        return answers

    try:
        answers = asyncio.run(run())
    finally:
        assert node.stop() == 0
    assert [(status, found["messages"]) for status, found in answers] == [(200, [])] * 4


@pytest.mark.parametrize("behind", [0, 3])
def test_a_poll_whose_client_is_gone_leases_nothing(
    doors: DoorsProcess, topic: str, behind: int
) -> None:
    """What comes is for the next who asks, and not for somebody who left, with or without
    requests sent behind the poll."""
    lease = {"topics": [topic], "wait": 30, "visibility": 3600}

    async def run() -> Any:
        address = doors.doors["http"]
        gone = await PlainHttp(address).connect()
        gone.send("POST", f"/queues/g-{topic}/lease", lease)
        for _ in range(behind):
            gone.send("GET", "/health/live", None)
        other = await PlainHttp(address).connect()
        group = {"topics": [topic], "count": 1}
        # The group is there, so the poll before has been heard of, or will find it.
        await other.ask(f"/queues/g-{topic}/lease", group)
        gone.close()
        # The node sees the end of a connection before it reads what comes on another
        # that is made after it.
        later = await PlainHttp(address).connect()
        await later.ask(f"/queues/g-{topic}/lease", group)
        await later.ask(f"/topics/{topic}/messages", {"value": "for the living"})
        found = await later.ask(f"/queues/g-{topic}/lease", lease)
        other.close()
        later.close()
        return found

    [message] = asyncio.run(run())["messages"]
    assert (message["value"], message["attempt"]) == ("for the living", 1)
