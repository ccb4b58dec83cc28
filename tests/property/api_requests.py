"""A request of every API that a node offers, each of which does something: what it reads
is there, and what it changes is seen by another.

    topics     "orders"   two partitions, some records in the first
               "spare"    one partition, nothing in it
    groups     "old"      has committed an offset, and no members
               "classic"  has one member, in generation 1
               "modern"   has one member, of Kafka's newer protocol
               "streams"  has one member, an instance of a Kafka Streams application
               "share"    has one member, with a session that holds the first record
    producers  "paying"   has an open transaction with one record in "orders"/1
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from headrace.record import NewRecord, build_batch
from headrace.wire.kafka.api import APIS, module_name
from headrace.wire.kafka.generated import (
    add_offsets_to_txn_request,
    add_partitions_to_txn_request,
    alter_configs_request,
    alter_partition_reassignments_request,
    alter_replica_log_dirs_request,
    alter_share_group_offsets_request,
    api_versions_request,
    consumer_group_describe_request,
    consumer_group_heartbeat_request,
    create_partitions_request,
    create_topics_request,
    delete_groups_request,
    delete_records_request,
    delete_share_group_offsets_request,
    delete_topics_request,
    describe_cluster_request,
    describe_configs_request,
    describe_groups_request,
    describe_log_dirs_request,
    describe_producers_request,
    describe_quorum_request,
    describe_share_group_offsets_request,
    describe_topic_partitions_request,
    describe_transactions_request,
    elect_leaders_request,
    end_txn_request,
    fetch_request,
    find_coordinator_request,
    get_telemetry_subscriptions_request,
    heartbeat_request,
    incremental_alter_configs_request,
    init_producer_id_request,
    join_group_request,
    leave_group_request,
    list_config_resources_request,
    list_groups_request,
    list_offsets_request,
    list_partition_reassignments_request,
    list_transactions_request,
    metadata_request,
    offset_commit_request,
    offset_delete_request,
    offset_fetch_request,
    offset_for_leader_epoch_request,
    produce_request,
    push_telemetry_request,
    share_acknowledge_request,
    share_fetch_request,
    share_group_describe_request,
    share_group_heartbeat_request,
    streams_group_describe_request,
    streams_group_heartbeat_request,
    sync_group_request,
    txn_offset_commit_request,
    write_txn_markers_request,
)

TOPIC, SPARE, PAYING = "orders", "spare", "paying"
OLD, CLASSIC, MODERN, STREAMS, SHARE = "old", "classic", "modern", "streams", "share"
RECORD_MS = 1_700_000_000_000
POLL_WAIT_MS = 1_000
_TOPIC_RESOURCE = 2

_KEYS = {api.name: key for key, api in APIS.items()}


class Ask(NamedTuple):
    """One request, in the version in which it is sent."""

    label: str
    key: int
    version: int
    request: Any
    has_answer: bool = True


class Standing(NamedTuple):
    """What the requests have to know of the world they are sent into."""

    topic_id: bytes
    classic_member: str
    modern_member: str
    producer_id: int
    producer_epoch: int


def ask(name: str, request: Any, version: int | None = None, label: str = "", **more: Any) -> Ask:
    key = _KEYS[name]
    return Ask(label or name, key, APIS[key].last if version is None else version, request, **more)


def batch(value: bytes = b"new", **options: Any) -> bytes:
    return bytes(build_batch([NewRecord(None, value, (), RECORD_MS)], **options))


def produce(
    records: bytes, index: int = 0, *, name: str | None = None, acks: int = -1, **more: Any
) -> Ask:
    parts = (produce_request.PartitionProduceData(index, records),)
    data = produce_request.TopicProduceData(TOPIC, partition_data=parts)
    request = produce_request.ProduceRequest(name, acks, 30_000, (data,))
    return ask("Produce", request, 12, has_answer=acks != 0, **more)


def fetch(offset: int, wait_ms: int, label: str) -> Ask:
    part = fetch_request.FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)
    request = fetch_request.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=(fetch_request.FetchTopic(TOPIC, partitions=(part,)),),
    )
    return ask("Fetch", request, 12, label)


def list_offsets(timestamp: int, label: str) -> Ask:
    parts = (list_offsets_request.ListOffsetsPartition(0, -1, timestamp),)
    topics = (list_offsets_request.ListOffsetsTopic(TOPIC, parts),)
    return ask("ListOffsets", list_offsets_request.ListOffsetsRequest(-1, 0, topics), label=label)


def share_fetch(at: Standing, wait_ms: int, label: str, acks: tuple[Any, ...] = ()) -> Ask:
    # The session was opened with epoch 0.
    parts = (share_fetch_request.FetchPartition(0, acks),)
    topics = (share_fetch_request.FetchTopic(at.topic_id, parts),) if acks else ()
    request = share_fetch_request.ShareFetchRequest(
        SHARE, "m", 1, wait_ms, 1, 1 << 20, 1 if acks else 500, 1, 1, topics=topics
    )
    return ask("ShareFetch", request, label=label)


def requests(at: Standing) -> list[Ask]:
    """At least one of every API; of those that may wait, one that does."""
    of_groups = [*_groups(at), *_streams_groups(), *_transactions(at), *_share_groups(at)]
    return [*_data(at), *of_groups, *_admin(), *_cluster()]


def _data(at: Standing) -> list[Ask]:
    epoch = offset_for_leader_epoch_request
    deleted = delete_records_request
    return [
        produce(batch()),
        produce(batch(), acks=0, label="Produce without acks"),
        fetch(0, 0, "Fetch"),
        fetch(6, POLL_WAIT_MS, "Fetch that waits"),
        list_offsets(-1, "ListOffsets of the end"),
        list_offsets(-2, "ListOffsets of the start"),
        ask("Metadata", metadata_request.MetadataRequest(topics=None)),
        ask(
            "DeleteRecords",
            deleted.DeleteRecordsRequest(
                (deleted.DeleteRecordsTopic(TOPIC, (deleted.DeleteRecordsPartition(0, 2),)),), 1_000
            ),
        ),
        ask(
            "OffsetForLeaderEpoch",
            epoch.OffsetForLeaderEpochRequest(
                -1, (epoch.OffsetForLeaderTopic(TOPIC, (epoch.OffsetForLeaderPartition(0),)),)
            ),
        ),
    ]


def _groups(at: Standing) -> list[Ask]:
    commit, offsets, deleted = offset_commit_request, offset_fetch_request, offset_delete_request
    committed = commit.OffsetCommitRequestPartition(0, 4)
    wanted = offsets.OffsetFetchRequestTopics(TOPIC, partition_indexes=(0,))
    joining = join_group_request
    return [
        ask(
            "OffsetCommit",
            commit.OffsetCommitRequest(
                OLD, topics=(commit.OffsetCommitRequestTopic(TOPIC, partitions=(committed,)),)
            ),
            9,
        ),
        ask(
            "OffsetFetch",
            offsets.OffsetFetchRequest(
                groups=(offsets.OffsetFetchRequestGroup(OLD, topics=(wanted,)),)
            ),
            9,
        ),
        ask(
            "FindCoordinator",
            find_coordinator_request.FindCoordinatorRequest(coordinator_keys=(OLD,)),
        ),
        ask(
            "JoinGroup",
            joining.JoinGroupRequest(
                CLASSIC, 30_000, 30_000, at.classic_member, None, "consumer",
                (joining.JoinGroupRequestProtocol("range", b"other"),),
            ),
        ),
        ask("Heartbeat", heartbeat_request.HeartbeatRequest(CLASSIC, 1, at.classic_member)),
        ask(
            "SyncGroup",
            sync_group_request.SyncGroupRequest(
                CLASSIC, 1, at.classic_member, None, "consumer", "range",
                (sync_group_request.SyncGroupRequestAssignment(at.classic_member, b"mine"),),
            ),
        ),
        ask(
            "LeaveGroup",
            leave_group_request.LeaveGroupRequest(
                CLASSIC, members=(leave_group_request.MemberIdentity(at.classic_member),)
            ),
        ),
        ask("DescribeGroups", describe_groups_request.DescribeGroupsRequest((OLD, CLASSIC))),
        ask("ListGroups", list_groups_request.ListGroupsRequest()),
        ask("DeleteGroups", delete_groups_request.DeleteGroupsRequest((OLD,))),
        ask(
            "OffsetDelete",
            deleted.OffsetDeleteRequest(
                OLD,
                (
                    deleted.OffsetDeleteRequestTopic(
                        TOPIC, (deleted.OffsetDeleteRequestPartition(0),)
                    ),
                ),
            ),
        ),
        ask(
            "ConsumerGroupHeartbeat",
            consumer_group_heartbeat_request.ConsumerGroupHeartbeatRequest(
                MODERN, at.modern_member, 1, rebalance_timeout_ms=30_000,
                subscribed_topic_names=(SPARE,), topic_partitions=(),
            ),
        ),
        ask(
            "ConsumerGroupDescribe",
            consumer_group_describe_request.ConsumerGroupDescribeRequest((MODERN,)),
        ),
    ]  # fmt: skip


def _streams_groups() -> list[Ask]:
    beating, describing = streams_group_heartbeat_request, streams_group_describe_request
    leaving = beating.StreamsGroupHeartbeatRequest(STREAMS, "streams-member", -1)
    described = describing.StreamsGroupDescribeRequest((STREAMS,))
    return [ask("StreamsGroupHeartbeat", leaving), ask("StreamsGroupDescribe", described)]


def _transactions(at: Standing) -> list[Ask]:
    who = (PAYING, at.producer_id, at.producer_epoch)
    adding, offsets = add_partitions_to_txn_request, txn_offset_commit_request
    position = offsets.TxnOffsetCommitRequestPartition(0, 5)
    paid = batch(
        b"paid",
        producer_id=at.producer_id,
        producer_epoch=at.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    return [
        # The first of its transaction in this partition: appended when that is noted.
        produce(paid, name=PAYING, label="Produce in a transaction"),
        ask("InitProducerId", init_producer_id_request.InitProducerIdRequest(PAYING, 60_000)),
        ask(
            "AddPartitionsToTxn",
            adding.AddPartitionsToTxnRequest(*who, (adding.AddPartitionsToTxnTopic(TOPIC, (0,)),)),
        ),
        ask("AddOffsetsToTxn", add_offsets_to_txn_request.AddOffsetsToTxnRequest(*who, OLD)),
        ask("EndTxn", end_txn_request.EndTxnRequest(*who, committed=True)),
        ask("EndTxn", end_txn_request.EndTxnRequest(*who, committed=False), label="EndTxn (abort)"),
        ask(
            "TxnOffsetCommit",
            offsets.TxnOffsetCommitRequest(
                PAYING, OLD, at.producer_id, at.producer_epoch,
                topics=(offsets.TxnOffsetCommitRequestTopic(TOPIC, (position,)),),
            ),
        ),
        ask(
            "DescribeTransactions",
            describe_transactions_request.DescribeTransactionsRequest((PAYING,)),
        ),
        ask(
            "GetTelemetrySubscriptions",
            get_telemetry_subscriptions_request.GetTelemetrySubscriptionsRequest(b"i" * 16),
        ),
        ask("PushTelemetry", push_telemetry_request.PushTelemetryRequest(b"i" * 16)),
        ask(
            "WriteTxnMarkers",
            write_txn_markers_request.WriteTxnMarkersRequest(
                (
                    write_txn_markers_request.WritableTxnMarker(
                        at.producer_id, at.producer_epoch, False,
                        (write_txn_markers_request.WritableTxnMarkerTopic(TOPIC, (0,)),),
                    ),
                )
            ),
        ),
        ask("ListConfigResources", list_config_resources_request.ListConfigResourcesRequest()),
        ask("ListTransactions", list_transactions_request.ListTransactionsRequest()),
        ask(
            "DescribeProducers",
            describe_producers_request.DescribeProducersRequest(
                (describe_producers_request.TopicRequest(TOPIC, (0, 1)),)
            ),
        ),
    ]  # fmt: skip


def _share_groups(at: Standing) -> list[Ask]:
    settling = share_acknowledge_request
    done = settling.AcknowledgementBatch(0, 0, (1,))
    starts, moved = describe_share_group_offsets_request, alter_share_group_offsets_request
    removed = delete_share_group_offsets_request
    return [
        ask(
            "ShareGroupHeartbeat",
            share_group_heartbeat_request.ShareGroupHeartbeatRequest(
                SHARE, "m", 1, None, (TOPIC, SPARE)
            ),
        ),
        ask("ShareGroupDescribe", share_group_describe_request.ShareGroupDescribeRequest((SHARE,))),
        share_fetch(at, 0, "ShareFetch"),
        share_fetch(at, POLL_WAIT_MS, "ShareFetch that may wait"),
        share_fetch(
            at, 0, "ShareFetch with acks", (share_fetch_request.AcknowledgementBatch(0, 0, (1,)),)
        ),
        ask(
            "ShareAcknowledge",
            settling.ShareAcknowledgeRequest(
                SHARE, "m", 1,
                topics=(
                    settling.AcknowledgeTopic(
                        at.topic_id, (settling.AcknowledgePartition(0, (done,)),)
                    ),
                ),
            ),
        ),
        ask(
            "DescribeShareGroupOffsets",
            starts.DescribeShareGroupOffsetsRequest(
                (starts.DescribeShareGroupOffsetsRequestGroup(SHARE, None),)
            ),
        ),
        ask(
            "AlterShareGroupOffsets",
            moved.AlterShareGroupOffsetsRequest(
                SHARE,
                (
                    moved.AlterShareGroupOffsetsRequestTopic(
                        TOPIC, (moved.AlterShareGroupOffsetsRequestPartition(0, 3),)
                    ),
                ),
            ),
        ),
        ask(
            "DeleteShareGroupOffsets",
            removed.DeleteShareGroupOffsetsRequest(
                SHARE, (removed.DeleteShareGroupOffsetsRequestTopic(TOPIC),)
            ),
        ),
    ]  # fmt: skip


def _admin() -> list[Ask]:
    described, altered = describe_configs_request, alter_configs_request
    changed, partitions = incremental_alter_configs_request, create_partitions_request
    return [
        ask("ApiVersions", api_versions_request.ApiVersionsRequest("test", "1")),
        ask(
            "CreateTopics",
            create_topics_request.CreateTopicsRequest(
                (create_topics_request.CreatableTopic("made", 1, 1),)
            ),
        ),
        ask(
            "DeleteTopics",
            delete_topics_request.DeleteTopicsRequest(
                (delete_topics_request.DeleteTopicState(TOPIC),), timeout_ms=1_000
            ),
        ),
        ask(
            "DescribeConfigs",
            described.DescribeConfigsRequest(
                (described.DescribeConfigsResource(_TOPIC_RESOURCE, TOPIC, None),)
            ),
        ),
        ask(
            "AlterConfigs",
            altered.AlterConfigsRequest(
                (
                    altered.AlterConfigsResource(
                        _TOPIC_RESOURCE, TOPIC, (altered.AlterableConfig("retention.ms", "9000"),)
                    ),
                )
            ),
        ),
        ask(
            "IncrementalAlterConfigs",
            changed.IncrementalAlterConfigsRequest(
                (
                    changed.AlterConfigsResource(
                        _TOPIC_RESOURCE,
                        TOPIC,
                        (changed.AlterableConfig("retention.ms", 0, "8000"),),
                    ),
                )
            ),
        ),
        ask(
            "CreatePartitions",
            partitions.CreatePartitionsRequest(
                (partitions.CreatePartitionsTopic(TOPIC, 4, None),), 1_000
            ),
        ),
    ]


# What a node without security has nothing to say to.
_WITHOUT_SECURITY = (
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "AlterUserScramCredentials",
    "UpdateFeatures",
)


def _empty(name: str) -> Ask:
    module = import_module(f"headrace.wire.kafka.generated.{module_name(name)}_request")
    return ask(name, getattr(module, f"{name}Request")())


def _cluster() -> list[Ask]:
    moved = alter_partition_reassignments_request
    return [
        ask(
            "AlterReplicaLogDirs",
            alter_replica_log_dirs_request.AlterReplicaLogDirsRequest(
                (
                    alter_replica_log_dirs_request.AlterReplicaLogDir(
                        "/else",
                        (alter_replica_log_dirs_request.AlterReplicaLogDirTopic(TOPIC, (0,)),),
                    ),
                )
            ),
        ),
        # Later versions say how full the disk is, which others change.
        ask("DescribeLogDirs", describe_log_dirs_request.DescribeLogDirsRequest(None), 3),
        ask("ElectLeaders", elect_leaders_request.ElectLeadersRequest(0, None)),
        *map(_empty, _WITHOUT_SECURITY),
        ask(
            "AlterPartitionReassignments",
            moved.AlterPartitionReassignmentsRequest(
                topics=(moved.ReassignableTopic(TOPIC, (moved.ReassignablePartition(0, (1,)),)),)
            ),
        ),
        ask(
            "ListPartitionReassignments",
            list_partition_reassignments_request.ListPartitionReassignmentsRequest(),
        ),
        ask(
            "DescribeQuorum",
            describe_quorum_request.DescribeQuorumRequest(
                (
                    describe_quorum_request.TopicData(
                        "__cluster_metadata", (describe_quorum_request.PartitionData(0),)
                    ),
                )
            ),
        ),
        ask("DescribeCluster", describe_cluster_request.DescribeClusterRequest()),
        ask(
            "DescribeTopicPartitions",
            describe_topic_partitions_request.DescribeTopicPartitionsRequest(
                (describe_topic_partitions_request.TopicRequest(TOPIC),)
            ),
        ),
    ]
