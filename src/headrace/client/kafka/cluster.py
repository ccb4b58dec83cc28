"""The cluster as a client sees it: brokers, leaders, coordinators, offsets.

    bootstrap ─> metadata: brokers, topics with their ids, a leader for each partition
              ─> one connection to each broker that is needed, kept until `close`

What can pass by itself (a node that starts, a leader that moves) is tried again until
the timeout; everything else raises KafkaError at once, with the broker's code.

Rejected: remembering metadata across calls of `topics`. Who asks wants to know how it
is now; leaders are remembered, and forgotten when a broker says that they are wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TypeVar

from headrace.client.kafka.connection import (
    FIND_COORDINATOR,
    LIST_OFFSETS,
    METADATA,
    KafkaConnection,
)
from headrace.core.errors import BrokerUnreachable, InvalidArgument, RefusedByBroker
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.generated.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.kafka.generated.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.kafka.generated.metadata_request import MetadataRequest, MetadataRequestTopic

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
GROUP: Final = 0
TRANSACTION: Final = 1

TIMEOUT_MS: Final = 60_000
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0

# (topic, partition)
Place = tuple[str, int]
Answer = TypeVar("Answer")


_CODES: Final = {int(code): code for code in ErrorCode}


class KafkaError(RefusedByBroker):
    """`error` is the broker's code; `doing` says what was tried."""

    def __init__(self, error: int, doing: str) -> None:
        known = _CODES.get(error)
        says = f"error {error}" if known is None else f"{known.name}: {known.description}"
        super().__init__(f"{doing}: {says}")
        self.error = error
        self.doing = doing

    def __reduce__(self) -> tuple[type[KafkaError], tuple[int, str]]:
        # Executors send their errors to the driver.
        return KafkaError, (self.error, self.doing)

    @property
    def passes(self) -> bool:
        """Whether it may be gone when asked again."""
        known = _CODES.get(self.error)
        return known is not None and known.retriable


class TopicInfo(NamedTuple):
    """A topic as it is now. The id is 32 hexadecimal digits, or empty where the broker
    knows no topic ids."""

    name: str
    id: str
    partitions: tuple[int, ...]
    is_internal: bool


class FoundOffset(NamedTuple):
    offset: int
    timestamp_ms: int


