"""Metadata, coordinators, producers and offsets, in every version that is offered."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.conftest import NodeProcess
from tests.interop.wire_client import (
    FIRST_MS,
    RECORDS,
    TOPIC,
    WireClient,
    each_version,
    fresh_name,
    versions,
)

from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated import find_coordinator_request as coordinator
from headrace.wire.kafka.generated import init_producer_id_request as init_producer
from headrace.wire.kafka.generated import list_offsets_request as list_offsets
from headrace.wire.kafka.generated import metadata_request as metadata
from headrace.wire.kafka.generated import offset_for_leader_epoch_request as epochs

UNKNOWN_ID = b"\x01" * 16


# Metadata.


@each_version("Metadata")
def test_metadata_names_the_node_and_the_topics_asked_for(
    client: WireClient, admin_node: NodeProcess, version: int
) -> None:
    asked = metadata.MetadataRequest((metadata.MetadataRequestTopic(name=TOPIC),))
    answer = client.call("Metadata", version, asked)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == admin_node.bootstrap
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, TOPIC, False)
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    for each in topic.partitions:
        assert each.leader_id == broker.node_id
        assert list(each.replica_nodes) == list(each.isr_nodes) == [broker.node_id]
        assert each.leader_epoch == (1 if version >= 7 else -1)
    if version >= 1:
        assert answer.controller_id == broker.node_id
    if version >= 2:
        assert answer.cluster_id
    if version >= 10:
        assert topic.topic_id != bytes(16)


@each_version("Metadata")
def test_metadata_of_everything_and_of_nothing(client: WireClient, version: int) -> None:
    everything = metadata.MetadataRequest(None if version else ())
    names = {topic.name for topic in client.call("Metadata", version, everything).topics}
    assert TOPIC in names
    assert not any(name.startswith("__") for name in names)
    if version:
        assert not client.call("Metadata", version, metadata.MetadataRequest(())).topics


@each_version("Metadata")
def test_an_unknown_topic_is_made_when_the_request_allows_it(
    client: WireClient, version: int
) -> None:
    name = fresh_name()
    asked = metadata.MetadataRequest((metadata.MetadataRequestTopic(name=name),), False)
    if version >= 4:
        (topic,) = client.call("Metadata", version, asked).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = asked._replace(allow_auto_topic_creation=True)
    (topic,) = client.call("Metadata", version, asked).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 2)


@pytest.mark.parametrize("name", ["white space", "", ".", "x" * 250, "__trace"])
def test_names_that_no_topic_can_have_are_refused(client: WireClient, name: str) -> None:
    asked = metadata.MetadataRequest((metadata.MetadataRequestTopic(name=name),))
    (topic,) = client.call("Metadata", 9, asked).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [version for version in versions("Metadata") if version >= 10])
def test_metadata_by_id(client: WireClient, version: int) -> None:
    by_name = metadata.MetadataRequest((metadata.MetadataRequestTopic(name=TOPIC),))
    (topic,) = client.call("Metadata", version, by_name).topics
    by_id = metadata.MetadataRequest(
        (
            metadata.MetadataRequestTopic(topic.topic_id, None),
            metadata.MetadataRequestTopic(UNKNOWN_ID, None),
        )
    )
    found, unknown = client.call("Metadata", version, by_id).topics
    assert found == topic
    assert (unknown.error_code, unknown.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)


# Coordinators and producers.


@each_version("FindCoordinator")
def test_this_node_coordinates_everything(
    client: WireClient, admin_node: NodeProcess, version: int
) -> None:
    for kind in (0, 1, 2) if version else (0,):
        asked = coordinator.FindCoordinatorRequest("a", kind, ("a", "b"))
        answer = client.call("FindCoordinator", version, asked)
        found = answer.coordinators if version >= 4 else [answer]
        assert len(found) == (2 if version >= 4 else 1)
        for each in found:
            assert each.error_code == 0
            assert f"{each.host}:{each.port}" == admin_node.bootstrap
    if version:
        answer = client.call(
            "FindCoordinator", version, coordinator.FindCoordinatorRequest("a", 9, ("a",))
        )
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code == ErrorCode.INVALID_REQUEST


@each_version("InitProducerId")
def test_every_producer_gets_a_number_of_its_own(client: WireClient, version: int) -> None:
    asked = init_producer.InitProducerIdRequest(None, 1_000)
    numbers = {client.call("InitProducerId", version, asked).producer_id for _ in range(3)}
    assert len(numbers) == 3 and min(numbers) >= 0


@each_version("InitProducerId")
def test_a_transactional_id_keeps_its_number_and_gets_the_next_epoch(
    client: WireClient, version: int
) -> None:
    asked = init_producer.InitProducerIdRequest(f"id-{version}", 1_000)
    first = client.call("InitProducerId", version, asked)
    second = client.call("InitProducerId", version, asked)
    assert (first.error_code, first.producer_epoch) == (ErrorCode.NONE, 0)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)
    refused = client.call("InitProducerId", version, asked._replace(transactional_id=""))
    assert (refused.error_code, refused.producer_id) == (ErrorCode.INVALID_REQUEST, -1)
    too_long = client.call(
        "InitProducerId", version, asked._replace(transaction_timeout_ms=900_001)
    )
    assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


# Offsets.


@each_version("ListOffsets")
@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [
        (-1, RECORDS, -1),
        (-2, 0, -1),
        (-3, RECORDS - 1, FIRST_MS + RECORDS - 1),
        (-4, 0, -1),
        (-5, -1, -1),
        (FIRST_MS + 4, 4, FIRST_MS + 4),
        (0, 0, FIRST_MS),
        (FIRST_MS + RECORDS, -1, -1),
    ],
)
def test_offsets_by_time(
    client: WireClient, version: int, timestamp: int, offset: int, found_ms: int
) -> None:
    wanted = list_offsets.ListOffsetsTopic(
        TOPIC, (list_offsets.ListOffsetsPartition(0, timestamp=timestamp),)
    )
    answer = client.call("ListOffsets", version, list_offsets.ListOffsetsRequest(-1, 0, (wanted,)))
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_ms)
    if version >= 4 and offset >= 0:
        assert found.leader_epoch == 1


@pytest.mark.parametrize(
    ("name", "index", "epoch", "timestamp", "code"),
    [
        (TOPIC, 0, 0, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (TOPIC, 0, 99, -1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (TOPIC, 0, 1, -9, ErrorCode.UNSUPPORTED_VERSION),
        (TOPIC, 7, -1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, -1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_offsets_that_cannot_be_told(
    client: WireClient, name: str, index: int, epoch: int, timestamp: int, code: ErrorCode
) -> None:
    wanted = list_offsets.ListOffsetsPartition(index, epoch, timestamp)
    request = list_offsets.ListOffsetsRequest(
        -1, 1, (list_offsets.ListOffsetsTopic(name, (wanted,)),)
    )
    assert client.call("ListOffsets", 9, request).topics[0].partitions[0].error_code == code


@each_version("OffsetForLeaderEpoch")
@pytest.mark.parametrize(
    ("epoch", "current", "answer"),
    [
        (1, -1, (0, 1, RECORDS)),
        (1, 1, (0, 1, RECORDS)),
        (0, 1, (0, 0, 0)),
        (2, 1, (0, -1, -1)),
        (1, 0, (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)),
        (1, 2, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
    ],
)
def test_where_an_epoch_ended(
    client: WireClient, version: int, epoch: int, current: int, answer: tuple[int, int, int]
) -> None:
    wanted = epochs.OffsetForLeaderTopic(
        TOPIC, (epochs.OffsetForLeaderPartition(0, current, epoch),)
    )
    request = epochs.OffsetForLeaderEpochRequest(-1, (wanted,))
    (found,) = client.call("OffsetForLeaderEpoch", version, request).topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == answer


@pytest.mark.parametrize(("wanted", "number"), [(None, 1), ("7", 7)])
def test_a_node_has_the_number_of_its_settings_or_of_a_broker_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str | None, number: int
) -> None:
    if wanted is not None:
        monkeypatch.setenv("HEADRACE_NODE_ID", wanted)
    node = NodeProcess(tmp_path / "data")
    try:
        with WireClient(node.bootstrap) as client:
            (broker,) = client.call("Metadata", 9, metadata.MetadataRequest(())).brokers
            assert broker.node_id == number
    finally:
        node.stop()
