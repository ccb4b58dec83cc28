"""A WebSocket as a door, in both of its forms.

A WebSocket is for messages. What is in BESIDE it does not offer, on purpose: whoever
has one open has HTTP at the same address, and asks there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import count as numbers
from typing import Any

import msgspec
from tests.contract.doors.door import Act, Leased, New, Place, Refused
from tests.contract.doors.http_door import HttpDoor, leased, names, new_body, places
from websockets.sync.client import connect

WAIT_SECONDS = 60

# Operations of the contract that are HTTP's alone.
BESIDE = (
    "create_topic", "topics", "bounds", "grow", "delete_topic", "read", "transact", "status",
    "counts", "delayed", "cancel", "letters", "redrive", "purge", "groups", "delete_group", "seek",
    "cursor", "trace", "traces",
)  # fmt: skip


class SocketDoor(HttpDoor):
    """HTTP, with publishing, leasing and settling over a WebSocket."""

    def __init__(self, address: str, *, binary: bool) -> None:
        super().__init__(address)
        self._binary = binary
        self._numbers = numbers(1)
        self._closing = ExitStack()
        self._socket = self._closing.enter_context(connect(f"ws://{address}/ws"))
        assert self._receive()["op"] == "welcome"

    def _send(self, **frame: Any) -> int:
        number = next(self._numbers)
        frame["id"] = number
        if self._binary:
            self._socket.send(msgspec.msgpack.encode(frame))
        else:
            self._socket.send(json.dumps(frame))
        return number

    def _receive(self) -> dict[str, Any]:
        received = self._socket.recv(timeout=WAIT_SECONDS)
        found = (
            json.loads(received) if isinstance(received, str) else msgspec.msgpack.decode(received)
        )
        assert isinstance(found, dict)
        if found["op"] == "error":
            raise Refused(found["code"], found["detail"])
        return found

    def _exchange(self, **frame: Any) -> dict[str, Any]:
        number = self._send(**frame)
        answer = self._receive()
        assert (answer["op"], answer["id"]) == ("done", number)
        return answer

    def publish(self, topic: str, *messages: New) -> list[Place]:
        bodies = [new_body(each) for each in messages]
        if self._binary:
            for body, message in zip(bodies, messages, strict=True):
                if message.value is not None:
                    body["value"] = message.value
                    del body["encoding"]
        return places(self._exchange(op="enqueue", topic=topic, messages=bodies)["messages"])

    def lease(
        self,
        topics: str | Sequence[str],
        group: str,
        count: int = 10,
        *,
        visibility: float | None = None,
        settings: Mapping[str, Any] = {},
    ) -> list[Leased]:
        """One subscription for each: stopped, it has sent what was ready."""
        opened = self._exchange(
            op="dequeue", topics=names(topics), group=group, credit=count, visibility=visibility,
            settings=settings,
        )  # fmt: skip
        stopped = self._send(op="stop", subscription=opened["id"])
        found = []
        while (frame := self._receive()).get("id") != stopped:
            assert frame["subscription"] == opened["id"]
            found.append(leased(frame["message"]))
        return found

    def settle(self, act: Act, receipts: Sequence[str], **options: Any) -> list[str | None]:
        results = self._exchange(op=act, receipts=list(receipts), **options)["results"]
        return [each.get("code") for each in results]

    def close(self) -> None:
        self._closing.close()
        super().close()
