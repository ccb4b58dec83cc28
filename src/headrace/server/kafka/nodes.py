"""This node, as answers name it.

A client connects to whatever address an answer names, so a wildcard such as
0.0.0.0 must never be in one: whoever came that way is told the address by which
it reached us.
"""

from __future__ import annotations

from headrace.core.node_settings import Address
from headrace.server.kafka.door import Call

_WILDCARDS = frozenset(("0.0.0.0", "::", ""))

# Bits of what a caller may do: with no authorizer, all that the kind of thing has.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
# What stands there when the caller did not ask.
NOT_ASKED = -(2**31)


def address_for(call: Call) -> Address:
    """Where this caller can connect to this node."""
    advertised = call.door.advertised
    transport = call.connection.transport
    if advertised.host in _WILDCARDS and transport is not None:
        reached = transport.get_extra_info("sockname")
        if reached:
            return Address(str(reached[0]), advertised.port)
    return advertised
