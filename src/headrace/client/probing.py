"""Why a connection that was made could not be used: what answers at its address.

    refused          nobody listens there any more
    closed           without a byte
    Kafka's answer   and then one to our own API: a node of ours; or none: another broker
    anything else    something else listens there

A node that is killed or started while a client connects looks like the first two, and an
instant later like a node: then it says so, instead of sending somebody to look for a wrong
address.
"""

from __future__ import annotations

import socket
import struct
from typing import Literal

from headrace.core.node_settings import Address
from headrace.wire.remote.codec import encode_request, encode_request_frame

Found = Literal["refused", "closed", "node", "kafka", "other"]

PROBE_SECONDS = 3.0
ANSWER_BYTES_MAX = 64 * 1024
# ApiVersions, version 0, correlation id 1, without a client id: every Kafka broker
# since 0.10 answers it, with that id.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_HELLO_ID = 2


def probe(address: Address) -> Found:
    try:
        connection = socket.create_connection(address, PROBE_SECONDS)
    except OSError:
        return "refused"
    with connection:
        connection.settimeout(PROBE_SECONDS)
        try:
            connection.sendall(_API_VERSIONS)
            first = connection.recv(1)
        except TimeoutError:
            return "other"
        except OSError:
            first = b""
        if not first:
            return "closed"
        try:
            correlation_id, error_code = struct.unpack_from(">ih", _frame(connection, first))
            if (correlation_id, error_code) != (1, 0):
                return "other"
        except (OSError, ValueError, struct.error):
            return "other"
        try:
            hello = encode_request("hello", (False,))
            connection.sendall(encode_request_frame(_HELLO_ID, b"", hello))
            (correlation_id,) = struct.unpack_from(">i", _frame(connection))
            return "node" if correlation_id == _HELLO_ID else "kafka"
        except (OSError, ValueError, struct.error):
            return "kafka"


def _frame(connection: socket.socket, begun: bytes = b"") -> bytes:
    (size,) = struct.unpack(">i", begun + _read(connection, 4 - len(begun)))
    if not 0 < size <= ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes")
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        received = connection.recv(size - len(read))
        if not received:
            raise ValueError("closed in the middle of an answer")
        read += received
    return read


def explain(address: Address, error: Exception, door: str) -> str:
    """Why a link to what was taken for this door could not be used."""
    found = probe(address)
    if found in ("node", "kafka") and door == "grpc":
        return (
            f"what listens at {address} speaks Kafka and not gRPC; if it is a headrace node, "
            f"connect to {address} without grpc://, or to the port of its --grpc"
        )
    if found == "node":
        return (
            f"the node at {address} closed the connection before it answered, and answers now: "
            "it was started again, or is very busy; connect again"
        )
    if found == "kafka":
        return (
            f"what listens at {address} speaks Kafka but is not a headrace node, or an older one; "
            "use a Kafka client for it, or start a node of ours with: headrace serve"
        )
    if found == "refused":
        return (
            f"what listened at {address} closed the connection before it answered, and nobody "
            f"listens there now: a node was stopped, or is being started; connect again, or start "
            f"one with: headrace serve --{door} {address}"
        )
    if found == "closed":
        return (
            f"what listens at {address} closes every connection before it answers: a node that is "
            "starting or stopping, or that has too many connections, or something else; connect "
            "again, or check the address"
        )
    return (
        f"what listens at {address} does not answer as a headrace node ({error}); check the "
        "address, or start a node with: headrace serve"
    )
