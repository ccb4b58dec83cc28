"""Which file answers which API.

    _NAMES     18: "api_versions", ...     a module here, and its `handle` or the
                                           function that is named
    HANDLERS   18: a function              that imports the module when it is called
                                           first, and is replaced by what it finds

A node starts in a moment because it reads little: what every client needs is read
before the door opens, the rest by a thread right after. Whoever comes earlier waits
for one module.

Rejected: importing everything at the top. It is a third of the time from command to
first produce, for forty APIs that most nodes never hear of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from headrace.server.kafka.door import Call, Handler
from headrace.wire.kafka.api import load_codecs

_NAMES: dict[int, str] = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "security_off.describe_acls",
    30: "security_off.create_acls",
    31: "security_off.delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "reassignments.alter_directories",
    35: "describe_log_dirs",
    37: "create_partitions",
    38: "security_off.create_token",
    39: "security_off.renew_token",
    40: "security_off.expire_token",
    41: "security_off.describe_tokens",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "reassignments.alter_assignments",
    46: "reassignments.list_ongoing",
    47: "offset_delete",
    48: "security_off.describe_quotas",
    49: "security_off.alter_quotas",
    50: "security_off.describe_credentials",
    51: "security_off.alter_credentials",
    55: "describe_quorum",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    65: "describe_transactions",
    66: "list_transactions",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    88: "streams_group_heartbeat",
    89: "streams_group_describe",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}

# What the first produce of a client takes, and the first fetch.
FIRST = (18, 3, 22, 0, 1)


def _later(key: int) -> Handler:
    def handle(call: Call, request: Any) -> Any:
        return load(key)(call, request)

    return handle


HANDLERS: dict[int, Handler] = {key: _later(key) for key in _NAMES}


def load(key: int) -> Handler:
    """The function itself, with everything it needs."""
    module, _, function = _NAMES[key].partition(".")
    found = import_module(f"headrace.server.kafka.{module}")
    handler: Handler = getattr(found, function or "handle")
    load_codecs((key,))
    HANDLERS[key] = handler
    return handler


def load_all(keys: Iterable[int] = tuple(_NAMES), pause: Callable[[], None] = lambda: None) -> None:
    """`pause` is called between two: others may have something to do."""
    for key in keys:
        load(key)
        pause()
