"""How a node runs: one model for the file, the environment and the flags.

    default  <  TOML file  <  HEADRACE_<NAME> in the environment  <  flag

A name is the same everywhere: `kafka_advertised` in the file is
HEADRACE_KAFKA_ADVERTISED in the environment and --kafka-advertised as a flag.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.settings import (
    CheckedRecords,
    Isolation,
    SettingsModel,
    check_between,
    check_start,
)

ENVIRONMENT_PREFIX = "HEADRACE_"
# Settings that bound one another: which values they may have is known when all are there.
_TOGETHER = ("group_", "consumer_", "share_", "streams_")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        # As in a URL, or nobody could tell where the port begins.
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, name: str, text: str) -> Address:
        host, _, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        # More colons than the port's own are an IPv6 address, which has brackets.
        is_clear = bool(bare) and (":" not in bare or bare != host)
        if not is_clear or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
            raise InvalidArgument(
                f"{name} must look like 127.0.0.1:9092 or [::1]:9092, not {text!r}"
            )
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            # Another name may lead anywhere, also tomorrow.
            return False


@dataclass(frozen=True, slots=True)
class NodeSettings(SettingsModel):
    data: str = "./data"
    # Port 0 takes a free one; an empty address leaves the door shut.
    kafka: str = "127.0.0.1:9092"
    # What clients are told to connect to, where that differs from `kafka`.
    kafka_advertised: str = ""
    http: str = "127.0.0.1:9080"
    # Names, with commas between, under which browsers and others may ask for the
    # node, and origins whose pages may use it.
    http_hosts: str = ""
    http_origins: str = ""
    # The dashboard at the HTTP door: whether there is one, and whether those who look
    # at it may also publish, redrive, cancel and delete there.
    dashboard: Literal["off", "read-only", "full"] = "read-only"
    grpc: str = "127.0.0.1:9081"
    # Needed to listen beyond this machine while there is no authentication.
    insecure: bool = False
    auto_create_topics: bool = True
    # How many topics a second may be made so, ten seconds' worth of them at once.
    auto_create_rate: int = 50
    partitions: int = 3
    connections_max: int = 10_000
    # How many of them one client address may have at a door, this machine's excepted;
    # 0 for any number.
    connections_per_address_max: int = 2_000
    # How long a connection without a request may stay silent, and how long a client may
    # get nowhere within a request or in taking its answers; 0 for ever.
    connections_max_idle_ms: int = 10 * 60 * 1000
    stall_timeout_ms: int = 60_000
    request_bytes_max: int = 100 * 1024 * 1024
    # What may be kept for Kafka clients between their requests: of members of groups,
    # sessions, and fetches that wait.
    groups_memory_bytes: int = limits.GROUPS_MEMORY_BYTES
    # How long a new consumer group waits for more members.
    rebalance_delay_ms: int = 0
    # Members of groups: which session a member of the classic protocol may ask for, and
    # how many a group has.
    group_session_timeout_min_ms: int = 6_000
    group_session_timeout_max_ms: int = 30 * 60 * 1000
    group_members_max: int = limits.GROUP_MEMBERS_MAX
    # Those of KIP-848 are told their session and how often to call; a group may be
    # configured otherwise, within these bounds.
    consumer_session_timeout_ms: int = 45_000
    consumer_session_timeout_min_ms: int = 45_000
    consumer_session_timeout_max_ms: int = 60_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_heartbeat_interval_min_ms: int = 5_000
    consumer_heartbeat_interval_max_ms: int = 15_000
    # Whether a group with members goes from the classic protocol to KIP-848 (upgrade), back
    # (downgrade), both or neither.
    consumer_migration: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = (
        "bidirectional"
    )
    # Share groups, and what a group begins with that is made on Kafka's port.
    share_session_timeout_ms: int = 45_000
    share_session_timeout_min_ms: int = 45_000
    share_session_timeout_max_ms: int = 60_000
    share_heartbeat_interval_ms: int = 5_000
    share_heartbeat_interval_min_ms: int = 5_000
    share_heartbeat_interval_max_ms: int = 15_000
    share_members_max: int = limits.SHARE_GROUP_MEMBERS_MAX
    share_start: str = "latest"
    share_isolation: Isolation = "read_uncommitted"
    share_deliveries_max: int = 5
    share_lock_ms: int = 30_000
    share_partition_locks_max: int = 2_000
    # Streams groups. Standby replicas are copies of a task's state in other processes; a new
    # group waits for more members, and a target lasts for an interval.
    streams_session_timeout_ms: int = 45_000
    streams_session_timeout_min_ms: int = 45_000
    streams_session_timeout_max_ms: int = 60_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_heartbeat_interval_min_ms: int = 5_000
    streams_heartbeat_interval_max_ms: int = 15_000
    streams_members_max: int = limits.GROUP_MEMBERS_MAX
    streams_standby_replicas: int = 0
    streams_standby_replicas_max: int = 2
    streams_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: int = 1_000
    streams_assignment_interval_min_ms: int = 0
    streams_assignment_interval_max_ms: int = 15_000
    # How long a client of ours whose connection broke keeps its leases.
    lease_grace_ms: int = 5_000
    # The longest that a producer may ask to keep a transaction open.
    transaction_timeout_max_ms: int = 15 * 60 * 1000
    # After how long without use a transactional id is forgotten.
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    # 2 is Kafka's protocol with the cure of KIP-890. 0 is the one before it, in which
    # a request that comes late can end up in the next transaction.
    transaction_version: int = 2
    # By which number Kafka's clients know the node; -1: the one that is in its directory.
    node_id: int = -1
    # What of the records of clients' batches is gone over before they are appended.
    check_records: CheckedRecords = "beginning"
    # How long the committed offsets of a group without members are kept.
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    free_bytes_min: int = 64 * 1024 * 1024
    # Requests that take longer are logged; 0 logs none. `access_log` logs all.
    slow_request_ms: int = 500
    access_log: bool = False
    # For how long a scrape is answered with what was seen last, and whether each
    # partition has series of its own.
    metrics_cache_ms: int = 1_000
    metrics_partitions: bool = False
    # Where metrics and spans go by OTLP over HTTP, as in http://127.0.0.1:4318. Empty is
    # what OTEL_EXPORTER_OTLP_ENDPOINT says, and nowhere without that.
    otlp_endpoint: str = ""
    # How often metrics go there.
    otlp_interval_ms: int = 60_000
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @property
    def auto_create_partitions(self) -> int:
        """Of a topic that is made by publishing to it; 0 where none is."""
        return self.partitions if self.auto_create_topics else 0

    def __post_init__(self) -> None:
        check_between("partitions", self.partitions, 1, limits.PARTITIONS_PER_TOPIC_MAX)
        check_between("auto_create_rate", self.auto_create_rate, 1, limits.TOPICS_MAX)
        check_between("connections_max", self.connections_max, 1, 1_000_000)
        check_between("connections_per_address_max", self.connections_per_address_max, 0, None)
        check_between("connections_max_idle_ms", self.connections_max_idle_ms, 0, 2**31 - 1)
        check_between("stall_timeout_ms", self.stall_timeout_ms, 0, 2**31 - 1)
        check_between("request_bytes_max", self.request_bytes_max, 1024, 1024 * 1024 * 1024)
        check_between("groups_memory_bytes", self.groups_memory_bytes, 1024 * 1024, None)
        check_between(
            "rebalance_delay_ms", self.rebalance_delay_ms, 0, limits.REBALANCE_DELAY_MS_MAX
        )
        self._check_groups()
        check_between("lease_grace_ms", self.lease_grace_ms, 0, 600_000)
        check_between("offsets_retention_ms", self.offsets_retention_ms, 1, None)
        check_between("free_bytes_min", self.free_bytes_min, 0, None)
        check_between("slow_request_ms", self.slow_request_ms, 0, None)
        check_between("metrics_cache_ms", self.metrics_cache_ms, 0, 60_000)
        check_between("otlp_interval_ms", self.otlp_interval_ms, 100, None)
        timeout_max_ms = limits.TRANSACTION_TIMEOUT_MS_MAX
        check_between(
            "transaction_timeout_max_ms", self.transaction_timeout_max_ms, 1, timeout_max_ms
        )
        check_between(
            "transactional_id_expiration_ms", self.transactional_id_expiration_ms, 1, None
        )
        if self.otlp_endpoint and not self.otlp_endpoint.startswith(("http://", "https://")):
            raise InvalidArgument(
                f"otlp_endpoint looks like http://127.0.0.1:4318, not {self.otlp_endpoint!r}"
            )
        check_between("node_id", self.node_id, -1, 2**31 - 1)
        if self.transaction_version not in (0, 2):
            raise InvalidArgument(f"transaction_version is 0 or 2, not {self.transaction_version}")
        for name, door in (("kafka", self.kafka), ("http", self.http), ("grpc", self.grpc)):
            if not door:
                continue
            address = Address.parse(name, door)
            if not address.is_loopback and not self.insecure:
                raise InvalidArgument(
                    f"{address} can be reached from other machines and there is no authentication "
                    "yet; listen on 127.0.0.1, or say --insecure if the network is yours alone"
                )
        if self.kafka_advertised:
            Address.parse("kafka_advertised", self.kafka_advertised)

    def _check_groups(self) -> None:
        session_max_ms = self.group_session_timeout_max_ms
        check_between("group_session_timeout_max_ms", session_max_ms, 1, limits.SESSION_MS_MAX)
        session_min_ms = self.group_session_timeout_min_ms
        check_between("group_session_timeout_min_ms", session_min_ms, 1, session_max_ms)
        check_between("group_members_max", self.group_members_max, 1, limits.GROUP_MEMBERS_MAX)
        check_between(
            "share_members_max", self.share_members_max, 1, limits.SHARE_GROUP_MEMBERS_MAX
        )
        for name in (
            "consumer_session_timeout",
            "consumer_heartbeat_interval",
            "share_session_timeout",
            "share_heartbeat_interval",
            "streams_session_timeout",
            "streams_heartbeat_interval",
        ):
            most = getattr(self, f"{name}_max_ms")
            check_between(f"{name}_max_ms", most, 1, limits.SESSION_MS_MAX)
            least = getattr(self, f"{name}_min_ms")
            check_between(f"{name}_min_ms", least, 1, most)
            check_between(f"{name}_ms", getattr(self, f"{name}_ms"), least, most)
        for kind in ("consumer", "share", "streams"):
            session_ms = getattr(self, f"{kind}_session_timeout_ms")
            name = f"{kind}_heartbeat_interval_ms"
            check_between(name, getattr(self, name), 1, session_ms - 1)
        self._check_streams()
        check_start("share_start", self.share_start)
        check_between("share_deliveries_max", self.share_deliveries_max, 1, limits.ATTEMPTS_MAX)
        check_between("share_lock_ms", self.share_lock_ms, 1, limits.VISIBILITY_MS_MAX)
        check_between("share_partition_locks_max", self.share_partition_locks_max, 1, None)

    def _check_streams(self) -> None:
        members_max = limits.GROUP_MEMBERS_MAX
        check_between("streams_members_max", self.streams_members_max, 1, members_max)
        most = self.streams_standby_replicas_max
        replicas_max = limits.STREAMS_STANDBY_REPLICAS_MAX
        check_between("streams_standby_replicas_max", most, 0, replicas_max)
        check_between("streams_standby_replicas", self.streams_standby_replicas, 0, most)
        delay_ms, delay_ms_max = self.streams_rebalance_delay_ms, limits.REBALANCE_DELAY_MS_MAX
        check_between("streams_rebalance_delay_ms", delay_ms, 0, delay_ms_max)
        most = self.streams_assignment_interval_max_ms
        check_between("streams_assignment_interval_max_ms", most, 0, limits.REBALANCE_DELAY_MS_MAX)
        least = self.streams_assignment_interval_min_ms
        check_between("streams_assignment_interval_min_ms", least, 0, most)
        interval_ms = self.streams_assignment_interval_ms
        check_between("streams_assignment_interval_ms", interval_ms, least, most)


# What a node runs with that is told nothing.
DEFAULTS: Final = NodeSettings()


class Sourced(NamedTuple):
    """Settings, and for each name the place that had the last word on it."""

    settings: NodeSettings
    sources: dict[str, str]


def sourced_settings(
    file: Mapping[str, Any],
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    *,
    file_name: str = "the file",
) -> Sourced:
    """Put together from where people write settings; flags that are None were
    not given. InvalidArgument says where the wrong value stands."""
    sources = dict.fromkeys(NodeSettings().to_mapping(), "default")
    settings = NodeSettings()
    from_environment = {
        name: environment[environment_name(name)]
        for name in sources
        if environment_name(name) in environment
    }
    given = {name: value for name, value in flags.items() if value is not None}
    merged: dict[str, Any] = {}
    for source, values in (
        (lambda _: file_name, file),
        (environment_name, from_environment),
        (lambda name: "--" + name.replace("_", "-"), given),
    ):
        for name, value in values.items():
            # Each alone first, so that a wrong type or an unknown name is found
            # where it was written, also when a later place would correct it.
            _check_alone(settings, name, value, source(name))
            merged[name] = value
            sources[name] = source(name)
    return Sourced(NodeSettings.from_mapping(merged), sources)


def environment_name(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper()


def node_settings(
    file: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any]
) -> NodeSettings:
    return sourced_settings(file, environment, flags).settings


def _check_alone(settings: NodeSettings, name: str, value: Any, source: str) -> None:
    try:
        if name.startswith(_TOGETHER):
            settings.check_type(name, value)
            return
        # Whether an address may be listened on depends on `insecure`, which is
        # known only when everything is together.
        settings.changed({name: value, **({} if name == "insecure" else {"insecure": True})})
    except InvalidArgument as error:
        raise InvalidArgument(f"{source}: {error}") from None
