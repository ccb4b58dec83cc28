"""Planning: which topics there are, where they begin and end, and what is lost.

    options ─> topics ─> bounds of each partition ─> ranges ─> splits

Runs on the driver. Everything is looked up by Kafka's protocol; nothing is read.

Spark plans in a process of its own each time, so what only some queries need, such as
what reads directories, is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.client.kafka.cluster import (
    EARLIEST,
    LATEST,
    FoundOffset,
    KafkaCluster,
    Place,
    TopicInfo,
)
from headrace.core.errors import InvalidOption
from headrace.core.values import DEAD_LETTER_SUFFIX
from headrace.spark.filters import Narrowing
from headrace.spark.offset_words import Bound
from headrace.spark.offsets import Position, TopicPosition
from headrace.spark.options import ReadOptions
from headrace.spark.pattern.topics import topic_pattern
from headrace.spark.splits import OffsetRange

if TYPE_CHECKING:
    from headrace.spark.directory import Directory


def connect(options: ReadOptions) -> KafkaCluster | Directory:
    return connect_servers(options) if options.path is None else directory_of(options)


def directory_of(options: ReadOptions) -> Directory:
    from headrace.spark.directory import Directory

    assert options.path is not None
    return Directory(options.path)


def connect_servers(options: ReadOptions) -> KafkaCluster:
    return KafkaCluster(options.servers, client_id=options.client_id, timeout_ms=options.timeout_ms)


class Planner:
    """Answers the driver's questions about a cluster, at the isolation of the query."""

    def __init__(self, options: ReadOptions, cluster: KafkaCluster | Directory) -> None:
        self._options = options
        self._cluster = cluster

    def topics(self) -> dict[str, TopicInfo]:
        """Those to be read, as they are now. A topic that was named and is missing is
        a mistake; a pattern may match nothing yet."""
        wanted = self._options.topics
        if wanted.pattern is not None:
            there = self._cluster.topics()
            names = [name for name, topic in there.items() if self._may_match(topic)]
            return {name: there[name] for name in topic_pattern(wanted.pattern).choose(names)}
        named = wanted.named() or ()
        found = self._cluster.topics(named)
        return {name: self._assigned(found[name]) for name in sorted(named) if name in found}

    def _may_match(self, topic: TopicInfo) -> bool:
        """Whether a pattern is asked. A query that writes dead letters does not read them
        behind their topics: they would be bad again, and have dead letters of their own."""
        decoding = self._options.decoding
        writes_letters = decoding is not None and decoding.to_dead_letters
        is_letters = writes_letters and topic.name.endswith(DEAD_LETTER_SUFFIX)
        return not topic.is_internal and not is_letters

    def _assigned(self, topic: TopicInfo) -> TopicInfo:
        if self._options.topics.assigned is None:
            return topic
        wanted = self._options.topics.assigned[topic.name]
        missing = [index for index in wanted if index not in topic.partitions]
        if missing:
            raise InvalidOption(
                f"option 'assign': topic {topic.name!r} has no partition {missing[0]}; it has "
                f"{len(topic.partitions)}"
            )
        return topic._replace(partitions=wanted)

    def existing_topics(self) -> dict[str, TopicInfo]:
        """Like `topics`, where one that is missing is a mistake."""
        found = self.topics()
        for name in self._options.topics.named() or ():
            if name not in found:
                option = "subscribe" if self._options.topics.assigned is None else "assign"
                place = self._options.path or ",".join(self._options.servers)
                raise InvalidOption(
                    f"option {option!r}: there is no topic {name!r} on {place}; make it first, or "
                    "correct the name"
                )
        return found

    def offsets(self, topics: Iterable[TopicInfo], at: int) -> dict[Place, int]:
        """EARLIEST or LATEST of every partition."""
        wanted = {(topic.name, index): at for topic in topics for index in topic.partitions}
        found = self._cluster.offsets(wanted, self._options.isolation_level)
        return {place: each.offset for place, each in found.items()}

    def offsets_at(self, times_ms: Mapping[Place, int]) -> dict[Place, int]:
        """Of the first records at or behind these times; -1 where there is none."""
        found = self._cluster.offsets(times_ms, self._options.isolation_level)
        return {place: each.offset for place, each in found.items()}

    def resolve(self, bound: Bound, topics: Mapping[str, TopicInfo]) -> dict[Place, int]:
        """The offsets that the bound means, of every partition."""
        places = [(topic.name, index) for topic in topics.values() for index in topic.partitions]
        for place in bound.places:
            if place not in places:
                raise InvalidOption(
                    f"option {bound.option!r} names {place[0]}:{place[1]}, which is not read; "
                    "remove it there"
                )
        self._check_list(bound, places)
        asked = {}
        fixed = {}
        for place in places:
            wanted = bound.places.get(place, bound.everywhere)
            if bound.by_time or wanted in (EARLIEST, LATEST):
                asked[place] = wanted
            else:
                fixed[place] = wanted
        found = self._cluster.offsets(asked, self._options.isolation_level)
        late = [place for place, each in found.items() if each.offset < 0]
        if late:
            found |= self._beyond_the_end(bound, late)
        return {place: fixed[place] if place in fixed else found[place].offset for place in places}

    def _check_list(self, bound: Bound, places: list[Place]) -> None:
        """Spark's rule: offsets for some partitions say nothing about the others."""
        missing = [place for place in places if place not in bound.places]
        if bound.is_list and missing and not self._options.unlisted_are_whole:
            shown = ", ".join(f"{topic}:{partition}" for topic, partition in missing[:10])
            words = "" if bound.by_time else " (-1 for the end, or -2 for the beginning of a start)"
            raise InvalidOption(
                f"option {bound.option!r} leaves out {shown}"
                f"{f' and {len(missing) - 10} more' if len(missing) > 10 else ''}; name every "
                f"partition that is read{words}, or set 'unlistedPartitions' to whole"
            )

    def _beyond_the_end(self, bound: Bound, late: list[Place]) -> dict[Place, FoundOffset]:
        """For a time that is later than every record, an end is the end."""
        is_start = bound.option.startswith("starting")
        if is_start and not self._options.late_start_is_end:
            topic, partition = late[0]
            time_ms = bound.places.get(late[0], bound.everywhere)
            raise InvalidOption(
                f"option {bound.option!r}: {topic}:{partition} has no record at or behind "
                f"{time_ms}; give an earlier time, or set "
                "'startingOffsetsByTimestampStrategy' to latest"
            )
        return self._cluster.offsets(dict.fromkeys(late, LATEST), self._options.isolation_level)

    def position(self, topics: Mapping[str, TopicInfo], offsets: Mapping[Place, int]) -> Position:
        return {
            name: TopicPosition(
                topic.id, {index: offsets[name, index] for index in topic.partitions}
            )
            for name, topic in topics.items()
        }


