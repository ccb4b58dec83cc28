"""HTTP over a plain connection of asyncio: cheap enough to have hundreds of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class PlainHttp:
    """One connection, one request at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> PlainHttp:
        host, _, port = self._address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    def send(self, method: str, path: str, body: Any) -> None:
        content = json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._address}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)

    async def receive(self) -> tuple[int, Any]:
        """The status and the body of the next answer."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        content = await self._reader.readexactly(length)
        return int(head.split(" ")[1]), json.loads(content) if content else None

    async def ask(self, path: str, body: Any) -> Any:
        """What a POST is answered with; it has to succeed."""
        self.send("POST", path, body)
        status, found = await self.receive()
        assert status < 300, (path, found)
        return found

    def close(self) -> None:
        self._writer.close()
