"""The HTTP door: uvicorn on the node's own loop, from open to graceful close."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.routing import WebSocketRoute

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import HeadraceError
from headrace.core.node_settings import Address, NodeSettings
from headrace.server.aftermath import Aftermath
from headrace.server.http.app import Gate, hosts_of, make_app
from headrace.server.http.arriving import Budget
from headrace.server.http.facts import Facts
from headrace.server.http.members import Member, Members
from headrace.server.http.protocol import Guard, GuardedHttp
from headrace.server.http.sockets import Sockets
from headrace.server.http.websocket import GuardedWebSocket
from headrace.server.listening import Listening, bind
from headrace.server.live import Live
from headrace.server.loop_calls import Calls
from headrace.server.metrics.scrape import Scrapes
from headrace.server.service import Service
from headrace.server.survey import Survey

logger = logging.getLogger("headrace.http")

CLOSE_SECONDS = 3


class HttpDoor:
    def __init__(
        self, service: Service, settings: NodeSettings, scrapes: Scrapes | None = None
    ) -> None:
        self._service = service
        self._scrapes = scrapes or Scrapes(service, settings)
        self._settings = settings
        self._calls = Calls(service, door="http")
        self._members = Members(service, self._on_expired)
        self._aftermath = Aftermath()
        self._survey = Survey(service)
        self._live = Live(service, self._survey)
        self._bodies = Budget()
        self._guard = Guard(service, settings, self._bodies)
        self.address = Address("", 0)
        self._server: _Server
        self._listening: Listening
        self._serving: asyncio.Task[None]

    async def open(self) -> None:
        """Listen; OSError when the address is taken."""
        wanted = Address.parse("http", self._settings.http)
        bound = await bind(wanted)
        self.address = Address(wanted.host, bound[0].getsockname()[1])
        hosts = hosts_of(wanted.host, _names(self._settings.http_hosts))
        gate = Gate(hosts, frozenset(_names(self._settings.http_origins)), self._new_id)
        socket_calls = Calls(self._service, door="websocket")
        sockets = Sockets(socket_calls, self._members, self._aftermath)
        now_ms = self._service.clock.now_ms()
        facts = Facts(self._settings, self._survey, self._live, now_ms)
        self._live.open()
        config = uvicorn.Config(
            make_app(
                self._calls,
                self._members,
                facts,
                self._aftermath,
                gate,
                self._scrapes,
                self._bodies,
                [WebSocketRoute("/ws", sockets.serve)],
            ),
            http=cast(Any, partial(GuardedHttp, guard=self._guard)),
            ws=cast(Any, partial(GuardedWebSocket, guard=self._guard)),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=CLOSE_SECONDS,
            ws_max_size=limits.HTTP_BODY_BYTES_MAX,
            # A kilobyte could become a megabyte, in one piece; and each connection would keep
            # the state of two compressors.
            ws_per_message_deflate=False,
        )
        for name in ("uvicorn.error", "uvicorn.access"):
            # What strangers send is theirs to be told, not ours to write down.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._server = _Server(config)
        # A WebSocket is among the server's connections as well.
        connected = self._server.server_state.connections
        self._service.connections["http"] = lambda: len(connected) - sockets.count
        self._service.connections["websocket"] = lambda: sockets.count
        self._guard.open(connected)
        self._serving = asyncio.create_task(self._server.serve(sockets=[]))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(0.001)
        if self._serving.done():
            self._serving.result()
        self._listening = Listening(self._server.make_protocol, bound)

    def _new_id(self) -> str:
        return self._service.entropy.random_bytes(8).hex()

    def _on_expired(self, member: Member) -> None:
        """It was not heard of for a whole session: others get its partitions."""
        task = self._service.loop.create_task(self._leave(member))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _leave(self, member: Member) -> None:
        with contextlib.suppress(HeadraceError):
            await self._calls.run(Face.leave_stream, member.group, member.id)

    async def close(self) -> None:
        """Take nothing new, and let what is under way be answered."""
        self._service.begin_closing()
        self._guard.close()
        self._listening.close()
        self._server.should_exit = True
        await self._serving
        await self._live.close()
        await self._survey.close()
        self._members.close()
        await self._aftermath.close()


class _Server(uvicorn.Server):
    """All of it but the listening."""

    def make_protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are the node's.
        yield


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
