"""A client that says exactly what a test wants said, in any version that we offer."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from itertools import count
from typing import Any, Self

import pytest

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.api import APIS, decode_response, encode_request
from headrace.wire.kafka.frame import (
    SIZE_BYTES,
    decode_response_header,
    encode_request_frame,
    read_frame_size,
)
from headrace.wire.kafka.generated import create_topics_request as create
from headrace.wire.kafka.generated import produce_request as produce

# What the shared node of a module of tests has in it from the start.
TOPIC = "orders"
RECORDS = 10
FIRST_MS = 1_700_000_000_000

_numbers = count()
_KEYS = {api.name: key for key, api in APIS.items()}


class WireClient:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, name: str, version: int, request: Any) -> Any:
        """The answer to one request. A connection that is cut is an error."""
        self.send(name, version, request)
        return self.receive(name, version)

    def send(self, name: str, version: int, request: Any) -> None:
        key = _KEYS[name]
        self._correlation_id += 1
        body = encode_request(key, version, request)
        frame = encode_request_frame(key, version, self._correlation_id, "wire", body)
        self._socket.sendall(b"".join(frame))

    def receive(self, name: str, version: int) -> Any:
        """The answer to what was sent last."""
        answer = self._read(read_frame_size(self._read(SIZE_BYTES)))
        correlation_id, position = decode_response_header(_KEYS[name], version, answer)
        assert correlation_id == self._correlation_id
        return decode_response(_KEYS[name], version, answer, position)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the node hung up")
            data += part
        return data


def versions(name: str) -> range:
    """All that are offered of an API."""
    api = APIS[_KEYS[name]]
    return range(api.first, api.last + 1)


def make(
    client: WireClient, name: str, partitions: int = 2, configs: Mapping[str, str] | None = None
) -> Any:
    wanted = create.CreatableTopic(
        name,
        partitions,
        1,
        (),
        tuple(create.CreatableTopicConfig(*each) for each in (configs or {}).items()),
    )
    (made,) = client.call("CreateTopics", 7, create.CreateTopicsRequest((wanted,))).topics
    assert not made.error_code, made
    return made


def publish(client: WireClient, name: str, records: int = RECORDS) -> None:
    batch = build_batch(
        [NewRecord(None, b"%d" % number, (), FIRST_MS + number) for number in range(records)]
    )
    data = produce.TopicProduceData(
        name, partition_data=(produce.PartitionProduceData(0, bytes(batch)),)
    )
    answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 30_000, (data,)))
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def fresh_name() -> str:
    return f"topic-{next(_numbers)}"


def each_version(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", versions(name))
