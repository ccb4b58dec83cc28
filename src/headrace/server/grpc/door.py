"""The gRPC door: grpc.aio on the node's own loop, from open to graceful close.

    .proto    service Queues { rpc Lease ... }
                 |
    here      Queues.lease      found by its name, for every method of the .proto
                 |
              an error of ours becomes a status, in one place for all of them

Several servers of grpc listen at the one port, and the system gives each connection to one.

grpc waits for the network in a thread of its own, and wakes the loop through a
socket: while nothing happens, the loop sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import socket
from collections.abc import Iterator
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headrace.core import limits
from headrace.core.errors import HeadraceError, LimitExceeded
from headrace.core.node_settings import Address, NodeSettings
from headrace.server.aftermath import Aftermath
from headrace.server.grpc.consuming import Streams
from headrace.server.grpc.groups import Groups
from headrace.server.grpc.letters import Letters
from headrace.server.grpc.measured import Measured, MeasuredCall, count_connections
from headrace.server.grpc.messages import Messages
from headrace.server.grpc.outgoing import LARGE_BYTES, Writer
from headrace.server.grpc.places import Places, checked
from headrace.server.grpc.queues import Queues
from headrace.server.grpc.requests import decoder_of
from headrace.server.grpc.sdk import SdkStreams
from headrace.server.grpc.statuses import refuse
from headrace.server.grpc.topics import Topics
from headrace.server.grpc.traces import Traces
from headrace.server.grpc.wakeups import no_pile
from headrace.server.loop_calls import Calls
from headrace.server.service import Service
from headrace.server.shares import Metered
from headrace.server.version import VERSION
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.remote.methods import GRPC_NAME, GRPC_SERVICE

logger = logging.getLogger("headrace.grpc")

CLOSE_SECONDS = 1.0
# A server of grpc takes up one call after the other, and needs some turns of the loop for
# each: so many take up as many at once, at one port. Whoever has hundreds of calls keeps those
# waiting who came to the same server, and a large crowd should not meet all others.
SERVERS_MAX = 128
# The system spreads connections unevenly: with a few for each server, some would be full early.
CONNECTIONS_PER_SERVER_MIN = 64

_OPTIONS = (
    ("grpc.max_receive_message_length", limits.GRPC_RECEIVED_BYTES_MAX),
    # An answer holds at most one record beyond what it is meant to.
    ("grpc.max_send_message_length", 2 * limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", limits.GRPC_HEAD_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", limits.GRPC_HEAD_BYTES_MAX),
    # By which connections can be counted.
    ("grpc.enable_channelz", 1),
    # A client whose machine is gone is noticed after about a minute, as at the other doors.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 30_000),
    # For our servers, of which each gets some of the clients. Another node does not come in
    # between: it looks first whether the port is free.
    ("grpc.so_reuseport", 1),
)
_NAMES = tuple(each.full_name for each in pb.DESCRIPTOR.services_by_name.values())


def _limits(settings: NodeSettings) -> Iterator[tuple[str, int]]:
    """Of connections, in grpc's words."""
    # Beyond, they are closed before they have said anything.
    share = -(-settings.connections_max // _servers(settings))
    yield "grpc.max_allowed_incoming_connections", share
    # Calls that we have not taken up yet. From a thousand on grpc would cancel some of them
    # at random: not those of whoever has sent so many.
    yield "grpc.server.max_pending_requests", settings.connections_max
    yield "grpc.server.max_pending_requests_hard_limit", settings.connections_max
    if settings.stall_timeout_ms:
        # How long a client may take for the first words of HTTP/2.
        yield "grpc.server_handshake_timeout_ms", settings.stall_timeout_ms
    if settings.connections_max_idle_ms:
        # Without a call, or in the middle of the head of its first one.
        yield "grpc.max_connection_idle_ms", settings.connections_max_idle_ms


def _servers(settings: NodeSettings) -> int:
    return max(1, min(settings.connections_max // CONNECTIONS_PER_SERVER_MIN, SERVERS_MAX))


class GrpcDoor:
    def __init__(self, service: Service, settings: NodeSettings) -> None:
        self._service = service
        self._settings = settings
        self._aftermath = Aftermath()
        self._places = Places(service, settings)
        self._sdk = SdkStreams(service)
        self._health = health.aio.HealthServicer()
        self.address = Address("", 0)
        self._servers: list[Any] = []

    async def open(self) -> None:
        """Listen; OSError when the address is taken."""
        wanted = Address.parse("grpc", self._settings.grpc)
        await _check_free(self._service.loop, wanted)
        handlers = (*self._handlers(), self._sdk_handler())
        for number in range(_servers(self._settings)):
            server = self._new_server(handlers)
            try:
                wanted = Address(wanted.host, server.add_insecure_port(str(wanted)))
            except RuntimeError as error:
                if number:
                    # A system on which several cannot listen at one port: one is enough.
                    break
                # Taken between our look and now.
                raise OSError(errno.EADDRINUSE, str(error)) from error
            await server.start()
            self._servers.append(server)
        self._places.outgoing.port = wanted.port
        self._service.connections["grpc"] = count_connections
        self.address = wanted
        for name in ("", *_NAMES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    def _new_server(self, handlers: tuple[Any, ...]) -> Any:
        with no_pile(self._service.loop):
            server = grpc.aio.server(
                options=(*_OPTIONS, *_limits(self._settings)),
                maximum_concurrent_rpcs=self._settings.connections_max,
            )
        server.add_generic_rpc_handlers(handlers)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        return server

    def _handlers(self) -> list[Any]:
        calls = Calls(self._service, door="grpc")
        streams = Streams(calls, self._aftermath)
        nouns = {
            "Topics": (Topics(self._settings.partitions),),
            "Messages": (Messages(),),
            "Queues": (Queues(self._aftermath), streams),
            "Groups": (Groups(),),
            "Letters": (Letters(),),
            "Traces": (Traces(),),
            "Node": (_Node(self._service),),
        }
        return [
            grpc.method_handlers_generic_handler(
                service.full_name,
                {
                    method.name: _handler(method, nouns[name], self._service, self._places)
                    for method in service.methods
                },
            )
            for name, service in pb.DESCRIPTOR.services_by_name.items()
        ]

    def _sdk_handler(self) -> Any:
        """The calls of our own clients: bytes in, bytes out."""
        return grpc.method_handlers_generic_handler(
            GRPC_SERVICE,
            {
                GRPC_NAME: grpc.stream_stream_rpc_method_handler(
                    _connection(self._sdk, self._places)
                )
            },
        )

    async def close(self) -> None:
        """Take nothing new, let what is under way be answered, and end the streams."""
        self._sdk.close()
        await self._health.enter_graceful_shutdown()
        await asyncio.gather(*(server.stop(CLOSE_SECONDS) for server in self._servers))
        await self._aftermath.close()


class _Node:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def describe(self, _request: Any, _call: MeasuredCall) -> Any:
        return pb.DescribeNodeResponse(
            node_id=self._service.node_id,
            cluster_id=self._service.cluster_id,
            version=VERSION,
            now_ms=self._service.clock.now_ms(),
        )


def _connection(sdk: SdkStreams, places: Places) -> Any:
    """Not a method of the door: grpc's thread ends when nothing refers to its server any
    more, and a door that its own server refers to would be there until it is collected."""

    async def connection(requests: Any, context: Any) -> None:
        try:
            client = places.client(context)
            with places.taken(client):
                first = await places.first_request(context)
                if first is not None:
                    writer = places.outgoing.of(context)
                    await sdk.connect(first, requests, writer, client.principal)
        except LimitExceeded as error:
            await refuse(context, error, "")

    return connection


def _handler(method: Any, nouns: tuple[Any, ...], service: Service, places: Places) -> Any:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.name).lower()
    act = next(getattr(noun, name) for noun in nouns if hasattr(noun, name))
    measured = Measured(service, places, f"{method.containing_service.name}/{method.name}")
    # Answers are encoded here: `outgoing` says why.
    codec = {"request_deserializer": decoder_of(method.input_type.name)}
    # For grpc all of them have a stream of requests, so that a call is ours before its request
    # has come; for a client there is no difference.
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_conversation(act, measured), **codec)
    if method.server_streaming:
        return grpc.stream_stream_rpc_method_handler(_answers(act, measured), **codec)
    return grpc.stream_unary_rpc_method_handler(_answer(act, measured), **codec)


def _answer(act: Any, measured: Measured) -> Any:
    async def answer(_requests: Any, context: Any) -> Any:
        with measured.call(context) as call:
            try:
                client = call.client
                if client.account.is_spent:
                    await client.account.turn()
                with measured.places.taken(client):
                    request = checked(await measured.places.first_request(context))
                    call.begin(request)
                    found = await Metered(act(request, call), client.account)
                encoded = found.SerializeToString()
                if len(encoded) >= LARGE_BYTES:
                    measured.places.outgoing.of(context).note_last(encoded)
                return encoded
            except HeadraceError as error:
                call.code = error.code
                await refuse(context, error, call.request_id)

    return answer


def _answers(act: Any, measured: Measured) -> Any:
    async def answers(_requests: Any, context: Any) -> None:
        with _stream(context, measured) as call:
            try:
                client = call.client
                if client.account.is_spent:
                    await client.account.turn()
                with measured.places.taken(client):
                    request = checked(await measured.places.first_request(context))
                    writer = measured.places.outgoing.of(context)
                    await Metered(_write_all(act(request, call), writer), client.account)
            except HeadraceError as error:
                call.code = error.code
                await refuse(context, error, call.request_id)

    return answers


async def _write_all(answers: Any, writer: Writer) -> None:
    async for each in answers:
        encoded = each.SerializeToString()
        del each
        await writer.write(encoded)


def _conversation(act: Any, measured: Measured) -> Any:
    async def conversation(requests: Any, context: Any) -> None:
        with _stream(context, measured) as call:
            try:
                client = call.client
                if client.account.is_spent:
                    await client.account.turn()
                with measured.places.taken(client):
                    first = checked(await measured.places.first_request(context))
                    writer = measured.places.outgoing.of(context)
                    await Metered(act(first, requests, writer, call.calls), client.account)
            except HeadraceError as error:
                call.code = error.code
                await refuse(context, error, call.request_id)

    return conversation


@contextlib.contextmanager
def _stream(context: Any, measured: Measured) -> Iterator[MeasuredCall]:
    # A write fails when the client has gone in the middle of it, which is no fault of ours
    # and would be logged as one.
    with measured.stream(context) as call:
        try:
            yield call
        except grpc.aio.InternalError as error:
            # grpc's own coroutines refer to it, and so would their frames to themselves.
            error.__traceback__ = error.__context__ = None


async def _check_free(loop: asyncio.AbstractEventLoop, wanted: Address) -> None:
    """grpc does not tell why it cannot listen, and prints; the system tells us."""
    found = await loop.getaddrinfo(
        wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
