"""How far a stream is behind, from what Spark says of its progress.

    query.lastProgress ── "endOffset", "latestOffset" of each source ──> offsets to be read

Spark lets no source in Python add numbers of its own to a query's progress, as Spark's
Kafka source adds its lag. The two offsets from which it follows are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.spark.offsets import Position, decode_position


def lag_of(progress: Mapping[str, Any]) -> dict[str, int]:
    """The offsets that were there, when the batch was planned, behind its end, by topic.

    `progress` is `query.lastProgress`, or what a listener is given. Sources of other
    formats are passed over, and so is one that has not said how far its topics go.
    """
    lags: dict[str, int] = {}
    for source in progress["sources"]:
        end, latest = _position(source["endOffset"]), _position(source["latestOffset"])
        if end is None or latest is None:
            continue
        for name, topic in latest.items():
            done = end[name].partitions if name in end else {}
            behind = sum(
                max(0, offset - done.get(index, 0)) for index, offset in topic.partitions.items()
            )
            lags[name] = lags.get(name, 0) + behind
    return lags


def _position(offset: Any) -> Position | None:
    """None for an offset that is not of this source."""
    try:
        return decode_position(json.loads(offset) if isinstance(offset, str) else offset)
    except (AttributeError, TypeError, ValueError):
        return None
