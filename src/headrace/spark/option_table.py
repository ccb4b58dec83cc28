"""The options by name: which there are, for what they are, and other names of theirs.

Names are those of Spark's own Kafka source where it has them; `foreign_options` has those
of its that do nothing here. Spark gives us options without regard to case, so they are
looked up in lower case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.core.errors import InvalidOption
from headrace.spark.foreign_options import (
    foreign_names,
    is_plain,
    shown,
    why_no_effect,
    why_refused,
)
from headrace.spark.warnings_once import warn_once

SERVERS: Final = "kafka.bootstrap.servers"

# For batch and stream alike.
_READ: Final = (
    SERVERS,
    "path",
    "subscribe",
    "subscribePattern",
    "assign",
    "view",
    "columns",
    "includeHeaders",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "unlistedPartitions",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "progressGroup",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    "valueFraming",
    "valueSchemaId",
    "timeZone",
    "badRecords",
    "rowsPerBatch",
    "kafka.isolation.level",
    "kafka.fetch.max.bytes",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
    "kafka.client.id",
)
BATCH: Final = (
    *_READ,
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "pushFilters",
)
STREAM: Final = (
    *_READ,
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
WRITE: Final = (
    SERVERS,
    "topic",
    "markerTopic",
    "includeHeaders",
    "exactlyOnce",
    "sinkId",
    "batchId",
    "transactionTimeout",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.request.timeout.ms",
    "kafka.client.id",
)
# What Spark or a user of a DataFrame adds, and what means nothing to us.
_IGNORED: Final = frozenset(("checkpointlocation", "queryname"))

_OTHER_NAMES: Final = {
    "servers": SERVERS,
    "headers": "includeHeaders",
}
# Below this, two names are only of the same family, as all of Kafka's are.
_ALIKE: Final = 0.75
_EVERY: Final = {name.lower(): name for name in (*BATCH, *STREAM, *WRITE)}


def canonical(
    options: Mapping[str, str], allowed: Iterable[str], purpose: str, *, is_quiet: bool = False
) -> dict[str, str]:
    """The options under the names that this table gives them. InvalidOption for one
    that is unknown, given twice under two names, or not for this purpose; a warning for
    one that has no effect, unless `is_quiet`."""
    names = {name.lower(): name for name in allowed}
    found: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower in _IGNORED:
            continue
        name = names.get(_OTHER_NAMES.get(lower, lower).lower())
        if name is None:
            reason = why_no_effect(given, purpose)
            if reason is None and lower.startswith("kafka.") and lower in _EVERY:
                reason = f"it is not for {purpose}"
            if reason is None and not is_plain(given, value):
                raise _unknown(given, names, purpose)
            if reason is not None and not is_quiet:
                warn_once(f"option {shown(given)!r} has no effect here: {reason}")
            continue
        if name in found and found[name] != value:
            raise InvalidOption(
                f"options {spelled[name]!r} and {given!r} mean the same and differ; keep one"
            )
        found[name] = value
        spelled[name] = given
    return found


def _unknown(given: str, names: Mapping[str, str], purpose: str) -> InvalidOption:
    lower = given.lower()
    reason = why_refused(given, purpose)
    if reason is not None:
        return InvalidOption(f"option {shown(given)!r} is refused: {reason}")
    known = _EVERY.get(_OTHER_NAMES.get(lower, lower).lower())
    if known is not None:
        return InvalidOption(f"option {known!r} is not for {purpose}; leave it out there")
    candidates = (*names, *_OTHER_NAMES, *foreign_names(purpose))
    close = difflib.get_close_matches(lower, candidates, 1, _ALIKE)
    advice = f"did you mean {names.get(close[0], shown(close[0]))!r}?" if close else "leave it out"
    return InvalidOption(f"option {given!r} is not known for {purpose}; {advice}")