class KafkaCluster:
    def __init__(
        self,
        bootstrap: Sequence[str],
        *,
        client_id: str = "headrace",
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._bootstrap = [parse_address(address) for address in bootstrap]
        self.client_id = client_id
        self.timeout_ms = timeout_ms
        self._brokers: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._leaders: dict[Place, int] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._ids: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Trying again.

    def persist(self, attempt: Callable[[], Answer], forget: Callable[[], None]) -> Answer:
        """What `attempt` returns, tried again while it fails in a way that passes.
        `forget` is called before every further attempt."""
        deadline = time.monotonic() + self.timeout_ms / 1000
        pause = _PAUSE_S
        while True:
            try:
                return attempt()
            except (KafkaError, BrokerUnreachable) as error:
                if isinstance(error, KafkaError) and not error.passes:
                    raise
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, _PAUSE_S_MAX)
            forget()

    def forget(self) -> None:
        """Leaders and coordinators are looked up anew, over new connections."""
        self._leaders.clear()
        self._coordinators.clear()
        self.close()

    # Connections.

    def connect(self, address: tuple[str, int]) -> KafkaConnection:
        """A connection of its own, for who sends ahead."""
        host, port = address
        return KafkaConnection(host, port, client_id=self.client_id, timeout_ms=self.timeout_ms)

    def _shared(self, address: tuple[str, int]) -> KafkaConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.connect(address)
        return connection

    def _call(self, address: tuple[str, int], key: int, request: Any) -> Any:
        connection = self._shared(address)
        try:
            return connection.call(key, request)
        except BrokerUnreachable:
            self._connections.pop(address, None)
            raise

    def any_broker(self) -> KafkaConnection:
        """Whichever answers first, those of the bootstrap list before the others."""
        failures = []
        for address in (*self._bootstrap, *self._brokers.values()):
            try:
                return self._shared(address)
            except BrokerUnreachable as error:
                failures.append(str(error))
        tried = "; ".join(dict.fromkeys(failures))
        raise BrokerUnreachable(f"{tried}; start the node there, or correct the address")

    # Metadata.

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Those that exist of the named ones, or all of them."""
        wanted = None if names is None else tuple(names)
        return self.persist(lambda: self._topics(wanted), self.forget)

    def _topics(self, wanted: Sequence[str] | None) -> dict[str, TopicInfo]:
        asked = None if wanted is None else tuple(MetadataRequestTopic(name=n) for n in wanted)
        connection = self.any_broker()
        try:
            answer = connection.call(METADATA, MetadataRequest(asked, False))
        except BrokerUnreachable:
            self.close()
            raise
        self._brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ):
                continue
            if topic.error_code:
                raise KafkaError(topic.error_code, f"looking up topic {topic.name!r}")
            for partition in topic.partitions:
                self._leaders[topic.name, partition.partition_index] = partition.leader_id
            indexes = sorted(partition.partition_index for partition in topic.partitions)
            self._ids[topic.name] = topic.topic_id
            id = topic.topic_id.hex() if any(topic.topic_id) else ""
            found[topic.name] = TopicInfo(topic.name, id, tuple(indexes), topic.is_internal)
        return found

    def leader_address(self, place: Place) -> tuple[str, int]:
        """Where the partition's leader listens; KafkaError when it has none."""
        leader = self._leaders.get(place, -1)
        if leader not in self._brokers:
            self._topics((place[0],))
            leader = self._leaders.get(place, -1)
        if place not in self._leaders:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"finding {_shown(place)}")
        if leader not in self._brokers:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"finding {_shown(place)}")
        return self._brokers[leader]

    def topic_id(self, name: str) -> bytes:
        """As the last look at the metadata had it; zeros where there are no ids."""
        return self._ids.get(name, bytes(16))

    # Offsets.

    def offsets(
        self, wanted: Mapping[Place, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[Place, FoundOffset]:
        """For each place the offset of the first record at or behind a timestamp in
        milliseconds, or EARLIEST or LATEST. The offset is -1 when there is no such
        record."""
        if not wanted:
            return {}
        return self.persist(lambda: self._offsets(wanted, isolation_level), self.forget)

    def _offsets(
        self, wanted: Mapping[Place, int], isolation_level: int
    ) -> dict[Place, FoundOffset]:
        by_leader: dict[tuple[str, int], dict[str, list[ListOffsetsPartition]]] = {}
        for place, timestamp_ms in wanted.items():
            topics = by_leader.setdefault(self.leader_address(place), {})
            asked = ListOffsetsPartition(place[1], -1, timestamp_ms)
            topics.setdefault(place[0], []).append(asked)
        found = {}
        for address, topics in by_leader.items():
            request = ListOffsetsRequest(
                -1,
                isolation_level,
                tuple(ListOffsetsTopic(name, tuple(asked)) for name, asked in topics.items()),
                self.timeout_ms,
            )
            for topic in self._call(address, LIST_OFFSETS, request).topics:
                for partition in topic.partitions:
                    place = (topic.name, partition.partition_index)
                    if partition.error_code:
                        raise KafkaError(
                            partition.error_code, f"looking up offsets of {_shown(place)}"
                        )
                    found[place] = FoundOffset(partition.offset, partition.timestamp)
        return found

    # Coordinators.

    def ask_coordinator(self, kind: int, name: str, key: int, request: Any) -> Any:
        """One call to whoever coordinates the group or the transactional id. Errors
        inside the answer are the caller's."""
        address = self._coordinators.get((kind, name))
        if address is None:
            address = self._coordinators[kind, name] = self._find_coordinator(kind, name)
        return self._call(address, key, request)

    def _find_coordinator(self, kind: int, name: str) -> tuple[str, int]:
        connection = self.any_broker()
        # From version 4 on many are asked for at once.
        asked = FindCoordinatorRequest(name, kind, (name,))
        try:
            answer = connection.call(FIND_COORDINATOR, asked)
        except BrokerUnreachable:
            self.close()
            raise
        found = answer.coordinators[0] if answer.coordinators else answer
        if found.error_code:
            raise KafkaError(found.error_code, f"finding the coordinator of {name!r}")
        return found.host, found.port


def parse_address(address: str) -> tuple[str, int]:
    """`host:port`, where a host that is an IPv6 address stands in brackets."""
    host, colon, port = address.strip().rpartition(":")
    with suppress(ValueError):
        if colon and host and "/" not in host and 0 < int(port) < 65536:
            return host.removeprefix("[").removesuffix("]"), int(port)
    raise InvalidArgument(f"{address!r} is not an address; write it as host:port")


def _shown(place: Place) -> str:
    return f"{place[0]}:{place[1]}"
