"""Our own client of Kafka's protocol: against a node, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import WireClient, make

from headrace.client.kafka.cluster import EARLIEST, LATEST, KafkaCluster
from headrace.client.kafka.fetching import Fetched, Gap, PartitionFetch
from headrace.client.kafka.offsets import commit_offsets, committed_offsets, delete_group
from headrace.client.kafka.producing import KafkaProducer, Records
from headrace.core.errors import BrokerUnreachable, DataLost
from headrace.record import Codec, NewRecord, build_batch, read_records, split_batches

TOPIC = "orders"


@pytest.fixture
def cluster(node: NodeProcess) -> Iterator[KafkaCluster]:
    with WireClient(node.bootstrap) as client:
        make(client, TOPIC, 2)
    with KafkaCluster([node.bootstrap], timeout_ms=20_000) as connected:
        yield connected


def records_of(first: int, count: int) -> Records:
    batch = build_batch([NewRecord(None, b"%d" % (first + n), (), n) for n in range(count)])
    return Records(bytes(batch[61:]), count, 0, count - 1)


def publish(cluster: KafkaCluster, first: int, count: int, each: int = 10) -> None:
    producer = KafkaProducer(cluster, codec=Codec.LZ4)
    producer.begin()
    for start in range(first, first + count, each):
        producer.send(TOPIC, 0, records_of(start, each))
    producer.flush()
    producer.close()


def read(fetch: PartitionFetch) -> list[int]:
    found = []
    for fetched in fetch:
        assert isinstance(fetched, Fetched)
        for position, header in split_batches(fetched.records):
            found += [
                int(record.value or b"")
                for record in read_records(fetched.records[position:], header)
            ]
    return found


def test_what_is_sent_is_fetched_in_order(cluster: KafkaCluster) -> None:
    publish(cluster, 0, 1_000)
    place = (TOPIC, 0)
    assert cluster.offsets({place: EARLIEST})[place].offset == 0
    assert cluster.offsets({place: LATEST})[place].offset == 1_000
    assert read(PartitionFetch(cluster, TOPIC, 0, 0, 1_000)) == list(range(1_000))
    # Small answers: many of them, each asked for while the last is read.
    small = PartitionFetch(cluster, TOPIC, 0, 500, 1_000, fetch_bytes=500)
    assert read(small) == list(range(500, 1_000))
    numbers = small.numbers
    assert numbers.answers > 1 and numbers.bytes > 500 and numbers.retries == 0


def test_a_restarted_node_is_found_again_by_reader_and_writer(
    cluster: KafkaCluster, node: NodeProcess
) -> None:
    publish(cluster, 0, 1_000)
    producer = KafkaProducer(cluster)
    producer.begin()
    producer.send(TOPIC, 0, records_of(1_000, 10))
    reader = PartitionFetch(cluster, TOPIC, 0, 0, 1_020, fetch_bytes=500)
    fetch = iter(reader)
    first = next(fetch)
    assert isinstance(first, Fetched)
    node.restart(kill=True)
    producer.send(TOPIC, 0, records_of(1_010, 10))
    producer.flush()
    producer.close()
    rest = [each for each in fetch if isinstance(each, Fetched)]
    assert rest[-1].next_offset == 1_020
    assert reader.numbers.retries >= 1
    assert read(PartitionFetch(cluster, TOPIC, 0, 1_000, 1_020)) == list(range(1_000, 1_020))


def test_what_is_gone_is_a_gap_only_where_that_is_allowed(
    cluster: KafkaCluster, node: NodeProcess
) -> None:
    from headrace.wire.kafka.generated import delete_records_request as delete

    publish(cluster, 0, 100)
    with WireClient(node.bootstrap) as client:
        wanted = delete.DeleteRecordsTopic(TOPIC, (delete.DeleteRecordsPartition(0, 40),))
        client.call("DeleteRecords", 2, delete.DeleteRecordsRequest((wanted,), 10_000))
    with pytest.raises(DataLost, match="begins at offset 40: the records from 10 on"):
        list(PartitionFetch(cluster, TOPIC, 0, 10, 100))
    found = list(PartitionFetch(cluster, TOPIC, 0, 10, 100, gaps_allowed=True))
    assert found[0] == Gap(10, 40)
    assert isinstance(found[-1], Fetched)
    assert found[-1].next_offset == 100


def test_another_topic_of_the_same_name_is_not_read(cluster: KafkaCluster) -> None:
    publish(cluster, 0, 10)
    with pytest.raises(DataLost, match="was deleted and made again"):
        list(PartitionFetch(cluster, TOPIC, 0, 0, 10, topic_id="ab" * 16))


def test_offsets_of_a_group_are_kept_and_forgotten(cluster: KafkaCluster) -> None:
    publish(cluster, 0, 10)
    places = {TOPIC: (0, 1)}
    assert committed_offsets(cluster, "lag", places) == {(TOPIC, 0): -1, (TOPIC, 1): -1}
    commit_offsets(cluster, "lag", {(TOPIC, 0): 7})
    assert committed_offsets(cluster, "lag", places)[TOPIC, 0] == 7
    delete_group(cluster, "lag")
    assert committed_offsets(cluster, "lag", places)[TOPIC, 0] == -1
    delete_group(cluster, "never-there")


def test_nobody_there_is_said_with_the_address() -> None:
    with (
        KafkaCluster(["127.0.0.1:1"], timeout_ms=1) as nowhere,
        pytest.raises(BrokerUnreachable, match="127.0.0.1:1 cannot be reached: .*; start the node"),
    ):
        nowhere.topics()
