"""What answers at an address where no node of ours does."""

from __future__ import annotations

import contextlib
import socket
import struct

from headrace.core.node_settings import Address

PROBE_SECONDS = 3.0
# ApiVersions, version 0, correlation id 1, without a client id: every Kafka broker
# since 0.10 answers it, with that id.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def is_kafka(address: Address) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(address, PROBE_SECONDS) as probe:
        probe.settimeout(PROBE_SECONDS)
        probe.sendall(_API_VERSIONS)
        answer = b""
        while len(answer) < 10:
            received = probe.recv(10 - len(answer))
            if not received:
                return False
            answer += received
        _, correlation_id, error_code = struct.unpack(">iih", answer)
        return bool(correlation_id == 1 and error_code == 0)
    return False


def explain(address: Address, error: Exception, door: str) -> str:
    """Why a link to what was taken for this door could not be used."""
    if is_kafka(address):
        if door == "grpc":
            return (
                f"what listens at {address} speaks Kafka and not gRPC; if it is a headrace node, "
                f"connect to {address} without grpc://, or to the port of its --grpc"
            )
        return (
            f"what listens at {address} speaks Kafka but is not a headrace node, or an older one; "
            "use a Kafka client for it, or start a node of ours with: headrace serve"
        )
    return (
        f"what listens at {address} does not answer as a headrace node ({error}); check the "
        "address, or start a node with: headrace serve"
    )
