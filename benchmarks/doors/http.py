"""HTTP, spoken by hand: one connection a worker, kept open, one request at a time.

Client libraries of Python take several times longer for a request than the node does, so
that with one of them the benchmark would be about the library. Answers are parsed as
far as their length and status; what was leased is parsed as JSON.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from benchmarks.doors.clients import BODY, Client

HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    "content-length: {length}\r\n\r\n"
)
TEXT = BODY.decode()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self._answer: asyncio.Future[bytes]

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        at = head.lower().index(b"content-length:") + 15
        if len(rest) < int(head[at:].split(b"\r\n", 1)[0]):
            return
        self._received = b""
        if head[9:10] != b"2":
            self._answer.set_exception(RuntimeError(rest.decode()))
        else:
            self._answer.set_result(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if hasattr(self, "_answer") and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError())

    async def ask(self, request: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self._transport.close()


class _Leased(msgspec.Struct):
    receipt: str
    value: str


class _Answer(msgspec.Struct):
    messages: list[_Leased]


class Http(Client):
    def _request(self, path: str, body: Any) -> bytes:
        encoded = json.dumps(body).encode()
        head = HEAD.format(path=path, host=self.address, length=len(encoded))
        return head.encode() + encoded

    async def open(self, workers: int) -> None:
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        self._connections = [
            (await loop.create_connection(_Connection, host, int(port)))[1]
            for _ in range(max(1, workers))
        ]
        self._publish: dict[int, bytes] = {}
        self._leased = msgspec.json.Decoder(_Answer).decode

    async def make(self) -> None:
        await self._connections[0].ask(
            self._request("/topics", {"name": self.topic, "partitions": 1})
        )

    async def publish(self, worker: int, count: int) -> None:
        request = self._publish.get(count)
        if request is None:
            message = {"value": TEXT}
            body = message if count == 1 else {"messages": [message] * count}
            request = self._request(f"/topics/{self.topic}/messages", body)
            self._publish[count] = request
        await self._connections[worker].ask(request)

    async def work(self, worker: int, count: int) -> int:
        connection = self._connections[worker]
        body = {"topics": [self.topic], "count": count, "consumer": f"worker-{worker}"}
        lease = self._request("/queues/bench/lease", body)
        found = self._leased(await connection.ask(lease)).messages
        if found:
            receipts = [each.receipt for each in found]
            await connection.ask(self._request("/messages/ack", {"receipts": receipts}))
        return len(found)

    async def close(self) -> None:
        for each in self._connections:
            each.close()
