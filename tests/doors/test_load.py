"""Hundreds of consumers at once, some of them killed, some of them deaf.

`make load` runs these at length: HEADRACE_LOAD_MESSAGES says how many messages flow.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.doors.conftest import DoorsProcess, done
from tests.doors.grpc_client import GrpcClient
from tests.doors.plain_http import PlainHttp
from websockets.asyncio.client import ClientConnection, connect

from headrace.wire.grpc.generated import headrace_pb2 as pb

POLLS = 500
SOCKETS = 200
CREDIT = 4
HELD = 50
MESSAGES = int(os.environ.get("HEADRACE_LOAD_MESSAGES", "1500"))
PUBLISHED_AT_ONCE = 50
WAIT_SECONDS = 120 + MESSAGES / 100

# What a node may hold for consumers that do not read, whatever there is for them.
DEAF_SOCKETS = 10
DEAF_STREAMS = 5
# Of 64 KiB each; held for all of them, they would be 768 MB.
DEAF_MESSAGES = 400
DEAF_MEGABYTES_MAX = 150


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorsProcess]:
    """One of our own: others would be slow beside it, and its memory is looked at."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    process = DoorsProcess(tmp_path_factory.mktemp("load") / "data")
    yield process
    assert process.stop() == 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def client(node: DoorsProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http, timeout=60) as made:
        yield made


