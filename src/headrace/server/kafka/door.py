"""The Kafka door: listens, and hands each request to the file of its API.

A handler takes the call and the decoded request and gives back a response, an
awaitable of one, or None for a request that gets no answer. It never blocks: what
waits for the disk or for data returns a future.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from headrace.core.errors import MalformedMessage
from headrace.core.node_settings import Address, NodeSettings
from headrace.core.ports import Buffer
from headrace.server.kafka import api_versions
from headrace.server.kafka.connection import Connection, Slot
from headrace.server.kafka.fetch_session import FetchSessions
from headrace.server.kafka.groups import LiveGroups
from headrace.server.kafka.share_groups import LiveShares
from headrace.server.service import Service
from headrace.wire.kafka.api import (
    API_VERSIONS,
    APIS,
    Api,
    Message,
    decode_request,
    encode_response,
)
from headrace.wire.kafka.frame import decode_request_header, encode_response_frame


class Call(NamedTuple):
    """One request: who asks, and in which version."""

    door: Door
    connection: Connection
    api: Api
    version: int
    correlation_id: int
    client_id: str

    @property
    def service(self) -> Service:
        return self.door.service


Handler = Callable[[Call, Any], Message | Awaitable[Message] | None]


class Door:
    def __init__(
        self, service: Service, settings: NodeSettings, handlers: dict[int, Handler]
    ) -> None:
        self.service = service
        self.settings = settings
        self.handlers = handlers
        self.request_bytes_max = settings.request_bytes_max
        self.logger = logging.getLogger("headrace.kafka")
        self.address = Address("", 0)
        self.advertised = Address("", 0)
        self.connections: set[Connection] = set()
        self.fetch_sessions = FetchSessions(service.new_id)
        self.groups = LiveGroups(service, settings.rebalance_delay_ms)
        self.shares = LiveShares(service, self.groups)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """Listen; OSError when the address is taken."""
        wanted = Address.parse("kafka", self.settings.kafka)
        self._server = await self.service.loop.create_server(
            lambda: Connection(self), wanted.host, wanted.port, backlog=1024
        )
        port = self._server.sockets[0].getsockname()[1]
        self.address = Address(wanted.host, port)
        self.advertised = self.address
        if self.settings.kafka_advertised:
            self.advertised = Address.parse("kafka_advertised", self.settings.kafka_advertised)

    # Connections.

    def admit(self, connection: Connection) -> bool:
        if len(self.connections) >= self.settings.connections_max:
            self.logger.warning("too many connections", extra={"peer": connection.peer_host})
            return False
        self.connections.add(connection)
        return True

    def on_connection_lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        for closed in connection.on_closed:
            closed()
        connection.on_closed.clear()
        for group, member in connection.share_sessions:
            self.shares.end_session(group, member)

    # Requests.

    def handle(self, connection: Connection, slot: Slot, frame: memoryview) -> None:
        key, version, correlation_id, client_id, position = decode_request_header(frame)
        api = APIS.get(key)
        handler = self.handlers.get(key)
        if api is None or handler is None or not api.speaks(version):
            self._refuse(connection, slot, key, version, correlation_id)
            return
        request = decode_request(key, version, frame, position)
        call = Call(self, connection, api, version, correlation_id, client_id or "")
        result = handler(call, request)
        if result is None:
            connection.answer(slot, ())
        elif isinstance(result, tuple):
            connection.answer(slot, _frame(call, result))
        else:
            self._answer_later(call, slot, result)

    def _refuse(
        self, connection: Connection, slot: Slot, key: int, version: int, correlation_id: int
    ) -> None:
        """An unknown version of ApiVersions is answered with what there is; of
        anything else nothing sensible can be said."""
        if key != API_VERSIONS:
            raise MalformedMessage(f"version {version} of API {key} is not offered")
        call = Call(self, connection, APIS[API_VERSIONS], 0, correlation_id, "")
        connection.answer(slot, _frame(call, api_versions.unsupported(self)))

    def _answer_later(self, call: Call, slot: Slot, result: Awaitable[Message]) -> None:
        future = asyncio.ensure_future(result, loop=self.service.loop)
        self._tasks.add(future)

        def answer(done: asyncio.Future[Message]) -> None:
            self._tasks.discard(done)
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                self.logger.error("request failed", exc_info=error, extra={"api": call.api.name})
                call.connection.close(f"{call.api.name} failed")
                return
            response = done.result()
            call.connection.answer(slot, () if response is None else _frame(call, response))

        future.add_done_callback(answer)

    # The end.

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Take no more connections, answer what is under way, and hang up."""
        if self._server is not None:
            self._server.close()
        deadline = self.service.loop.time() + grace_seconds
        while self.service.loop.time() < deadline and any(
            not connection.is_idle for connection in self.connections
        ):
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.finish()
        for task in self._tasks:
            task.cancel()


def _frame(call: Call, response: Message) -> Sequence[Buffer]:
    body = encode_response(call.api.key, call.version, response)
    return encode_response_frame(call.api.key, call.version, call.correlation_id, body)
