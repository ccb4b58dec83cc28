"""The options by name: which there are, for what they are, and other names of theirs.

Names are those of Spark's own Kafka source where it has them. Spark gives us options
without regard to case, so here they are looked up in lower case.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from headrace.core.errors import InvalidOption

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
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "progressGroup",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    "valueFraming",
    "badRecords",
    "rowsPerBatch",
    "kafka.isolation.level",
    "kafka.fetch.max.bytes",
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
    "exactlyOnce",
    "sinkId",
    "batchId",
    "transactionTimeout",
    "kafka.compression.type",
    "kafka.batch.size",
    "kafka.request.timeout.ms",
    "kafka.client.id",
    "kafka.acks",
)
# What Spark or a user of a DataFrame adds, and what means nothing to us.
_IGNORED: Final = frozenset(("checkpointlocation", "queryname"))

_OTHER_NAMES: Final = {
    "servers": SERVERS,
    "headers": "includeHeaders",
    "kafka.group.id": "progressGroup",
    "groupid": "progressGroup",
    "kafka.max.partition.fetch.bytes": "kafka.fetch.max.bytes",
}
# Below this, two names are only of the same family, as all of Kafka's are.
_ALIKE: Final = 0.75
_EVERY: Final = {name.lower(): name for name in (*BATCH, *STREAM, *WRITE)}


def canonical(options: Mapping[str, str], allowed: Iterable[str], purpose: str) -> dict[str, str]:
    """The options under the names that this table gives them. InvalidOption for one
    that is unknown, given twice under two names, or not for this purpose."""
    names = {name.lower(): name for name in allowed}
    found: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower in _IGNORED:
            continue
        name = names.get(_OTHER_NAMES.get(lower, lower).lower())
        if name is None:
            raise _unknown(given, names, purpose)
        if name in found and found[name] != value:
            raise InvalidOption(
                f"options {spelled[name]!r} and {given!r} mean the same and differ; keep one"
            )
        found[name] = value
        spelled[name] = given
    return found


def _unknown(given: str, names: Mapping[str, str], purpose: str) -> InvalidOption:
    lower = given.lower()
    known = _EVERY.get(_OTHER_NAMES.get(lower, lower).lower())
    if known is not None:
        return InvalidOption(f"option {known!r} is not for {purpose}; leave it out there")
    if lower.startswith(("kafka.security", "kafka.sasl", "kafka.ssl")):
        return InvalidOption(
            f"option {given!r}: encryption and authentication are not there yet; "
            "leave it out and use a listener without them"
        )
    close = difflib.get_close_matches(lower, (*names, *_OTHER_NAMES), 1, _ALIKE)
    advice = f"did you mean {names.get(close[0], close[0])!r}?" if close else "leave it out"
    return InvalidOption(f"option {given!r} is not known for {purpose}; {advice}")