class Ledger:
    """What was published and what was acknowledged; and that nothing which was
    acknowledged is ever delivered again."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.acked: set[int] = set()
        self.deliveries = 0
        self.is_complete = asyncio.Event()

    def on_delivered(self, number: int) -> None:
        self.deliveries += 1
        assert number not in self.acked, f"{number} was acknowledged, and came back"

    def on_acked(self, number: int) -> None:
        self.acked.add(number)
        if len(self.acked) == self.total:
            self.is_complete.set()


async def poll(address: str, topic: str, ledger: Ledger, started: asyncio.Semaphore) -> None:
    connection = await PlainHttp(address).connect()
    wanted = {"topics": [topic], "count": 2, "wait": 20, "visibility": 30}
    connection.send("POST", f"/queues/g-{topic}/lease", wanted)
    started.release()
    try:
        while True:
            _, leased = await connection.receive()
            for message in leased["messages"]:
                ledger.on_delivered(message["value"])
            receipts = [message["receipt"] for message in leased["messages"]]
            if receipts:
                answer = await connection.ask("/messages/ack", {"receipts": receipts})
                for message, result in zip(leased["messages"], answer["results"], strict=True):
                    if result["ok"]:
                        ledger.on_acked(message["value"])
            connection.send("POST", f"/queues/g-{topic}/lease", wanted)
    finally:
        connection.close()


async def listen(address: str, topic: str, ledger: Ledger, started: asyncio.Semaphore) -> None:
    async with connect(f"ws://{address}/ws") as connection:
        await connection.recv()
        await _send(
            connection, op="dequeue", id=1, topics=[topic], group=f"g-{topic}", credit=CREDIT
        )
        started.release()
        waiting: dict[int, int] = {}
        async for text in connection:
            frame = json.loads(text)
            if frame["op"] == "message":
                number, receipt = frame["message"]["value"], frame["message"]["receipt"]
                ledger.on_delivered(number)
                waiting[number + 2] = number
                await _send(connection, op="ack", id=number + 2, receipts=[receipt])
                await _send(connection, op="credit", subscription=1, credit=1)
            elif frame.get("results"):
                number = waiting.pop(frame["id"])
                if frame["results"][0]["ok"]:
                    ledger.on_acked(number)


async def _send(connection: ClientConnection, **frame: Any) -> None:
    await connection.send(json.dumps(frame))


async def publish(address: str, topic: str, numbers: range) -> None:
    connection = await PlainHttp(address).connect()
    for start in range(numbers.start, numbers.stop, PUBLISHED_AT_ONCE):
        some = range(start, min(start + PUBLISHED_AT_ONCE, numbers.stop))
        body = {"messages": [{"value": number} for number in some]}
        await connection.ask(f"/topics/{topic}/messages", body)
    connection.close()


async def flow(node: DoorsProcess, topic: str, holder: subprocess.Popen[str]) -> Ledger:
    address = node.doors["http"]
    ledger = Ledger(3 * HELD + MESSAGES)
    started = asyncio.Semaphore(0)
    consumers = [
        asyncio.create_task(work(address, topic, ledger, started))
        for work, count in ((poll, POLLS), (listen, SOCKETS))
        for _ in range(count)
    ]
    try:
        for _ in consumers:
            await started.acquire()
        half = 3 * HELD + MESSAGES // 2
        await publish(address, topic, range(3 * HELD, half))
        # It leaves as a machine does that loses its power: without a word.
        holder.kill()
        await publish(address, topic, range(half, ledger.total))
        complete = asyncio.create_task(ledger.is_complete.wait())
        ended, _ = await asyncio.wait(
            (complete, *consumers), timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        for each in ended:
            each.result()
        assert ledger.is_complete.is_set(), f"{len(ledger.acked)} of {ledger.total} are done"
    finally:
        for each in consumers:
            each.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
    return ledger


def test_nothing_is_lost_and_nothing_acknowledged_comes_back(
    node: DoorsProcess, client: httpx.Client, name: str
) -> None:
    done(client.post("/topics", json={"name": name, "partitions": 2}), 201)
    body = {"messages": [{"value": number} for number in range(3 * HELD)]}
    done(client.post(f"/topics/{name}/messages", json=body))
    holder = subprocess.Popen(
        [
            sys.executable, "-m", "tests.doors.holding", node.doors["http"], node.doors["grpc"],
            name, f"g-{name}", str(HELD),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "holding\n"
            ledger = asyncio.run(flow(node, name, holder))
        finally:
            holder.kill()
    # Every message that the killed process held was delivered a second time.
    assert ledger.deliveries >= ledger.total
    [counts] = done(client.get("/reliability/stats", params={"group": f"g-{name}"}))["groups"]
    assert (counts["depth"], counts["leased"], counts["dead_lettered"]) == (0, 0, 0)
    assert counts["acked"] == ledger.total
    assert counts["lease_expired"] >= HELD


def test_consumers_that_never_read_cost_a_node_little(
    node: DoorsProcess, client: httpx.Client, name: str
) -> None:
    done(client.post("/topics", json={"name": name, "partitions": 2}), 201)
    kind = {"content-type": "application/octet-stream"}
    for _ in range(DEAF_MESSAGES):
        path = f"/topics/{name}/messages"
        done(client.post(path, content=bytes(64 * 1024), headers=kind))
    before = _megabytes(node)
    deaf = [_deaf_socket(node.doors["http"], name, number) for number in range(DEAF_SOCKETS)]
    streams = GrpcClient(node.doors["grpc"])
    # Their requests do not end before they are told to, or the streams would.
    requests: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(DEAF_STREAMS)]
    opened = []
    for number, each in enumerate(requests):
        group = f"{name}-stream-{number}"
        wanted = pb.ConsumeOpen(group=group, topics=[name], credit=10_000)
        each.put(pb.ConsumeRequest(open=wanted))
        opened.append(streams.queues.Consume(iter(each.get, None)))
    tails = [
        streams.messages.Tail(pb.TailRequest(topic=name, start=pb.START_EARLIEST))
        for _ in range(DEAF_STREAMS)
    ]
    # Others are served meanwhile, and what they are given shows that time has passed.
    for _ in range(10):
        leased = done(
            client.post("/queues/alive/lease", json={"topics": [name], "count": 20, "wait": 20})
        )
        receipts = [each["receipt"] for each in leased["messages"]]
        done(client.post("/messages/ack", json={"receipts": receipts}))
        assert receipts
    assert _megabytes(node) - before < DEAF_MEGABYTES_MAX
    groups = [f"{name}-socket-{number}" for number in range(DEAF_SOCKETS)]
    groups += [f"{name}-stream-{number}" for number in range(DEAF_STREAMS)]
    for group in groups:
        [counts] = done(client.get("/reliability/stats", params={"group": group}))["groups"]
        assert 0 < counts["leased"] < DEAF_MESSAGES, (group, counts)
    for ending in requests:
        ending.put(None)
    for call in (*opened, *tails):
        call.cancel()
    streams.close()
    for made in deaf:
        made.close()


def _deaf_socket(address: str, topic: str, number: int) -> socket.socket:
    """A WebSocket that asks for everything once it is welcome, and takes none of it."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), 30)
    made.sendall(
        f"GET /ws HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n".encode()
    )
    received = b""
    while b"welcome" not in received:
        received += made.recv(4096)
    group = f"{topic}-socket-{number}"
    queue = {"op": "dequeue", "id": 1, "topics": [topic], "group": group, "credit": 1000}
    made.sendall(_masked(json.dumps(queue).encode()))
    tail = {"op": "tail", "id": 2, "topic": topic, "start": "earliest", "credit": 1000}
    made.sendall(_masked(json.dumps(tail).encode()))
    return made


def _masked(text: bytes) -> bytes:
    """One text frame of a client, with a mask of nothing."""
    assert len(text) < 65_536
    return b"\x81" + bytes([0x80 | 126]) + len(text).to_bytes(2, "big") + bytes(4) + text


def _megabytes(node: DoorsProcess) -> float:
    """What it holds itself; pages of the log that it looks at are the system's."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) / 1024
