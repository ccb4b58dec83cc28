"""Where to begin and where to end, in the words of Spark's Kafka source.

    "earliest", "latest"                  everywhere
    {"orders": {"0": 23, "1": -2}}        by partition; -2 is earliest, -1 latest
    {"orders": {"0": 1700000000000}}      the same shape by time, in milliseconds

A partition that JSON leaves out, or one that it names and that is not read, is an error
when the query is planned. With option 'unlistedPartitions' one that is left out begins at
earliest and ends at latest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.core.errors import InvalidOption
from headrace.core.limits import TIMESTAMP_MS_MAX
from headrace.spark.offsets import TOPIC_ID

EARLIEST: Final = -2
LATEST: Final = -1

Place = tuple[str, int]


class Bound(NamedTuple):
    """One end of what is read. `everywhere` is for places that are not named: EARLIEST,
    LATEST or, when `by_time`, milliseconds. `places` are offsets, or times; `is_list`
    says that they were given one by one."""

    option: str
    by_time: bool
    everywhere: int
    places: Mapping[Place, int]
    is_list: bool = False


def parse_offsets(option: str, text: str, *, is_start: bool, is_stream: bool) -> Bound:
    """`startingOffsets` or `endingOffsets`."""
    rest = EARLIEST if is_start else LATEST
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        found = EARLIEST if word == "earliest" else LATEST
        if found == EARLIEST and not is_start:
            raise InvalidOption(
                f"option {option!r} cannot be 'earliest': nothing would be read; "
                "give 'latest' or offsets"
            )
        if found == LATEST and is_start and not is_stream:
            raise InvalidOption(
                f"option {option!r} cannot be 'latest' in a batch: nothing would be read; "
                "give 'earliest' or offsets"
            )
        return Bound(option, False, found, {})
    if not text.lstrip().startswith("{"):
        raise InvalidOption(
            f"option {option!r} is {text!r}; give {'earliest' if is_start else 'latest'}"
            f"{', latest' if is_start and is_stream else ''} or JSON as in "
            '{"orders": {"0": 23}}'
        )
    places = parse_places(option, text)
    for (topic, partition), offset in places.items():
        if offset == EARLIEST and not is_start:
            raise InvalidOption(
                f"option {option!r}: -2 (earliest) of {topic}:{partition} is not an end; "
                "give an offset or -1 (latest)"
            )
        if offset == LATEST and is_start and not is_stream:
            raise InvalidOption(
                f"option {option!r}: -1 (latest) of {topic}:{partition} is not where a batch can "
                "begin; give an offset or -2 (earliest)"
            )
        if offset < EARLIEST:
            raise InvalidOption(
                f"option {option!r}: {offset} of {topic}:{partition} is not an offset; "
                "give 0 or more, -2 for earliest or -1 for latest"
            )
    return Bound(option, False, rest, places, True)


def parse_times(option: str, text: str, *, is_start: bool) -> Bound:
    """`startingOffsetsByTimestamp` or `endingOffsetsByTimestamp`."""
    places = parse_places(option, text)
    for time_ms in places.values():
        _check_time(option, time_ms)
    return Bound(option, True, EARLIEST if is_start else LATEST, places, True)


def parse_time(option: str, text: str) -> Bound:
    """`startingTimestamp` or `endingTimestamp`."""
    try:
        time_ms = int(text)
    except ValueError:
        raise InvalidOption(
            f"option {option!r} is {text!r}; give milliseconds since 1970 as a whole number"
        ) from None
    _check_time(option, time_ms)
    return Bound(option, True, time_ms, {})


def _check_time(option: str, time_ms: int) -> None:
    if not 0 <= time_ms <= TIMESTAMP_MS_MAX:
        raise InvalidOption(
            f"option {option!r}: {time_ms} is not a time; give milliseconds since 1970"
        )


def parse_places(option: str, text: str) -> dict[Place, int]:
    """`{"topic": {"0": 23}}`"""
    topics = _parse_json(option, text, '{"orders": {"0": 23}}')
    places: dict[Place, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise InvalidOption(
                f'option {option!r}: {topic!r} needs offsets by partition, as in {{"0": 23}}'
            )
        for partition, offset in partitions.items():
            if partition == TOPIC_ID:
                # Part of what Spark shows as a query's position, which people copy from there.
                continue
            if not partition.isdecimal() or isinstance(offset, bool) or type(offset) is not int:
                raise InvalidOption(
                    f"option {option!r}: {partition!r}: {offset!r} of {topic!r} is not a "
                    "partition's number and a whole number"
                )
            places[topic, int(partition)] = offset
    return places


def parse_assign(option: str, text: str) -> dict[str, tuple[int, ...]]:
    """`{"topic": [0, 1]}`"""
    topics = _parse_json(option, text, '{"orders": [0, 1]}')
    assigned = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, list) or not all(
            type(each) is int and each >= 0 for each in partitions
        ):
            raise InvalidOption(
                f"option {option!r}: {topic!r} needs a list of partitions, as in [0, 1]"
            )
        assigned[topic] = tuple(sorted(set(partitions)))
    if not any(assigned.values()):
        raise InvalidOption(f"option {option!r} names no partition; name one or more")
    return assigned


def _parse_json(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidOption(
            f"option {option!r} is not JSON ({error}); write it as in {example}"
        ) from None
    if not isinstance(found, dict):
        raise InvalidOption(f"option {option!r} is not a JSON object; write it as in {example}")
    return found
