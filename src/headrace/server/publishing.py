"""Many messages that are a value and nothing else take the fast way into the log.

    values that share their headers   ->   Face.publish_values   several times faster
    anything else                     ->   Face.publish

The doors are told of messages one by one, each with all that could be special about it.
Most batches have nothing special in them, or the same for all: a content type.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.calls import Face
from headrace.core.values import Outgoing, Published
from headrace.record.attribute_headers import DEDUP_ID
from headrace.server.loop_calls import Calls

# With fewer, looking costs more than it saves.
SHARED_COUNT_MIN = 8


async def publish_all(
    calls: Calls, topic: str, messages: Sequence[Outgoing]
) -> Sequence[Published]:
    if len(messages) >= SHARED_COUNT_MIN:
        values = _values_alone(messages)
        if values is not None:
            headers = messages[0].headers
            return await calls.run(Face.publish_values, topic, values, headers=headers)
    return await calls.run(Face.publish, topic, messages)


def _values_alone(messages: Sequence[Outgoing]) -> list[bytes] | None:
    """The values, where they are all that tells the messages apart."""
    shared = messages[0].headers
    if any(name == DEDUP_ID for name, _ in shared):
        return None
    values = []
    for value, key, headers, timestamp_ms, partition in messages:
        if (
            value is None
            or key is not None
            or partition is not None
            or timestamp_ms is not None
            or headers != shared
        ):
            return None
        values.append(value)
    return values
