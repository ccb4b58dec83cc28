"""One connection to one broker.

    connection.call(METADATA, request)        ask and wait
    connection.send(FETCH, request)           ask now ...
    connection.receive()                      ... and take the answer later, in order

The first exchange asks which versions the broker speaks; every later request goes out
in the highest that both know. ApiVersions itself is sent in version 0, which nobody
ever refused.

Answers come in the order of requests, so a request that was sent before the last
answer is decoded costs no waiting: that is all the prefetching there is.

Rejected: a thread that reads ahead. Receiving is a copy out of the kernel, which goes
on filling its buffers meanwhile by itself.
"""

from __future__ import annotations

import socket
from collections import deque
from itertools import count
from typing import Any, Final, NamedTuple, Self

from headrace.core.errors import BrokerUnreachable, MalformedMessage, UnsupportedByBroker
from headrace.wire.kafka.api import API_VERSIONS, APIS, decode_response, encode_request
from headrace.wire.kafka.frame import (
    SIZE_BYTES,
    decode_response_header,
    encode_request_frame,
    read_frame_size,
)
from headrace.wire.kafka.generated.api_versions_request import ApiVersionsRequest

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
CREATE_TOPICS: Final = 19
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
DELETE_GROUPS: Final = 42

# From these versions on, the broker itself adds partitions and groups to transactions
# and gives out a new epoch at every end. We say what we do, as every broker understands.
_LAST_VERSIONS: Final = {PRODUCE: 11, END_TXN: 4, TXN_OFFSET_COMMIT: 4}
# Versions that name topics by id alone. What these offsets belong to is looked up by
# name and compared by id, so names are enough.
_LAST_VERSIONS_BY_NAME: Final = {OFFSET_COMMIT: 9, OFFSET_FETCH: 9}

_RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024


class _Sent(NamedTuple):
    key: int
    version: int
    correlation_id: int


class KafkaConnection:
    """Every failure of the socket raises BrokerUnreachable; the connection is of no
    use afterwards."""

    def __init__(self, host: str, port: int, *, client_id: str, timeout_ms: int) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._numbers = count()
        self._sent: deque[_Sent] = deque()
        self._spoken: dict[int, tuple[int, int]] = {API_VERSIONS: (0, 0)}
        try:
            self._socket = socket.create_connection((host, port), timeout_ms / 1000)
        except OSError as error:
            raise BrokerUnreachable(f"{self.address} cannot be reached: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        try:
            answer = self.call(API_VERSIONS, ApiVersionsRequest())
        except BaseException:
            self.close()
            raise
        for api in answer.api_keys:
            self._spoken[api.api_key] = (api.min_version, api.max_version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def waiting(self) -> int:
        """Requests whose answers were not received yet."""
        return len(self._sent)

    def version_of(self, key: int) -> int:
        """The version in which requests of this API go out."""
        api = APIS[key]
        first, last = self._spoken.get(key, (0, -1))
        ours = min(_LAST_VERSIONS.get(key, _LAST_VERSIONS_BY_NAME.get(key, api.last)), api.last)
        version = min(last, ours)
        if key != API_VERSIONS and version < max(first, api.first):
            raise UnsupportedByBroker(
                f"{self.address} does not offer {api.name} in a version from {api.first} to {ours}"
            )
        return version

    def call(self, key: int, request: Any) -> Any:
        """The answer to one request; none other may be under way."""
        self.send(key, request)
        return self.receive()

    def send(self, key: int, request: Any) -> None:
        version = self.version_of(key)
        sent = _Sent(key, version, next(self._numbers))
        body = encode_request(key, version, request)
        frame = encode_request_frame(key, version, sent.correlation_id, self._client_id, body)
        try:
            for part in frame:
                self._socket.sendall(part)
        except OSError as error:
            raise self._cut(error) from error
        self._sent.append(sent)

    def receive(self) -> Any:
        """The answer to the oldest request that has none. Buffers of records in it
        are views of what was received."""
        sent = self._sent.popleft()
        answer = self._read(read_frame_size(self._read(SIZE_BYTES)))
        correlation_id, position = decode_response_header(sent.key, sent.version, answer)
        if correlation_id != sent.correlation_id:
            raise MalformedMessage(
                f"{self.address} answered request {correlation_id} instead of {sent.correlation_id}"
            )
        return decode_response(sent.key, sent.version, answer, position)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        with memoryview(data) as view:
            position = 0
            while position < size:
                try:
                    received = self._socket.recv_into(view[position:])
                except OSError as error:
                    raise self._cut(error) from error
                if not received:
                    raise self._cut("the broker hung up")
                position += received
        return data

    def _cut(self, reason: object) -> BrokerUnreachable:
        self.close()
        return BrokerUnreachable(f"the connection to {self.address} was lost: {reason}")
