"""What the consumers of a classic group tell each other, inside JoinGroup and SyncGroup.

    version i16 | message

A broker hands these bytes on without opening them; who describes a group opens them.
Later versions only add fields at the end, so a version that we do not know is read
as the newest that we do, and what is left over is ignored. Groups that are not made
of consumers put other bytes there: for those, MalformedMessage is the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, unpack_from
from typing import NamedTuple, TypeVar

from headrace.core.errors import InvalidArgument, MalformedMessage
from headrace.core.ports import Buffer
from headrace.wire.kafka.generated import (
    consumer_protocol_assignment,
    consumer_protocol_subscription,
)
from headrace.wire.kafka.generated.consumer_protocol_assignment import ConsumerProtocolAssignment
from headrace.wire.kafka.generated.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from headrace.wire.kafka.primitives import DECODE_ERRORS, malformed

Value = TypeVar("Value")


class Subscription(NamedTuple):
    """`version` is the sender's, perhaps newer than what we could read."""

    version: int
    message: ConsumerProtocolSubscription


class Assignment(NamedTuple):
    version: int
    message: ConsumerProtocolAssignment


def decode_subscription(data: Buffer) -> Subscription:
    return Subscription(*_decode(consumer_protocol_subscription.DECODERS, data))


def decode_assignment(data: Buffer) -> Assignment:
    return Assignment(*_decode(consumer_protocol_assignment.DECODERS, data))


def encode_subscription(version: int, message: ConsumerProtocolSubscription) -> bytes:
    return _encode(consumer_protocol_subscription.ENCODERS, version, message)


def encode_assignment(version: int, message: ConsumerProtocolAssignment) -> bytes:
    return _encode(consumer_protocol_assignment.ENCODERS, version, message)


def _decode(decoders: dict[int, Callable[[Buffer, int], Value]], data: Buffer) -> tuple[int, Value]:
    try:
        (version,) = unpack_from(">h", data)
    except DECODE_ERRORS as error:
        raise malformed("version", error) from error
    if version < 0:
        raise MalformedMessage(f"version {version} of what a consumer embeds")
    return version, decoders[min(version, max(decoders))](data, 2)


def _encode(
    encoders: dict[int, Callable[[Value], list[Buffer]]], version: int, message: Value
) -> bytes:
    if version not in encoders:
        raise InvalidArgument(f"version {version} of {type(message).__name__} is not known")
    return pack(">h", version) + b"".join(encoders[version](message))