def batch_ranges(planner: Planner, options: ReadOptions) -> list[OffsetRange]:
    """What a batch reads: from the starting to the ending offsets, within what there
    is."""
    topics = planner.existing_topics()
    starts = planner.resolve(options.starting, topics)
    ends = planner.resolve(options.ending, topics)
    earliest = planner.offsets(topics.values(), EARLIEST)
    latest = planner.offsets(topics.values(), LATEST)
    ranges = []
    for place, start in starts.items():
        name, partition = place
        shown = f"{name}:{partition}"
        end = ends[place]
        if options.starting.places.get(place, -1) > end and not options.starting.by_time:
            # Data that were lost are no reason for it.
            raise InvalidOption(
                f"option {options.starting.option!r}: {shown} begins at {start} and ends at {end}; "
                "begin at or before the end"
            )
        if options.fail_on_data_loss:
            if start < earliest[place]:
                raise _out_of_bounds(options.starting, shown, start, "begins", earliest[place])
            if end < earliest[place]:
                raise _out_of_bounds(options.ending, shown, end, "begins", earliest[place])
            if max(start, end) > latest[place]:
                bound = options.starting if start > latest[place] else options.ending
                raise _out_of_bounds(bound, shown, max(start, end), "ends", latest[place])
        start, end = max(start, earliest[place]), min(end, latest[place])
        if start < end:
            ranges.append(OffsetRange(name, topics[name].id, partition, start, end))
    return ranges


def stream_starts(planner: Planner, options: ReadOptions) -> dict[Place, int]:
    """Where a stream begins, within what there is. Beyond the end it would wait for
    that offset, and all before it would never be read."""
    topics = planner.existing_topics()
    starts = planner.resolve(options.starting, topics)
    if not options.starting.places or options.starting.by_time:
        return starts
    earliest = planner.offsets(topics.values(), EARLIEST)
    latest = planner.offsets(topics.values(), LATEST)
    for place, start in starts.items():
        shown = f"{place[0]}:{place[1]}"
        if options.fail_on_data_loss and start < earliest[place]:
            raise _out_of_bounds(options.starting, shown, start, "begins", earliest[place])
        if options.fail_on_data_loss and start > latest[place]:
            raise _out_of_bounds(options.starting, shown, start, "ends", latest[place])
    return {
        place: min(max(start, earliest[place]), latest[place]) for place, start in starts.items()
    }


def _out_of_bounds(bound: Bound, shown: str, offset: int, verb: str, there: int) -> InvalidOption:
    return InvalidOption(
        f"option {bound.option!r}: {shown} {verb} at offset {there}, so {offset} is not there; "
        "correct it, or set 'failOnDataLoss' to false to read what there is"
    )


def narrowed(
    planner: Planner, ranges: list[OffsetRange], narrowing: Narrowing
) -> list[OffsetRange]:
    """What filters leave of the ranges."""
    kept = [each for each in ranges if narrowing.takes(each.topic, each.partition)]
    starts = {}
    if narrowing.since_ms is not None:
        places = {(each.topic, each.partition): narrowing.since_ms for each in kept}
        starts = planner.offsets_at(places)
    found = []
    for each in kept:
        # Without a record so young, nothing is left.
        first = starts.get((each.topic, each.partition), each.start)
        start = max(each.start, narrowing.start, each.end if first < 0 else first)
        end = min(each.end, narrowing.end)
        if start < end:
            found.append(each._replace(start=start, end=end))
    return found
