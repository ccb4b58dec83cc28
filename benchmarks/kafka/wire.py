"""A client of a few lines, for questions that are about one request: how long until a
broker answers, and how long one answer takes."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Any, Self

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.api import APIS, decode_response, encode_request
from headrace.wire.kafka.frame import (
    SIZE_BYTES,
    decode_response_header,
    encode_request_frame,
    read_frame_size,
)
from headrace.wire.kafka.generated import list_offsets_request as offsets
from headrace.wire.kafka.generated import produce_request as produce

if TYPE_CHECKING:
    from benchmarks.kafka.brokers import Broker

KEYS = {api.name: key for key, api in APIS.items()}
ANSWER_SECONDS = 60.0
# How long a broker may take to come back.
PATIENCE_SECONDS = 180.0
# Version 10 is what librdkafka sends.
PRODUCE_VERSION = 10
# Asks for the end of a partition.
LATEST = -1


class Wire:
    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), ANSWER_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, name: str, version: int, request: Any) -> Any:
        return self.decode(name, version, self.exchange(name, version, request))

    def exchange(self, name: str, version: int, request: Any) -> bytes:
        """The answer as it came, whole."""
        key = KEYS[name]
        body = encode_request(key, version, request)
        self._socket.sendall(b"".join(encode_request_frame(key, version, 1, "bench", body)))
        return self._read(read_frame_size(self._read(SIZE_BYTES)))

    def decode(self, name: str, version: int, answer: bytes) -> Any:
        _, position = decode_response_header(KEYS[name], version, answer)
        return decode_response(KEYS[name], version, answer, position)

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        room = memoryview(data)
        while room:
            count = self._socket.recv_into(room)
            if not count:
                raise ConnectionError("the broker hung up")
            room = room[count:]
        return bytes(data)


def count_messages(broker: Broker, topic: str, partitions: int) -> int | None:
    """What the topic has, by the ends of its partitions; nothing was deleted from it.
    None while one of them cannot be used yet."""
    wanted = tuple(offsets.ListOffsetsPartition(index, -1, LATEST) for index in range(partitions))
    request = offsets.ListOffsetsRequest(-1, 0, (offsets.ListOffsetsTopic(topic, wanted),))
    with Wire(broker) as wire:
        (found,) = wire.call("ListOffsets", 6, request).topics
    if any(each.error_code for each in found.partitions):
        return None
    return sum(int(each.offset) for each in found.partitions)


def seconds_until_produced(broker: Broker, topic: str) -> float:
    """Start the broker, and produce a message as soon as it takes one."""
    batch = bytes(build_batch([NewRecord(None, b"first", (), int(time.time() * 1000))]))
    request = produce.ProduceRequest(
        None,
        -1,
        30_000,
        (
            produce.TopicProduceData(
                topic, partition_data=(produce.PartitionProduceData(0, batch),)
            ),
        ),
    )
    began = time.perf_counter()
    broker.launch()
    while True:
        broker.check_alive()
        try:
            with Wire(broker) as wire:
                # A broker that listens may not yet know its topics.
                while (
                    wire.call("Produce", PRODUCE_VERSION, request)
                    .responses[0]
                    .partition_responses[0]
                    .error_code
                ):
                    time.sleep(0.002)
            return time.perf_counter() - began
        except OSError:
            time.sleep(0.002)
        if time.perf_counter() - began > PATIENCE_SECONDS:
            raise RuntimeError(f"{broker.name} took no message; see {broker.place}/log")
