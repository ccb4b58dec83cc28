"""Where a stream stands: what Spark writes to its checkpoint and gives back.

    {"orders": {"id": "5f0c...", "0": 1200, "1": 1180}, "payments": {...}}

Offsets are exclusive: the next to be read. The topic's id tells a topic that was
deleted and made again from the one that was read before; it is empty where the broker
knows no ids. Spark compares offsets as text, so the order of keys is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Beside the partitions of a topic.
TOPIC_ID = "id"


class TopicPosition(NamedTuple):
    id: str
    partitions: Mapping[int, int]


Position = dict[str, TopicPosition]


def encode_position(position: Mapping[str, TopicPosition]) -> dict[str, dict[str, Any]]:
    encoded: dict[str, dict[str, Any]] = {}
    for name in sorted(position):
        topic = position[name]
        encoded[name] = {TOPIC_ID: topic.id} | {
            str(index): topic.partitions[index] for index in sorted(topic.partitions)
        }
    return encoded


def decode_position(encoded: Mapping[str, Mapping[str, Any]]) -> Position:
    return {
        name: TopicPosition(
            str(topic.get(TOPIC_ID, "")),
            {int(index): int(offset) for index, offset in topic.items() if index != TOPIC_ID},
        )
        for name, topic in encoded.items()
    }
