"""A WebSocket for each worker, in msgpack frames, through the `websockets` library."""

from __future__ import annotations

from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.doors.clients import BODY, Client
from benchmarks.doors.http import Http

GROUP = "bench"


class _Message(msgspec.Struct):
    receipt: str


class _Frame(msgspec.Struct):
    op: str
    message: _Message | None = None
    detail: str = ""


class WebSocket(Client):
    async def open(self, workers: int) -> None:
        self._sockets: list[ClientConnection] = []
        self._dequeues: set[int] = set()
        self._decode = msgspec.msgpack.Decoder(_Frame).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._publish: dict[int, bytes] = {}
        for _ in range(workers):
            socket = await connect(f"ws://{self.address}/ws", compression=None, max_size=None)
            await socket.recv()
            self._sockets.append(socket)

    async def make(self) -> None:
        http = Http(self.address, self.topic)
        await http.open(1)
        await http.make()
        await http.close()

    async def _receive(self, worker: int) -> _Frame:
        received: Any = await self._sockets[worker].recv()
        # What is asked about subscriptions is answered in the form of the first frame.
        frame = self._decode(received)
        if frame.op == "error":
            raise RuntimeError(frame.detail)
        return frame

    async def publish(self, worker: int, count: int) -> None:
        frame = self._publish.get(count)
        if frame is None:
            wanted = {"op": "enqueue", "id": 1, "topic": self.topic, "messages": [{"value": BODY}]}
            wanted["messages"] *= count
            frame = self._publish[count] = self._encode(wanted)
        await self._sockets[worker].send(frame)
        await self._receive(worker)

    async def work(self, worker: int, count: int) -> int:
        """Credit is given for one batch at a time, as the others are asked for one."""
        socket = self._sockets[worker]
        if worker not in self._dequeues:
            self._dequeues.add(worker)
            wanted = {"op": "dequeue", "id": 2, "topics": [self.topic], "group": GROUP}
            await socket.send(self._encode({**wanted, "credit": count}))
            await self._receive(worker)
        else:
            await socket.send(self._encode({"op": "credit", "subscription": 2, "credit": count}))
        receipts = []
        while len(receipts) < count:
            frame = await self._receive(worker)
            if frame.message is not None:
                receipts.append(frame.message.receipt)
        await socket.send(self._encode({"op": "ack", "id": 3, "receipts": receipts}))
        await self._receive(worker)
        return len(receipts)

    async def close(self) -> None:
        for socket in self._sockets:
            await socket.close()
