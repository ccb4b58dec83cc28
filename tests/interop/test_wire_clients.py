"""Real clients talk to a broker of a hundred lines that has only our codec.

It knows one topic with one partition, keeps batches in a list, and answers what a
plain producer and a plain reader ask. What it proves is the wire: headers,
versions and layouts as aiokafka and kafka-python write and read them.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from headrace.core.ports import Buffer
from headrace.record import read_header
from headrace.wire.kafka.api import APIS, decode_request, encode_response
from headrace.wire.kafka.frame import (
    RequestHeader,
    decode_request_header,
    encode_response_frame,
    read_frame_size,
)
from headrace.wire.kafka.generated import (
    api_versions_response,
    fetch_response,
    init_producer_id_response,
    list_offsets_response,
    metadata_response,
    produce_response,
)

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    # Neither client has types, and kafka-python warns of its own old calls.
    aiokafka: Any = import_module("aiokafka")
    kafka_python: Any = import_module("kafka")

TOPIC = "spring"
TOPIC_ID = b"t" * 16
# No groups and no transactions: only what the clients below need.
SPOKEN = (0, 1, 2, 3, 18, 22)


class TinyBroker:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.next_offset = 0
        self.seen: set[tuple[int, int]] = set()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = read_frame_size(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                writer.writelines(self.answer(frame))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, frame: bytes) -> list[Buffer]:
        header = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        self.seen.add((key, version))
        if key == 18 and not APIS[18].speaks(version):
            body = encode_response(18, 0, api_versions(35))
            return encode_response_frame(18, 0, header.correlation_id, body)
        request = decode_request(key, version, frame, header.body_position)
        body = encode_response(key, version, self.respond(header, request))
        return encode_response_frame(key, version, header.correlation_id, body)

    def respond(self, header: RequestHeader, request: Any) -> Any:
        match header.api_key:
            case 18:
                return api_versions(0)
            case 3:
                return self.metadata()
            case 22:
                return init_producer_id_response.InitProducerIdResponse(producer_id=7)
            case 0:
                return self.produce(request)
            case 2:
                return self.list_offsets(request)
            case 1:
                return self.fetch(request)
        raise AssertionError(f"{header} was not advertised")

    def metadata(self) -> Any:
        partition = metadata_response.MetadataResponsePartition(
            leader_id=1, replica_nodes=(1,), isr_nodes=(1,)
        )
        return metadata_response.MetadataResponse(
            brokers=(metadata_response.MetadataResponseBroker(1, "127.0.0.1", self.port),),
            cluster_id="tiny",
            controller_id=1,
            topics=(
                metadata_response.MetadataResponseTopic(0, TOPIC, TOPIC_ID, False, (partition,)),
            ),
        )

    def produce(self, request: Any) -> Any:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        batch = bytearray(partition.records)
        base, header = self.next_offset, read_header(batch)
        batch[:8] = base.to_bytes(8, "big")
        self.batches.append(bytes(batch))
        self.next_offset += header.last_offset_delta + 1
        answer = produce_response.PartitionProduceResponse(base_offset=base)
        return produce_response.ProduceResponse(
            (produce_response.TopicProduceResponse(topic.name, topic.topic_id, (answer,)),)
        )

    def list_offsets(self, request: Any) -> Any:
        (topic,) = request.topics
        (partition,) = topic.partitions
        offset = 0 if partition.timestamp == -2 else self.next_offset
        answer = list_offsets_response.ListOffsetsPartitionResponse(
            timestamp=-1, offset=offset, leader_epoch=0
        )
        return list_offsets_response.ListOffsetsResponse(
            topics=(list_offsets_response.ListOffsetsTopicResponse(topic.name, (answer,)),)
        )

    def fetch(self, request: Any) -> Any:
        (topic,) = request.topics
        (partition,) = topic.partitions
        is_behind = partition.fetch_offset < self.next_offset
        answer = fetch_response.PartitionData(
            high_watermark=self.next_offset,
            last_stable_offset=self.next_offset,
            log_start_offset=0,
            records=b"".join(self.batches) if is_behind else b"",
        )
        return fetch_response.FetchResponse(
            responses=(
                fetch_response.FetchableTopicResponse(topic.topic, topic.topic_id, (answer,)),
            )
        )


def api_versions(error_code: int) -> Any:
    spoken = [
        api_versions_response.ApiVersion(key, APIS[key].advertised_first, APIS[key].last)
        for key in SPOKEN
    ]
    return api_versions_response.ApiVersionsResponse(error_code, spoken)


@pytest.fixture
def broker() -> TinyBroker:
    return TinyBroker()


def run(broker: TinyBroker, client: Callable[[str], Any]) -> Any:
    """Serve while the client, a function of the broker's address, does its work."""

    async def main() -> Any:
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        broker.port = server.sockets[0].getsockname()[1]
        try:
            return await client(f"127.0.0.1:{broker.port}")
        finally:
            server.close()
            await server.wait_closed()

    return asyncio.run(main())


def test_aiokafka_produces_and_reads_over_our_codec(broker: TinyBroker) -> None:
    async def client(address: str) -> list[tuple[int, bytes | None]]:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
        await producer.start()
        try:
            sent = await producer.send_and_wait(TOPIC, b"one")
            assert sent.offset == 0
            await producer.send_and_wait(TOPIC, b"two", headers=[("k", b"v")])
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
            records = [await consumer.getone(), await consumer.getone()]
            return [(record.offset, record.value) for record in records]
        finally:
            await consumer.stop()

    assert run(broker, client) == [(0, b"one"), (1, b"two")]
    assert {key for key, _ in broker.seen} == {0, 1, 2, 3, 18, 22}


def test_kafka_python_produces_and_reads_over_our_codec(broker: TinyBroker) -> None:
    def blocking(address: str) -> list[tuple[int, bytes]]:
        producer = kafka_python.KafkaProducer(bootstrap_servers=address, enable_idempotence=False)
        try:
            sent = producer.send(TOPIC, b"one", partition=0).get(timeout=30)
            assert sent.offset == 0
            producer.send(TOPIC, b"two", key=b"k", partition=0).get(timeout=30)
        finally:
            producer.close(timeout=10)
        consumer = kafka_python.KafkaConsumer(
            bootstrap_servers=address, auto_offset_reset="earliest"
        )
        try:
            consumer.assign([kafka_python.TopicPartition(TOPIC, 0)])
            records = [next(consumer), next(consumer)]
            return [(record.offset, record.value) for record in records]
        finally:
            consumer.close()

    async def client(address: str) -> list[tuple[int, bytes]]:
        return await asyncio.to_thread(blocking, address)

    assert run(broker, client) == [(0, b"one"), (1, b"two")]
    flexible = {key for key, version in broker.seen if APIS[key].is_flexible(version)}
    assert {0, 1, 3} <= flexible
