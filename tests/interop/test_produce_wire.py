"""Produce, said word by word: what is taken, what is refused and with which code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, each_version, fresh_name, make

from headrace.record import Codec, NewRecord, build_batch, read_records
from headrace.record.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    seal_batch,
    stamp_append_time,
)
from headrace.server.kafka.errors import Error
from headrace.wire.kafka.generated import fetch_request as fetch
from headrace.wire.kafka.generated import init_producer_id_request as init
from headrace.wire.kafka.generated import produce_request as produce
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path_factory.mktemp("produce") / "data", "--log-level", "error")
    yield process
    process.stop()


@pytest.fixture
def client(shared: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared.bootstrap) as made:
        yield made


@pytest.fixture
def topic(client: WireClient) -> Any:
    return make(client, fresh_name(), 1)


def batch_of(*values: bytes, **options: Any) -> bytearray:
    records = [NewRecord(None, value, (), 1_700_000_000_000) for value in values]
    return build_batch(records, **options)


def request(
    topic: Any, records: bytes | bytearray | None, *, acks: int = -1, index: int = 0
) -> produce.ProduceRequest:
    data = produce.TopicProduceData(
        topic.name,
        topic.topic_id,
        (produce.PartitionProduceData(index, None if records is None else bytes(records)),),
    )
    return produce.ProduceRequest(None, acks, 30_000, (data,))


def send(client: WireClient, topic: Any, records: bytes | bytearray | None, **options: Any) -> Any:
    version = options.pop("version", 9)
    answer = client.call("Produce", version, request(topic, records, **options))
    return answer.responses[0].partition_responses[0]


def values_of(client: WireClient, topic: Any) -> list[bytes | None]:
    wanted = fetch.FetchTopic(
        topic.name, partitions=(fetch.FetchPartition(0, -1, 0, partition_max_bytes=10**6),)
    )
    asked = fetch.FetchRequest(max_wait_ms=0, session_epoch=-1, topics=(wanted,))
    data = client.call("Fetch", 11, asked).responses[0].partitions[0]
    found: list[bytes | None] = []
    records = bytes(data.records or b"")
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        found += [record.value for record in read_records(records[:size])]
        records = records[size:]
    return found


@each_version("Produce")
def test_every_version_is_answered_with_the_offset(
    client: WireClient, topic: Any, version: int
) -> None:
    assert send(client, topic, batch_of(b"a", b"b"), version=version).base_offset == 0
    answer = send(client, topic, batch_of(b"c"), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 2)
    assert values_of(client, topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_every_codec_is_stored_as_it_came(
    client: WireClient, topic: Any, codec: Codec
) -> None:
    values = [b"x" * 1000, b"y" * 1000]
    assert send(client, topic, batch_of(*values, codec=codec)).error_code == 0
    assert values_of(client, topic) == values


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_that_are_only_advertised_end_the_connection(
    shared: NodeProcess, version: int
) -> None:
    with WireClient(shared.bootstrap) as client:
        frame = (
            b"\0\0"
            + version.to_bytes(2, "big")
            + b"\0\0\0\1"
            + b"\xff\xff"
            + b"\0\1\0\0\0\0\0\0\0\0"
        )
        client._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        assert client._socket.recv(1) == b""


def test_acks_zero_gets_no_answer_and_the_next_request_does(client: WireClient, topic: Any) -> None:
    client.send("Produce", 9, request(topic, batch_of(b"quiet"), acks=0))
    assert send(client, topic, batch_of(b"loud")).base_offset == 1
    assert values_of(client, topic) == [b"quiet", b"loud"]


def test_acks_zero_that_fails_ends_the_connection(shared: NodeProcess, topic: Any) -> None:
    with WireClient(shared.bootstrap) as client:
        client.send("Produce", 9, request(topic, batch_of(b"a"), acks=0, index=77))
        with pytest.raises(ConnectionError):
            client.receive("Produce", 9)


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused_and_nothing_is_written(
    client: WireClient, topic: Any, acks: int
) -> None:
    answer = send(client, topic, batch_of(b"a"), acks=acks)
    assert answer.error_code == Error.INVALID_REQUIRED_ACKS
    assert values_of(client, topic) == []


def changed(batch: bytearray, attributes: int) -> bytearray:
    batch[22] |= attributes
    seal_batch(batch, 0, len(batch))
    return batch


def with_gap() -> bytearray:
    batch = batch_of(b"a")
    batch[23:27] = (1_000_000).to_bytes(4, "big")
    seal_batch(batch, 0, len(batch))
    return batch


def with_bad_crc() -> bytearray:
    batch = batch_of(b"abcdef")
    batch[-2] ^= 1
    return batch


def with_an_endless_record() -> bytearray:
    batch = batch_of(b"abcdef")
    batch[HEADER_BYTES] += 2
    seal_batch(batch, 0, len(batch))
    return batch


def with_append_time() -> bytearray:
    batch = batch_of(b"a")
    stamp_append_time(batch, 5)
    assert batch[22] & LOG_APPEND_TIME
    return batch


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, Error.INVALID_RECORD),
        (b"", Error.INVALID_RECORD),
        (b"not a batch at all", Error.CORRUPT_MESSAGE),
        (bytes(batch_of(b"a"))[:-1], Error.CORRUPT_MESSAGE),
        (with_bad_crc(), Error.CORRUPT_MESSAGE),
        (batch_of(b"a") + batch_of(b"b"), Error.INVALID_RECORD),
        (batch_of(b"a") + b"tail", Error.INVALID_RECORD),
        (with_gap(), Error.INVALID_RECORD),
        (changed(batch_of(b"a"), TRANSACTIONAL), Error.INVALID_RECORD),
        (
            batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (with_append_time(), Error.INVALID_TIMESTAMP),
        (batch_of(b"z" * 1_048_576), Error.MESSAGE_TOO_LARGE),
        (
            batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=-1),
            Error.INVALID_RECORD,
        ),
        (with_an_endless_record(), Error.INVALID_RECORD),
    ],
    ids=lambda value: value.name if isinstance(value, Error) else None,
)
def test_what_is_not_one_good_batch_is_refused_and_not_written(
    client: WireClient, topic: Any, records: bytes | bytearray | None, code: Error
) -> None:
    answer = send(client, topic, records)
    assert answer.error_code == code
    assert answer.base_offset == -1
    assert answer.error_message
    assert values_of(client, topic) == []


def test_control_batches_are_not_a_producers_to_send(client: WireClient, topic: Any) -> None:
    marker = changed(batch_of(b"a"), CONTROL)
    assert send(client, topic, marker).error_code == Error.INVALID_RECORD


@pytest.mark.parametrize("version", [9, 12])
def test_a_transactional_id_that_nobody_began_is_refused_for_good(
    client: WireClient, topic: Any, version: int
) -> None:
    batch = batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    asked = request(topic, batch)._replace(transactional_id="payments")
    answer = client.call("Produce", version, asked).responses[0].partition_responses[0]
    assert answer.error_code == Error.INVALID_PRODUCER_ID_MAPPING
    assert "transaction" in answer.error_message
    assert values_of(client, topic) == []


def test_a_batch_outside_of_transactions_may_come_with_an_id(
    client: WireClient, topic: Any
) -> None:
    asked = request(topic, batch_of(b"a"))._replace(transactional_id="payments")
    answer = client.call("Produce", 9, asked).responses[0].partition_responses[0]
    assert answer.error_code == Error.NONE


@pytest.mark.parametrize(
    ("version", "index", "code"),
    [(9, 1, Error.UNKNOWN_TOPIC_OR_PARTITION), (9, -1, Error.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_an_unknown_partition_is_said_so(
    client: WireClient, topic: Any, version: int, index: int, code: Error
) -> None:
    assert send(client, topic, batch_of(b"a"), version=version, index=index).error_code == code


def test_an_unknown_topic_is_said_so_by_name_and_by_id(client: WireClient, topic: Any) -> None:
    by_name = topic._replace(name="nobody-made-this")
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert send(client, by_name, batch_of(b"a"), version=12).error_code == unknown
    by_id = topic._replace(topic_id=b"\7" * 16)
    assert send(client, by_id, batch_of(b"a"), version=13).error_code == Error.UNKNOWN_TOPIC_ID


def test_partitions_fail_one_by_one(client: WireClient) -> None:
    made = make(client, fresh_name(), 2)
    data = produce.TopicProduceData(
        made.name,
        made.topic_id,
        (
            produce.PartitionProduceData(0, bytes(batch_of(b"good"))),
            produce.PartitionProduceData(1, b"bad"),
            produce.PartitionProduceData(9, bytes(batch_of(b"nowhere"))),
        ),
    )
    answer = client.call("Produce", 9, produce.ProduceRequest(None, -1, 1_000, (data,)))
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [0, Error.CORRUPT_MESSAGE, Error.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_idempotent_producers_retries_gaps_and_old_epochs(
    client: WireClient, topic: Any
) -> None:
    producer_id = client.call("InitProducerId", 4, init.InitProducerIdRequest(None)).producer_id

    def sequenced(sequence: int, *values: bytes, epoch: int = 1) -> Any:
        options = {"producer_epoch": epoch, "base_sequence": sequence}
        return send(client, topic, batch_of(*values, producer_id=producer_id, **options))

    assert sequenced(0, b"a", b"b").base_offset == 0
    assert sequenced(2, b"c").base_offset == 2
    again = sequenced(0, b"a", b"b")
    assert (again.error_code, again.base_offset) == (0, 0)
    assert sequenced(5, b"x").error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sequenced(0, b"x", epoch=0).error_code == Error.INVALID_PRODUCER_EPOCH
    assert sequenced(3, b"x", epoch=2).error_code == Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sequenced(0, b"d", epoch=2).base_offset == 3
    assert values_of(client, topic) == [b"a", b"b", b"c", b"d"]


def test_pipelined_requests_are_answered_in_order_whatever_they_wait_for(
    client: WireClient, topic: Any
) -> None:
    for number in range(50):
        client.send("Produce", 9, request(topic, batch_of(b"%d" % number)))
        client.send("Metadata", 9, MetadataRequest((MetadataRequestTopic(name=topic.name),)))
    last = client._correlation_id
    for number in range(50):
        client._correlation_id = last - 99 + 2 * number
        answer = client.receive("Produce", 9).responses[0].partition_responses[0]
        assert answer.base_offset == number
        client._correlation_id += 1
        assert client.receive("Metadata", 9).topics[0].error_code == 0
