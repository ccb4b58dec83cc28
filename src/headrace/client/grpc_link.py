"""A link over gRPC: the same requests and answers, as messages of one stream.

    stream    correlation id i32 | request   ->
              correlation id i32 | answer    <-      in any order

For whoever can reach a node by gRPC alone: through a proxy, or where the Kafka port is
shut. One stream is one connection: what it holds is given back when it breaks, as with
a socket.

Rejected: mapping every call to the public .proto. It would be a second codec for forty
calls, in each direction, that says the same, and whatever it did not carry over would
be a difference that a user finds. The public services are for other languages; this one
carries what the SDK says anyway.
"""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Iterator
from typing import Any

from headrace.client.link import CONNECT_SECONDS, Link
from headrace.core import limits
from headrace.core.extras import require
from headrace.wire.remote.methods import GRPC_METHOD
from headrace.wire.remote.stream import encode_stream_request

_OPTIONS = (
    ("grpc.max_receive_message_length", 2 * limits.GRPC_MESSAGE_BYTES_MAX),
    # What a node would not take is refused before it is sent (`encode_request`).
    ("grpc.max_send_message_length", limits.GRPC_RECEIVED_BYTES_MAX),
    # A peer that is gone without a word is noticed after about half a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A channel of its own: another handle's trouble is not ours.
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcLink(Link):
    door = "grpc"

    def _open(self) -> None:
        self._grpc = require("grpc", "server")
        # gRPC goes on trying where nobody listens; a socket says so at once.
        socket.create_connection(self.address, CONNECT_SECONDS).close()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel: Any = self._grpc.insecure_channel(str(self.address), options=_OPTIONS)
        self._stream: Any = self._channel.stream_stream(GRPC_METHOD)(self._requests())

    def _requests(self) -> Iterator[bytes]:
        while (request := self._outgoing.get()) is not None:
            yield request

    def _transmit(self, number: int, request: bytes) -> None:
        self._outgoing.put(encode_stream_request(number, request))

    def _shut(self) -> None:
        self._outgoing.put(None)
        self._stream.cancel()

    def _receive_all(self) -> None:
        try:
            for frame in self._stream:
                self.received_bytes += len(frame)
                self._on_frame(memoryview(frame))
        except self._grpc.RpcError as error:
            details = error.details() if hasattr(error, "details") else None
            raise OSError(details or str(error)) from error
        finally:
            with contextlib.suppress(self._grpc.RpcError):
                self._channel.close()
