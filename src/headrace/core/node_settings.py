"""How a node runs: one model for the file, the environment and the flags.

    default  <  TOML file  <  HEADRACE_<NAME> in the environment  <  flag

A name is the same everywhere: `kafka_advertised` in the file is
HEADRACE_KAFKA_ADVERTISED in the environment and --kafka-advertised as a flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.settings import SettingsModel, check_between

ENVIRONMENT_PREFIX = "HEADRACE_"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, name: str, text: str) -> Address:
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise InvalidArgument(f"{name} must look like 127.0.0.1:9092, not {text!r}")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


@dataclass(frozen=True, slots=True)
class NodeSettings(SettingsModel):
    data: str = "./data"
    # Port 0 takes a free one; an empty address leaves the door shut.
    kafka: str = "127.0.0.1:9092"
    # What clients are told to connect to, where that differs from `kafka`.
    kafka_advertised: str = ""
    # Needed to listen beyond this machine while there is no authentication.
    insecure: bool = False
    auto_create_topics: bool = True
    partitions: int = 3
    connections_max: int = 10_000
    request_bytes_max: int = 100 * 1024 * 1024
    # How long a new consumer group waits for more members.
    rebalance_delay_ms: int = 0
    free_bytes_min: int = 64 * 1024 * 1024
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        check_between("partitions", self.partitions, 1, limits.PARTITIONS_PER_TOPIC_MAX)
        check_between("connections_max", self.connections_max, 1, 1_000_000)
        check_between("request_bytes_max", self.request_bytes_max, 1024, 1024 * 1024 * 1024)
        check_between("rebalance_delay_ms", self.rebalance_delay_ms, 0, 60_000)
        check_between("free_bytes_min", self.free_bytes_min, 0, None)
        if self.kafka:
            address = Address.parse("kafka", self.kafka)
            if not address.is_loopback and not self.insecure:
                raise InvalidArgument(
                    f"{address} can be reached from other machines and there is no authentication "
                    "yet; listen on 127.0.0.1, or say --insecure if the network is yours alone"
                )
        if self.kafka_advertised:
            Address.parse("kafka_advertised", self.kafka_advertised)


def node_settings(
    file: Mapping[str, Any], environment: Mapping[str, str], flags: Mapping[str, Any]
) -> NodeSettings:
    """Put together from where people write settings; flags that are None were
    not given."""
    known = NodeSettings().to_mapping()
    from_environment = {
        name: environment[ENVIRONMENT_PREFIX + name.upper()]
        for name in known
        if ENVIRONMENT_PREFIX + name.upper() in environment
    }
    given = {name: value for name, value in flags.items() if value is not None}
    return NodeSettings.from_mapping({**file, **from_environment, **given})
