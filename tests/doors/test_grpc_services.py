"""The other services over gRPC: topics, messages, groups, the node, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from scripts.generate_grpc import WIRE, generate
from tests.doors.conftest import DoorsProcess
from tests.doors.grpc_client import SECONDS, GrpcClient, refused

from headrace.record import NewRecord, build_batch
from headrace.wire.grpc.generated import headrace_pb2 as pb

BAD = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND


@pytest.fixture
def client(doors: DoorsProcess) -> Iterator[GrpcClient]:
    made = GrpcClient(doors.doors["grpc"])
    yield made
    made.close()


def test_the_stubs_are_what_the_proto_says() -> None:
    for name, text in generate().items():
        assert (Path(WIRE) / "generated" / name).read_text() == text, name


def test_topics_are_made_changed_listed_and_deleted(client: GrpcClient, name: str) -> None:
    wanted = pb.CreateTopicRequest(name=name, partitions=2, settings={"durability": "os"})
    assert client.topics.Create(wanted).settings["durability"] == "os"
    refused(
        lambda: client.topics.Create(wanted), grpc.StatusCode.ALREADY_EXISTS, "topic-exists"
    )  # fmt: skip
    altered = client.topics.Alter(
        pb.AlterTopicRequest(name=name, partitions=3, settings={"durability": "interval"})
    )
    assert (len(altered.partitions), altered.settings["durability"]) == (3, "interval")
    page = client.topics.List(pb.ListTopicsRequest(after=name[:-1], limit=1))
    assert [each.name for each in page.topics] == [name]
    client.topics.Delete(pb.DeleteTopicRequest(name=name))
    refused(
        lambda: client.topics.Describe(pb.DescribeTopicRequest(name=name)), MISSING, "unknown-topic"
    )


def test_messages_are_published_read_and_followed(client: GrpcClient, topic: str) -> None:
    assert [each.offset for each in client.publish(topic, b"a", b"b")] == [0, 1]
    answer = client.messages.Read(pb.ReadRequest(topic=topic, offset=1))
    assert ([each.value for each in answer.records], answer.next_offset) == ([b"b"], 2)
    at = client.messages.OffsetAt(pb.OffsetAtRequest(topic=topic, timestamp_ms=0))
    assert at.offset == 0
    tail = client.messages.Tail(
        pb.TailRequest(topic=topic, start=pb.START_EARLIEST), timeout=SECONDS
    )
    assert [each.value for each in next(tail).records] == [b"a", b"b"]
    client.publish(topic, b"c")
    assert [each.value for each in next(tail).records] == [b"c"]
    tail.cancel()


def test_a_tail_ends_when_its_topic_is_made_again(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"a", b"b")
    tail = client.messages.Tail(
        pb.TailRequest(topic=topic, start=pb.START_EARLIEST), timeout=SECONDS
    )
    assert len(next(tail).records) == 2
    client.topics.Delete(pb.DeleteTopicRequest(name=topic))
    client.topics.Create(pb.CreateTopicRequest(name=topic, partitions=1))
    client.publish(topic, b"c", b"d", b"e")
    with pytest.raises(grpc.RpcError) as caught:
        next(tail)
    # It may have looked between the two.
    assert caught.value.code() in (grpc.StatusCode.ABORTED, grpc.StatusCode.NOT_FOUND)


def test_a_batch_is_appended_as_it_is(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"first")
    batch = bytes(build_batch([NewRecord(None, value, (), 1_000) for value in (b"a", b"b")]))
    wanted = pb.PublishBatchRequest(topic=topic, batch=batch)
    assert client.messages.PublishBatch(wanted).first_offset == 1
    records = client.messages.Read(pb.ReadRequest(topic=topic, offset=1)).records
    assert [(each.offset, each.value) for each in records] == [(1, b"a"), (2, b"b")]
    refused(
        lambda: client.messages.PublishBatch(pb.PublishBatchRequest(topic=topic, batch=batch * 2)),
        BAD, "invalid-argument",
    )  # fmt: skip


def test_a_batch_that_is_none_is_refused(client: GrpcClient, topic: str) -> None:
    for batch in (b"", b"nonsense", bytes(100)):
        wanted = pb.PublishBatchRequest(topic=topic, batch=batch)
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            client.messages.PublishBatch(wanted)


def test_groups_are_described_and_their_cursors_set(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"a", b"b")
    position = pb.Position(topic=topic, partition=0, offset=1)
    client.groups.Commit(pb.CommitRequest(group="s-" + topic, positions=[position]))
    committed = client.groups.Committed(pb.CommittedRequest(group="s-" + topic, topic=topic))
    assert dict(committed.offsets) == {0: 1}
    client.lease(topic, "q-" + topic)
    altered = client.groups.Alter(
        pb.AlterGroupRequest(name="q-" + topic, settings={"backoff_ms": "5"})
    )
    assert altered.settings["backoff_ms"] == "5"
    listed = client.groups.List(pb.ListGroupsRequest(limit=1000)).groups
    assert {"s-" + topic, "q-" + topic} <= {each.name for each in listed}
    client.groups.Delete(pb.DeleteGroupRequest(name="q-" + topic))
    gone = pb.DescribeGroupRequest(name="q-" + topic)
    refused(lambda: client.groups.Describe(gone), MISSING, "unknown-group")


def test_delayed_messages_are_listed_and_cancelled(client: GrpcClient, topic: str) -> None:
    client.publish(topic, b"later", delay_ms=3_600_000)
    [found] = client.letters.ListDelayed(pb.ListDelayedRequest(topic=topic)).messages
    assert found.message.value == b"later"
    place = pb.MessageId(topic=topic, partition=0, offset=found.message.offset)
    assert client.letters.Cancel(pb.CancelRequest(id=place)).cancelled
    assert not client.letters.Cancel(pb.CancelRequest(id=place)).cancelled
    for topics in ([topic], []):
        asked = pb.DelayedTotalsRequest(topics=topics)
        found = {each.topic: each for each in client.letters.DelayedTotals(asked).topics}
        assert found[topic] == pb.TopicDelayedTotals(topic=topic, cancelled=1)
    missing = pb.DelayedTotalsRequest(topics=["nowhere"])
    refused(lambda: client.letters.DelayedTotals(missing), MISSING, "unknown-topic")


def test_wrong_requests_have_the_right_status(client: GrpcClient, topic: str) -> None:
    refused(
        lambda: client.messages.Read(pb.ReadRequest(topic=topic, offset=99)),
        grpc.StatusCode.OUT_OF_RANGE, "offset-out-of-range",
    )  # fmt: skip
    refused(lambda: client.lease(topic, "no/name"), BAD, "invalid-name")
    refused(lambda: client.publish(topic, b"x", priority="odd"), BAD, "invalid-argument")
    large = pb.AckRequest(receipts=["x" * 3_000_000])
    refused(lambda: client.queues.Ack(large), BAD, "invalid-argument")
    many = [pb.NewMessage(value=b"x" * 200) for _ in range(20_000)]
    crowded = pb.PublishRequest(topic=topic, messages=many)
    assert "send several" in refused(
        lambda: client.messages.Publish(crowded), BAD, "invalid-argument"
    )
    raw = client.channel.unary_unary("/headrace.v1.Queues/Ack")
    refused(lambda: raw(b"\xff\xff"), BAD, "malformed-message")


def test_reflection_health_and_the_node_answer(client: GrpcClient) -> None:
    services = ProtoReflectionDescriptorDatabase(client.channel).get_services()
    assert {"headrace.v1.Queues", "grpc.health.v1.Health"} <= set(services)
    health = health_pb2_grpc.HealthStub(client.channel)
    answer = health.Check(health_pb2.HealthCheckRequest(service="headrace.v1.Queues"))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert client.node.Describe(pb.DescribeNodeRequest()).version
