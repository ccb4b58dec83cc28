"""What the hostile client attacks: the addresses of a node, and ways to reach them that
no honest client has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc

from headrace.wire.kafka.api import APIS, encode_request
from headrace.wire.kafka.frame import encode_request_frame

KEYS = {api.name: key for key, api in APIS.items()}
# What the node has hung up on, or does not answer any more, is what an attack is for.
EXPECTED = (
    OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, asyncio.InvalidStateError,
    grpc.RpcError,
)  # fmt: skip


class Peer(NamedTuple):
    """One connection, of which the attack does as it likes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def go_deaf(self) -> None:
        """Take nothing from now on, beyond what the system takes by itself."""
        transport: Any = self.writer.transport
        transport.pause_reading()

    async def take_frame(self) -> bytes:
        """The next answer of the Kafka door."""
        return await self.reader.readexactly(
            int.from_bytes(await self.reader.readexactly(4), "big")
        )


class Target:
    def __init__(self, kafka: str, http: str, grpc: str) -> None:
        self.kafka, self.http, self.grpc = kafka, http, grpc
        # Set when the attack is over.
        self.ending = asyncio.Event()
        self._numbers = itertools.count()

    def fresh(self, what: str) -> str:
        """A name that was not used before."""
        return f"{what}-{next(self._numbers)}"

    async def pause(self, seconds: float) -> None:
        """Wait so long, or for the end of the attack."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), seconds)

    @contextlib.asynccontextmanager
    async def connect(self, address: str) -> AsyncIterator[Peer]:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield Peer(reader, writer)
        finally:
            # Without a word: what the node has for us is lost on the way.
            writer.transport.abort()

    @contextlib.asynccontextmanager
    async def crowd(self, address: str, count: int) -> AsyncIterator[list[Peer]]:
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.connect(address)) for _ in range(count)]

    async def ask(self, method: str, path: str, body: Any = None) -> int:
        """The status of one HTTP request over a connection of its own; its body is read."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.connect(self.http) as peer:
            await peer.send(self.request(method, path, content))
            head = (await peer.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if "content-length:" in head:
                await peer.reader.readexactly(
                    int(head.split("content-length:")[1].split("\r\n")[0])
                )
            return int(head.split(" ")[1])

    def request(self, method: str, path: str, content: bytes = b"") -> bytes:
        return (
            f"{method} {path} HTTP/1.1\r\nhost: {self.http}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        ).encode() + content

    def upgrade(self, *, deflate: bool = False) -> bytes:
        """What turns an HTTP connection into a WebSocket, compressed if the node agrees."""
        wish = "sec-websocket-extensions: permessage-deflate\r\n" if deflate else ""
        return (
            f"GET /ws HTTP/1.1\r\nhost: {self.http}\r\nupgrade: websocket\r\n"
            "connection: upgrade\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            f"{wish}sec-websocket-version: 13\r\n\r\n"
        ).encode()


def frame(name: str, request: Any, version: int | None = None, number: int = 1) -> bytes:
    """A request of Kafka's protocol, in the last version unless told otherwise."""
    key = KEYS[name]
    version = APIS[key].last if version is None else version
    body = encode_request(key, version, request)
    return b"".join(encode_request_frame(key, version, number, "hostile", body))


def raw_frame(key: int, version: int, body: bytes) -> bytes:
    """A request whose body is whatever one likes, behind a header that is right."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    if APIS[key].is_flexible(version):
        head += b"\0"
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def masked(kind: int, text: bytes) -> bytes:
    """A frame of a WebSocket's client, with a mask of nothing. `kind` is its first byte."""
    if len(text) < 126:
        return bytes([kind, 0x80 | len(text)]) + bytes(4) + text
    if len(text) < 65_536:
        return bytes([kind, 0x80 | 126]) + len(text).to_bytes(2, "big") + bytes(4) + text
    return bytes([kind, 0x80 | 127]) + len(text).to_bytes(8, "big") + bytes(4) + text
