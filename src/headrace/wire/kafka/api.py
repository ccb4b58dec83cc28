"""Which APIs and versions we speak, and the codec of each.

This table is the one place that says so: the generator makes codecs for exactly
these versions, and ApiVersions advertises them. A codec is imported on its first
use, so a node pays only for the APIs that its clients call.

    decode_request(key, version, data, position) -> the request's message
    encode_response(key, version, message)       -> buffers, to be sent in order

and the two opposite ways, for our own client, for followers and for tests.

`advertised_first` differs from `first` for Produce alone: librdkafka 2.0
looks for version 0 before it compresses, so versions 0-2 are advertised and
then refused, as Kafka does.

Rejected: importing everything when the table is read. All of it takes about 60 ms
where the dozen APIs that most clients call take 15.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.core.errors import InvalidArgument
from headrace.core.ports import Buffer

# A message is whichever NamedTuple its generated module defines; the table cannot
# say which without importing it.
Message: TypeAlias = Any
Decoder: TypeAlias = Callable[[Buffer, int], Message]
Encoder: TypeAlias = Callable[[Message], list[Buffer]]

API_VERSIONS: Final = 18


class Api(NamedTuple):
    """One API: the versions from `first` to `last`, both included, have codecs.
    From `flexible_first` on, its messages have compact lengths and tagged fields."""

    key: int
    name: str
    first: int
    last: int
    flexible_first: int
    advertised_first: int

    def speaks(self, version: int) -> bool:
        return self.first <= version <= self.last

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_first


# More than any version, for APIs that have no flexible one.
NEVER: Final = 2**15


def _api(
    key: int, name: str, first: int, last: int, flexible: int, advertised: int | None = None
) -> tuple[int, Api]:
    return key, Api(key, name, first, last, flexible, first if advertised is None else advertised)


APIS: Final[dict[int, Api]] = dict(
    (
        _api(0, "Produce", 3, 13, flexible=9, advertised=0),
        _api(1, "Fetch", 4, 18, flexible=12),
        _api(2, "ListOffsets", 1, 11, flexible=6),
        _api(3, "Metadata", 0, 13, flexible=9),
        _api(8, "OffsetCommit", 2, 10, flexible=8),
        _api(9, "OffsetFetch", 1, 10, flexible=6),
        _api(10, "FindCoordinator", 0, 6, flexible=3),
        _api(11, "JoinGroup", 0, 9, flexible=6),
        _api(12, "Heartbeat", 0, 4, flexible=4),
        _api(13, "LeaveGroup", 0, 5, flexible=4),
        _api(14, "SyncGroup", 0, 5, flexible=4),
        _api(15, "DescribeGroups", 0, 6, flexible=5),
        _api(16, "ListGroups", 0, 5, flexible=3),
        _api(17, "SaslHandshake", 0, 1, flexible=NEVER),
        _api(18, "ApiVersions", 0, 4, flexible=3),
        _api(19, "CreateTopics", 2, 7, flexible=5),
        _api(20, "DeleteTopics", 1, 6, flexible=4),
        _api(21, "DeleteRecords", 0, 2, flexible=2),
        # Version 6 is not stable yet.
        _api(22, "InitProducerId", 0, 5, flexible=2),
        _api(23, "OffsetForLeaderEpoch", 2, 4, flexible=4),
        # Versions 4 and 5 are spoken between Kafka's own brokers only.
        _api(24, "AddPartitionsToTxn", 0, 3, flexible=3),
        _api(25, "AddOffsetsToTxn", 0, 4, flexible=3),
        _api(26, "EndTxn", 0, 5, flexible=3),
        _api(27, "WriteTxnMarkers", 1, 1, flexible=1),
        _api(28, "TxnOffsetCommit", 0, 5, flexible=3),
        _api(29, "DescribeAcls", 1, 3, flexible=2),
        _api(30, "CreateAcls", 1, 3, flexible=2),
        _api(31, "DeleteAcls", 1, 3, flexible=2),
        _api(32, "DescribeConfigs", 1, 4, flexible=4),
        _api(33, "AlterConfigs", 0, 2, flexible=2),
        _api(34, "AlterReplicaLogDirs", 1, 2, flexible=2),
        _api(35, "DescribeLogDirs", 1, 5, flexible=2),
        _api(36, "SaslAuthenticate", 0, 2, flexible=2),
        _api(37, "CreatePartitions", 0, 3, flexible=2),
        _api(38, "CreateDelegationToken", 1, 3, flexible=2),
        _api(39, "RenewDelegationToken", 1, 2, flexible=2),
        _api(40, "ExpireDelegationToken", 1, 2, flexible=2),
        _api(41, "DescribeDelegationToken", 1, 3, flexible=2),
        _api(42, "DeleteGroups", 0, 2, flexible=2),
        _api(43, "ElectLeaders", 0, 2, flexible=2),
        _api(44, "IncrementalAlterConfigs", 0, 1, flexible=1),
        _api(45, "AlterPartitionReassignments", 0, 1, flexible=0),
        _api(46, "ListPartitionReassignments", 0, 0, flexible=0),
        _api(47, "OffsetDelete", 0, 0, flexible=NEVER),
        _api(48, "DescribeClientQuotas", 0, 1, flexible=1),
        _api(49, "AlterClientQuotas", 0, 1, flexible=1),
        _api(50, "DescribeUserScramCredentials", 0, 0, flexible=0),
        _api(51, "AlterUserScramCredentials", 0, 0, flexible=0),
        _api(55, "DescribeQuorum", 0, 2, flexible=0),
        _api(57, "UpdateFeatures", 0, 2, flexible=0),
        _api(60, "DescribeCluster", 0, 2, flexible=0),
        _api(61, "DescribeProducers", 0, 0, flexible=0),
        _api(65, "DescribeTransactions", 0, 0, flexible=0),
        _api(66, "ListTransactions", 0, 2, flexible=0),
        _api(68, "ConsumerGroupHeartbeat", 0, 1, flexible=0),
        _api(69, "ConsumerGroupDescribe", 0, 1, flexible=0),
        _api(71, "GetTelemetrySubscriptions", 0, 0, flexible=0),
        _api(72, "PushTelemetry", 0, 0, flexible=0),
        _api(74, "ListConfigResources", 0, 1, flexible=0),
        _api(75, "DescribeTopicPartitions", 0, 0, flexible=0),
        _api(76, "ShareGroupHeartbeat", 1, 1, flexible=0),
        _api(77, "ShareGroupDescribe", 1, 1, flexible=0),
        _api(78, "ShareFetch", 1, 2, flexible=0),
        _api(79, "ShareAcknowledge", 1, 2, flexible=0),
        _api(88, "StreamsGroupHeartbeat", 0, 0, flexible=0),
        _api(89, "StreamsGroupDescribe", 0, 0, flexible=0),
        _api(90, "DescribeShareGroupOffsets", 0, 1, flexible=0),
        _api(91, "AlterShareGroupOffsets", 0, 0, flexible=0),
        _api(92, "DeleteShareGroupOffsets", 0, 0, flexible=0),
    )
)

# What consumers of a classic group tell each other inside JoinGroup and SyncGroup:
# (name, first version, last version).
EMBEDDED: Final = (
    ("ConsumerProtocolSubscription", 0, 3),
    ("ConsumerProtocolAssignment", 0, 3),
)


def decode_request(key: int, version: int, data: Buffer, position: int = 0) -> Message:
    """The request's message, from its first byte behind the header to the frame's end.
    Raises MalformedMessage for whatever is not one, InvalidArgument for a version
    that is not in the table."""
    try:
        decode = _request_decoders[key, version]
    except KeyError:
        decode = _load(_request_decoders, "DECODERS", key, version, "Request")
    return decode(data, position)


def encode_response(key: int, version: int, message: Message) -> list[Buffer]:
    """The response's body. Buffers of records in the message are passed on, not
    copied. Fields that the version does not have are left out."""
    try:
        encode = _response_encoders[key, version]
    except KeyError:
        encode = _load(_response_encoders, "ENCODERS", key, version, "Response")
    return encode(message)


def encode_request(key: int, version: int, message: Message) -> list[Buffer]:
    try:
        encode = _request_encoders[key, version]
    except KeyError:
        encode = _load(_request_encoders, "ENCODERS", key, version, "Request")
    return encode(message)


def decode_response(key: int, version: int, data: Buffer, position: int = 0) -> Message:
    try:
        decode = _response_decoders[key, version]
    except KeyError:
        decode = _load(_response_decoders, "DECODERS", key, version, "Response")
    return decode(data, position)


def load_codecs(keys: Iterable[int]) -> None:
    """Import what serving these APIs takes, a few milliseconds each: at start, rather
    than under the first client that calls them."""
    for key in keys:
        _load(_request_decoders, "DECODERS", key, APIS[key].last, "Request")
        _load(_response_encoders, "ENCODERS", key, APIS[key].last, "Response")


def module_name(message_name: str) -> str:
    """`ProduceRequest` becomes `produce_request`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", message_name).lower()


# What has been loaded so far, by (key, version).
_request_decoders: dict[tuple[int, int], Decoder] = {}
_response_encoders: dict[tuple[int, int], Encoder] = {}
_request_encoders: dict[tuple[int, int], Encoder] = {}
_response_decoders: dict[tuple[int, int], Decoder] = {}


def _load(
    loaded: dict[tuple[int, int], Callable[..., Any]], table: str, key: int, version: int, kind: str
) -> Callable[..., Any]:
    api = APIS.get(key)
    if api is None or not api.speaks(version):
        raise InvalidArgument(f"no codec for version {version} of API {key}")
    name = module_name(api.name + kind)
    module = import_module(f"headrace.wire.kafka.generated.{name}")
    for known, codec in getattr(module, table).items():
        loaded[key, known] = codec
    return loaded[key, version]
