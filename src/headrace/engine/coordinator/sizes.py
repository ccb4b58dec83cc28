"""About how many bytes the parts of a group take in memory, for the budget of all groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from headrace.engine.coordinator.values import HeartbeatRequest, ShareRequest

# A member beside what it says; a string beside its characters; a pair of strings beside
# those, and a protocol of the classic kind beside its name and metadata.
MEMBER_BYTES = 1_024
TEXT_BYTES = 50
PAIR_BYTES = 60
PROTOCOL_BYTES = 150
# What is remembered of one name that a pattern was matched against.
JUDGED_BYTES = 100
# What is kept of one partition or task that members read: whose it is meant to be, and
# whose it is.
PARTITION_BYTES = 220
TASK_BYTES = 300


class Said(Protocol):
    """What is kept of what a member said."""

    client_id: str
    rack_id: str | None
    names_bytes: int


def text_bytes(*texts: str | None) -> int:
    """Where not all is ASCII, a character may take four."""
    return sum([TEXT_BYTES + len(each) * (1 if each.isascii() else 4) for each in texts if each])


def protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum([PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols])


def more_said(before: Said, request: HeartbeatRequest | ShareRequest) -> int:
    """By how much more is kept with what this says. What it does not say stays as it was."""
    more = text_bytes(request.client_id) - text_bytes(before.client_id)
    if request.rack_id is not None:
        more += text_bytes(request.rack_id) - text_bytes(before.rack_id)
    if request.subscribed_topic_names is not None:
        more += text_bytes(*request.subscribed_topic_names) - before.names_bytes
    return max(0, more)
