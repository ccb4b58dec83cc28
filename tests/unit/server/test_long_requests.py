"""Requests about very much are handled a bit at a time: others have their turn in between,
what stands behind such a request stays behind it, and the answer is that of one piece."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.property.test_door_fuzz import framed
from tests.unit.server.asking import Asking, run
from tests.unit.server.connected import feed
from tests.unit.server.test_requests_at_their_limits import (
    ARRAY_MAX,
    HeardLine,
    answered,
    open_door,
)
from tests.unit.wire.request_fields import ARRAYS, Field, element, sent, shown

from headrace.core.settings import TopicSettings
from headrace.platform.memory_disk import MemoryDisk
from headrace.record import NewRecord, build_batch
from headrace.server.kafka import parts
from headrace.server.kafka.connection import Connection
from headrace.server.kafka.errors import Error
from headrace.server.slices import Slices
from headrace.wire.kafka.api import decode_response, encode_request
from headrace.wire.kafka.generated.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.generated.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.kafka.generated.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE, COMMIT, FETCH, DELETE = 0, 8, 9, 47
TOPIC, PARTITIONS, GROUP = "wide", 30, "readers"
PART = 8

# Of what is written, a part at a time; of everything else, after each element.
IN_PARTS = (
    "Produce.topic_data",
    "Produce.topic_data.partition_data",
    "OffsetCommit.topics",
    "OffsetCommit.topics.partitions",
    "TxnOffsetCommit.topics",
    "TxnOffsetCommit.topics.partitions",
)
ONE_BY_ONE = (
    "AddPartitionsToTxn.v3_and_below_topics",
    "AlterConfigs.resources",
    "AlterPartitionReassignments.topics",
    "AlterPartitionReassignments.topics.partitions",
    "CreatePartitions.topics",
    "CreateTopics.topics",
    "DeleteGroups.groups_names",
    "DeleteTopics.topic_names",
    "DeleteTopics.topics",
    "DescribeQuorum.topics",
    "DescribeQuorum.topics.partitions",
    "DescribeShareGroupOffsets.groups",
    "FindCoordinator.coordinator_keys",
    "IncrementalAlterConfigs.resources",
    "OffsetFetch.groups",
    "OffsetFetch.groups.topics",
    "OffsetFetch.topics",
    "OffsetForLeaderEpoch.topics",
    "OffsetForLeaderEpoch.topics.partitions",
)
FIELDS = [field for field in ARRAYS if shown(field) in IN_PARTS + ONE_BY_ONE]


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[Slices]:
    """Where others could have had their turn."""
    seen: list[Slices] = []
    rest = Slices.rest

    async def note(self: Slices) -> None:
        seen.append(self)
        await rest(self)

    monkeypatch.setattr(Slices, "rest", note)
    return seen


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", PART)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("field", FIELDS, ids=shown)
def test_others_have_their_turn_while_a_long_request_is_handled(
    field: Field, rests: list[Slices]
) -> None:
    elements = tuple(element(field.element, number) for number in range(ARRAY_MAX))
    least = ARRAY_MAX // PART if shown(field) in IN_PARTS else ARRAY_MAX

    async def scenario() -> None:
        with open_door() as (asking, failures):
            for version, body in sent(field, elements, "long"):
                rests.clear()
                await answered(asking, field.key, version, body)
                assert not failures
                assert len(rests) >= least, f"v{version}"

    run(scenario)


def batch(value: bytes) -> bytes:
    return bytes(build_batch([NewRecord(None, value)]))


def produce(*indexes: int, value: bytes = b"v") -> ProduceRequest:
    data = tuple(PartitionProduceData(index, batch(value)) for index in indexes)
    wide = TopicProduceData(TOPIC, partition_data=data)
    missing = TopicProduceData("missing", partition_data=data[:1])
    return ProduceRequest(None, -1, 30_000, (missing, wide, missing))


def make_topic(asking: Asking) -> None:
    asking.broker.topics.create(TOPIC, PARTITIONS, TopicSettings(), asking.clock.now_ms())


def told(answer: Any) -> list[tuple[str, list[tuple[int, int, int]]]]:
    return [
        (
            topic.name,
            [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses],
        )
        for topic in answer.responses
    ]


def test_a_produce_in_parts_is_answered_as_one_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Twice the same partition, and one that is not there.
    request = produce(*range(PARTITIONS), 3, PARTITIONS)

    async def scenario() -> None:
        found = []
        for size in (1_000, PART, 1):
            monkeypatch.setattr(parts, "PART", size)
            asking = Asking(MemoryDisk())
            make_topic(asking)
            found.append(told(await asking.ask(PRODUCE, 9, request)))
        assert found[0] == found[1] == found[2]
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        [(_, missing), (_, wide), (_, also_missing)] = found[0]
        assert missing == also_missing == [(0, unknown, -1)]
        assert wide[-2:] == [(3, 0, 1), (PARTITIONS, unknown, -1)]
        assert wide[:-2] == [(index, 0, 0) for index in range(PARTITIONS)]

    run(scenario)


@pytest.mark.usefixtures("small_parts")
def test_a_produce_behind_one_in_parts_is_appended_behind_it() -> None:
    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        make_topic(asking)
        connection, transport = Connection(asking.door), HeardLine()
        connection.connection_made(transport)
        last = PARTITIONS - 1
        requests = (produce(*range(PARTITIONS)), produce(last), produce(last, value=b"w" * 50))
        for number, request in enumerate(requests):
            body = b"".join(map(bytes, encode_request(PRODUCE, 8, request)))
            header = struct.pack(">hhih", PRODUCE, 8, number, -1)
            feed(connection, framed(header + body))
        answers: list[Any] = []
        while len(answers) < len(requests):
            await transport.heard.wait()
            transport.heard.clear()
            answers = [decode_response(PRODUCE, 8, frame[4:], 0) for frame in transport.frames()]
        offsets = [told(answer)[1][1][-1] for answer in answers]
        assert offsets == [(last, 0, 0), (last, 0, 1), (last, 0, 2)]
        connection.connection_lost(None)

    run(scenario)


@pytest.mark.usefixtures("small_parts")
def test_offsets_in_parts_are_committed_and_deleted_like_others() -> None:
    commit = OffsetCommitRequest(
        GROUP,
        topics=(
            OffsetCommitRequestTopic(
                TOPIC,
                partitions=[OffsetCommitRequestPartition(i, i) for i in range(PARTITIONS + 1)],
            ),
            OffsetCommitRequestTopic("missing", partitions=(OffsetCommitRequestPartition(0, 1),)),
        ),
    )
    everything = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(GROUP, topics=None),))
    delete = OffsetDeleteRequest(
        GROUP,
        (
            OffsetDeleteRequestTopic(
                TOPIC, [OffsetDeleteRequestPartition(i) for i in range(PARTITIONS)]
            ),
            OffsetDeleteRequestTopic("missing", [OffsetDeleteRequestPartition(0)] * 2 * PART),
        ),
    )
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION

    async def scenario() -> None:
        asking = Asking(MemoryDisk())
        make_topic(asking)
        answer = await asking.ask(COMMIT, 9, commit)
        codes = [
            (topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics
        ]
        assert codes == [(TOPIC, [0] * PARTITIONS + [unknown]), ("missing", [unknown])]
        [group] = (await asking.ask(FETCH, 9, everything)).groups
        [topic] = group.topics
        offsets = [(each.partition_index, each.committed_offset) for each in topic.partitions]
        assert offsets == [(index, index) for index in range(PARTITIONS)]
        answer = await asking.ask(DELETE, 0, delete)
        codes = [
            (topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics
        ]
        assert (answer.error_code, codes) == (
            0,
            [(TOPIC, [0] * PARTITIONS), ("missing", [unknown] * 2 * PART)],
        )
        [group] = (await asking.ask(FETCH, 9, everything)).groups
        assert not group.topics

    run(scenario)
