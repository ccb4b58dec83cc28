"""Whether a Produce request writes to many partitions is seen as the codec would see it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.kafka.api import APIS, encode_request
from headrace.wire.kafka.generated.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.wire.kafka.produce_size import writes_to_many

PRODUCE = 0
VERSIONS = range(3, APIS[PRODUCE].last + 1)

partitions = st.builds(
    PartitionProduceData,
    st.integers(0, 2**31 - 1),
    st.none() | st.binary(max_size=3) | st.just(b"x" * 300),
)
topics = st.builds(
    TopicProduceData,
    st.text(max_size=5) | st.just("long" * 50),
    st.binary(min_size=16, max_size=16),
    st.lists(partitions, max_size=5),
)
requests = st.builds(
    ProduceRequest, st.none() | st.text(max_size=5), st.just(-1), st.just(1), st.lists(topics)
)


def encoded(version: int, request: ProduceRequest) -> memoryview:
    return memoryview(b"".join(map(bytes, encode_request(PRODUCE, version, request))))


@given(requests, st.sampled_from(VERSIONS))
def test_topics_and_partitions_are_counted(request: ProduceRequest, version: int) -> None:
    count = sum(1 + len(topic.partition_data) for topic in request.topic_data)
    data = encoded(version, request)
    assert writes_to_many(version, data, 0, count - 1)
    assert not writes_to_many(version, data, 0, count)


@given(st.binary(max_size=200), st.sampled_from(VERSIONS))
def test_any_bytes_are_counted_without_an_error(data: bytes, version: int) -> None:
    writes_to_many(version, memoryview(data), 0, 10)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_has_few(version: int) -> None:
    topic = TopicProduceData("t", partition_data=[PartitionProduceData(0, b"records")] * 3)
    data = encoded(version, ProduceRequest(None, -1, 1, [topic] * 3))
    assert not writes_to_many(version, data[:20], 0, 20)
