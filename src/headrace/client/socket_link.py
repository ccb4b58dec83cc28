"""A link over a socket: frames of Kafka's kind on the Kafka port."""

from __future__ import annotations

import contextlib
import socket
import struct

from headrace.client.link import CONNECT_SECONDS, Link
from headrace.core.errors import MalformedMessage
from headrace.core.limits import FRAME_BYTES_MAX
from headrace.wire.remote.codec import encode_request_frame

_SIZE = struct.Struct(">i")
READ_BYTES = 256 * 1024
SEND_BYTES = 256 * 1024
# A peer that is gone without a word is noticed after about half a minute: while nothing
# is said, and while a request is not even received, for which the system would try for
# a quarter of an hour.
_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 10),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 30_000),
)


class SocketLink(Link):
    door = "kafka"

    def _open(self) -> None:
        self._socket = socket.create_connection(self.address, CONNECT_SECONDS)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            # Not every system has all of them.
            with contextlib.suppress(AttributeError, OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def _transmit(self, number: int, request: bytes) -> None:
        frame = memoryview(encode_request_frame(number, self._client_id, request))
        self._socket.sendall(frame[:SEND_BYTES])
        for start in range(SEND_BYTES, len(frame), SEND_BYTES):
            # A large request may be on its way for long, and nothing is answered before.
            self.sent_parts += 1
            self._socket.sendall(frame[start : start + SEND_BYTES])

    def _shut(self) -> None:
        # The reader wakes up and closes it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _receive_all(self) -> None:
        with self._socket:
            while True:
                self._on_frame(self._receive(_SIZE.unpack(self._receive(4))[0]))

    def _receive(self, size: int) -> memoryview:
        if not 0 < size <= FRAME_BYTES_MAX:
            raise MalformedMessage(
                f"what answers at {self.address} does not speak the remote protocol; is it a "
                "headrace node?"
            )
        room = memoryview(bytearray(size))
        end = 0
        while end < size:
            count = self._socket.recv_into(room[end:], min(size - end, READ_BYTES))
            if not count:
                raise EOFError("closed by the node")
            self.received_bytes += count
            end += count
        return room
