"""Changing a topic: its settings and its size in one request, or neither.

What is wrong with either is found out before the first of them takes effect. Growing comes
first, since it is what may still fail then, on a full disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.calls import Face
from headrace.core.values import TopicInfo
from headrace.server.loop_calls import Calls


async def change_topic(
    calls: Calls,
    name: str,
    settings: Mapping[str, Any],
    partitions: int | None,
    break_key_order: bool,
) -> TopicInfo:
    """The topic as it is then."""
    calls.run_nowait(Face.check_settings, name, settings)
    if partitions is not None:
        await calls.run_in_slices(
            Face.topic_growth, name, partitions, break_key_order=break_key_order
        )
    if settings:
        await calls.run(Face.alter_topic, name, settings)
    return await calls.run(Face.topic, name)
