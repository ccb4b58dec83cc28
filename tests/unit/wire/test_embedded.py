"""What consumers embed: the version in front, and what is newer than we are."""

from __future__ import annotations

import pytest

from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.wire.kafka.embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.wire.kafka.generated import consumer_protocol_assignment as assignment
from headrace.wire.kafka.generated import consumer_protocol_subscription as subscription

SUBSCRIBED = subscription.ConsumerProtocolSubscription(
    topics=("a",),
    user_data=b"u",
    owned_partitions=(subscription.TopicPartition("a", (0, 1)),),
    generation_id=5,
    rack_id="r",
)
ASSIGNED = assignment.ConsumerProtocolAssignment(
    assigned_partitions=(assignment.TopicPartition("a", (2,)),), user_data=None
)


def test_the_version_comes_before_the_message() -> None:
    assert encode_subscription(0, SUBSCRIBED) == (
        b"\x00\x00" + b"\x00\x00\x00\x01\x00\x01a" + b"\x00\x00\x00\x01u"
    )
    assert encode_assignment(1, ASSIGNED) == (
        b"\x00\x01" + b"\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x02" + b"\xff" * 4
    )


@pytest.mark.parametrize("version", range(4))
def test_what_is_embedded_comes_back(version: int) -> None:
    read = decode_subscription(encode_subscription(version, SUBSCRIBED))
    assert read.version == version
    assert read.message[: 2 + version] == SUBSCRIBED[: 2 + version]
    assert decode_assignment(encode_assignment(version, ASSIGNED)) == (version, ASSIGNED)


def test_a_version_of_the_future_is_read_as_the_newest_known() -> None:
    data = b"\x00\x09" + encode_subscription(3, SUBSCRIBED)[2:] + b"fields of the future"
    assert decode_subscription(data) == (9, SUBSCRIBED)
    data = b"\x00\x09" + encode_assignment(3, ASSIGNED)[2:] + b"fields of the future"
    assert decode_assignment(data) == (9, ASSIGNED)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xff\xff", b"\x00\x00", b"\x00\x00\x7f\xff\xff\xff"]
)
def test_bytes_that_no_consumer_embeds_are_refused(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with pytest.raises(MalformedMessage):
            decode(data)


def test_a_version_that_is_not_known_is_not_written() -> None:
    with pytest.raises(InvalidArgument, match="version 4 of ConsumerProtocolSubscription"):
        encode_subscription(4, SUBSCRIBED)
    with pytest.raises(InvalidArgument, match="version -1 of ConsumerProtocolAssignment"):
        encode_assignment(-1, ASSIGNED)
