"""The cluster as a node alone describes it, in every version that is offered."""

from __future__ import annotations

from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import (
    FIRST_MS,
    TOPIC,
    WireClient,
    each_version,
    fresh_name,
    make,
)

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated import alter_partition_reassignments_request as reassign
from headrace.wire.kafka.generated import alter_replica_log_dirs_request as move
from headrace.wire.kafka.generated import describe_cluster_request as cluster
from headrace.wire.kafka.generated import describe_log_dirs_request as log_dirs
from headrace.wire.kafka.generated import describe_producers_request as producers
from headrace.wire.kafka.generated import describe_quorum_request as quorum
from headrace.wire.kafka.generated import describe_topic_partitions_request as pages
from headrace.wire.kafka.generated import elect_leaders_request as elect
from headrace.wire.kafka.generated import init_producer_id_request as init_producer
from headrace.wire.kafka.generated import list_partition_reassignments_request as ongoing
from headrace.wire.kafka.generated import metadata_request as metadata
from headrace.wire.kafka.generated import produce_request as produce

# The cluster.


@each_version("DescribeCluster")
def test_the_cluster_is_this_node(
    client: WireClient, admin_node: NodeProcess, version: int
) -> None:
    answer = client.call("DescribeCluster", version, cluster.DescribeClusterRequest(True))
    assert answer.error_code == 0 and answer.cluster_id
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == admin_node.bootstrap
    assert answer.controller_id == broker.broker_id
    assert answer.cluster_authorized_operations > 0
    if version:
        request = cluster.DescribeClusterRequest(endpoint_type=2)
        refused = client.call("DescribeCluster", version, request)
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_partitions_come_in_pages(client: WireClient) -> None:
    names = sorted(fresh_name() for _ in range(3))
    for name in names:
        make(client, name, partitions=3)
    request = pages.DescribeTopicPartitionsRequest(
        tuple(pages.TopicRequest(name) for name in (*names, "topic-unknown")), 2
    )
    seen: list[tuple[str, int]] = []
    unknown = []
    while True:
        answer = client.call("DescribeTopicPartitions", 0, request)
        on_page = 0
        for topic in answer.topics:
            if topic.error_code:
                unknown.append((topic.name, topic.error_code))
            for partition in topic.partitions:
                assert partition.eligible_leader_replicas is not None
                seen.append((topic.name, partition.partition_index))
                on_page += 1
        assert on_page <= 2
        if answer.next_cursor is None:
            break
        request = request._replace(cursor=pages.Cursor(*answer.next_cursor))
    assert seen == [(name, index) for name in names for index in range(3)]
    assert unknown == [("topic-unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@each_version("DescribeLogDirs")
def test_sizes_on_disk_are_told(client: WireClient, admin_node: NodeProcess, version: int) -> None:
    for topics in (None, (log_dirs.DescribableLogDirTopic(TOPIC, (0, 1, 9)),)):
        request = log_dirs.DescribeLogDirsRequest(topics)
        (result,) = client.call("DescribeLogDirs", version, request).results
        assert (result.error_code, result.log_dir) == (0, str(admin_node.data))
        (topic,) = [each for each in result.topics if each.name == TOPIC]
        sizes = {each.partition_index: each.partition_size for each in topic.partitions}
        assert set(sizes) == {0, 1}
        assert sizes[0] > 0 == sizes[1]
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes


def test_producers_of_a_partition_are_told(client: WireClient) -> None:
    name = fresh_name()
    make(client, name)
    asked = init_producer.InitProducerIdRequest(None, 1_000)
    number = client.call("InitProducerId", 4, asked).producer_id
    records = [NewRecord(None, b"v", (), FIRST_MS)] * 3
    batch = build_batch(records, producer_id=number, producer_epoch=0, base_sequence=0)
    data = produce.TopicProduceData(
        name, partition_data=(produce.PartitionProduceData(0, bytes(batch)),)
    )
    client.call("Produce", 9, produce.ProduceRequest(None, -1, 30_000, (data,)))
    request = producers.DescribeProducersRequest((producers.TopicRequest(name, (0, 1, 9)),))
    first, second, unknown = client.call("DescribeProducers", 0, request).topics[0].partitions
    (producer,) = first.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (number, 0, 2)
    assert not second.active_producers
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@each_version("ElectLeaders")
def test_no_election_is_needed(client: WireClient, version: int) -> None:
    named = (elect.TopicPartitions(TOPIC, (0, 9)),)
    answer = client.call("ElectLeaders", version, elect.ElectLeadersRequest(0, named))
    codes = [each.error_code for each in answer.replica_election_results[0].partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    everything = client.call("ElectLeaders", version, elect.ElectLeadersRequest(0, None))
    assert (everything.error_code, list(everything.replica_election_results)) == (0, [])


@each_version("AlterPartitionReassignments")
def test_replicas_stay_where_they_are(client: WireClient, version: int) -> None:
    node = client.call("Metadata", 1, metadata.MetadataRequest(())).brokers[0].node_id
    wanted = [(0, (node,)), (1, (node, 99)), (0, None), (9, (node,))]
    topic = reassign.ReassignableTopic(
        TOPIC, tuple(reassign.ReassignablePartition(*each) for each in wanted)
    )
    request = reassign.AlterPartitionReassignmentsRequest(topics=(topic,))
    answer = client.call("AlterPartitionReassignments", version, request)
    assert [each.error_code for each in answer.responses[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    under_way = client.call(
        "ListPartitionReassignments", 0, ongoing.ListPartitionReassignmentsRequest()
    )
    assert (under_way.error_code, list(under_way.topics)) == (0, [])


@each_version("AlterReplicaLogDirs")
def test_there_is_one_directory(client: WireClient, admin_node: NodeProcess, version: int) -> None:
    request = move.AlterReplicaLogDirsRequest(
        tuple(
            move.AlterReplicaLogDir(path, (move.AlterReplicaLogDirTopic(TOPIC, (0,)),))
            for path in (str(admin_node.data), "/elsewhere")
        )
    )
    (topic,) = client.call("AlterReplicaLogDirs", version, request).results
    codes = [each.error_code for each in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.LOG_DIR_NOT_FOUND]


@each_version("DescribeQuorum")
def test_a_node_alone_is_a_quorum_of_one(client: WireClient, version: int) -> None:
    topic = quorum.TopicData("__cluster_metadata", (quorum.PartitionData(0),))
    answer = client.call("DescribeQuorum", version, quorum.DescribeQuorumRequest((topic,)))
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == 0
    assert [voter.replica_id for voter in partition.current_voters] == [partition.leader_id]
    assert partition.high_watermark > 0
