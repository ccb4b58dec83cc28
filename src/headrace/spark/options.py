"""What a user asked for, checked as a whole before anything is read or written.

    spark.read.format("headrace").option("servers", "...").option("subscribe", "orders")

Every mistake is one InvalidOption that names the option and what to do. Options that
contradict each other are a mistake too: guessing which one was meant is how data gets
lost in silence.

Rejected: taking whatever Kafka's Java client would take. What does nothing here is
known by name (`foreign_options`); what is unknown is a mistake.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, cast

from headrace.client.kafka.cluster import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    TIMEOUT_MS,
    parse_address,
)
from headrace.client.kafka.fetching import FETCH_BYTES
from headrace.core.environment import (
    PORT_DEFAULT,
    URL_SCHEME,
    URL_VARIABLE,
    addresses_in,
    check_environment,
)
from headrace.core.errors import InvalidArgument, InvalidOption
from headrace.core.limits import NAME_CHARACTERS_MAX
from headrace.core.values import DEAD_LETTER_SUFFIX, SPARK_SINK_PREFIX
from headrace.core.wording import counted
from headrace.spark.decoding_options import Decoding, parse_decoding
from headrace.spark.offset_words import (
    EARLIEST,
    LATEST,
    Bound,
    parse_assign,
    parse_offsets,
    parse_time,
    parse_times,
)
from headrace.spark.option_table import BATCH, SERVERS, STREAM, canonical
from headrace.spark.option_values import choice, duration, flag, number
from headrace.spark.pattern.topics import topic_pattern

Kind = Literal["batch", "stream"]
View = Literal["stream", "dead-letters", "delayed"]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"
ROWS_PER_BATCH: Final = 32_768
_ROWS_PER_BATCH_MAX: Final = 10_000_000
_MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000


class Topics(NamedTuple):
    """Which topics are read: one of the three."""

    names: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    def named(self) -> tuple[str, ...] | None:
        """None when only a pattern says which."""
        return self.names if self.assigned is None else tuple(self.assigned)


class Shape(NamedTuple):
    """What says which columns there are."""

    view: str
    columns: tuple[str, ...]
    decoding: Decoding | None


class ReadOptions(NamedTuple):
    kind: Kind
    servers: tuple[str, ...]
    path: str | None
    topics: Topics
    view: View
    columns: tuple[str, ...]
    starting: Bound
    ending: Bound
    # What happens when a time is later than every record: an error, or the end.
    late_start_is_end: bool
    # Whether partitions that JSON of offsets leaves out are read as a whole.
    unlisted_are_whole: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    progress_group: str | None
    isolation_level: int
    decoding: Decoding | None
    push_filters: bool
    rows_per_batch: int
    fetch_bytes: int
    timeout_ms: int
    client_id: str

    @property
    def include_headers(self) -> bool:
        return HEADERS in self.columns

    @property
    def shape(self) -> Shape:
        return Shape(self.view, self.columns, self.decoding)


def parse_shape(options: Mapping[str, str]) -> Shape:
    """Only the options that decide the schema. It is not known yet what it is for."""
    given = canonical(options, (*BATCH, *STREAM), "a read", is_quiet=True)
    return Shape(_view(given), _columns(given), parse_decoding(given))


def _view(given: Mapping[str, str]) -> View:
    chosen = choice(given, "view", ("stream", "dead-letters", "delayed"))
    return cast(View, chosen)


def parse_read_options(options: Mapping[str, str], kind: Kind) -> ReadOptions:
    purpose = f"a {kind} read"
    given = canonical(options, BATCH if kind == "batch" else STREAM, purpose)
    servers, path = _where(given)
    topics = _topics(given)
    view = _view(given)
    if view != "stream":
        _check_view(given, view, kind, topics)
    parsed = ReadOptions(
        kind=kind,
        servers=servers,
        path=path,
        topics=topics,
        view=view,
        columns=_columns(given),
        starting=_starting(given, kind),
        ending=_ending(given),
        late_start_is_end=choice(
            given, "startingOffsetsByTimestampStrategy", ("error", "latest")
        ) == "latest",
        unlisted_are_whole=choice(given, "unlistedPartitions", ("error", "whole")) == "whole",
        fail_on_data_loss=flag(given, "failOnDataLoss", True),
        min_partitions=number(given, "minPartitions", 1),
        max_records_per_partition=number(given, "maxRecordsPerPartition", 1),
        max_offsets_per_trigger=number(given, "maxOffsetsPerTrigger", 1),
        min_offsets_per_trigger=number(given, "minOffsetsPerTrigger", 1),
        max_trigger_delay_ms=duration(given, "maxTriggerDelay", _MAX_TRIGGER_DELAY_MS),
        progress_group=_progress_group(given),
        isolation_level=_isolation(given),
        decoding=parse_decoding(given),
        push_filters=flag(given, "pushFilters", False),
        rows_per_batch=number(given, "rowsPerBatch", 1, _ROWS_PER_BATCH_MAX) or ROWS_PER_BATCH,
        fetch_bytes=_fetch_bytes(given),
        timeout_ms=number(given, "kafka.request.timeout.ms", 1, 2**31 - 1) or TIMEOUT_MS,
        client_id=given.get("kafka.client.id", "headrace-spark"),
    )  # fmt: skip
    _check_together(given, parsed)
    return parsed


def _progress_group(given: Mapping[str, str]) -> str | None:
    group = given.get("progressGroup")
    if group is None:
        return None
    if not 0 < len(group) <= NAME_CHARACTERS_MAX:
        raise InvalidOption(
            f"option 'progressGroup' has {counted(len(group), 'character')}; name a group by 1 to "
            f"{NAME_CHARACTERS_MAX}, or leave it out"
        )
    if group.startswith(SPARK_SINK_PREFIX):
        raise InvalidOption(
            f"option 'progressGroup' is {group!r}, and {SPARK_SINK_PREFIX!r} is what groups of "
            "exactly-once writes begin with; choose another name"
        )
    return group


def _fetch_bytes(given: Mapping[str, str]) -> int:
    """Of one answer. It is of one partition, so both of Kafka's limits are about it."""
    names = ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
    limits = [number(given, name, 1, 2**31 - 1) for name in names]
    return min((limit for limit in limits if limit is not None), default=FETCH_BYTES)


def _where(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    path = given.get("path")
    if path is not None and SERVERS in given:
        raise InvalidOption(
            f"options 'path' and {SERVERS!r} contradict each other: read a directory or ask a "
            "server; keep one of them ('path' is also what load() was given: topics are named by "
            "'subscribe')"
        )
    if path is not None:
        return (), path
    return parse_servers(given), None


def parse_servers(given: Mapping[str, str]) -> tuple[str, ...]:
    if SERVERS not in given:
        return _servers_in(os.environ)
    servers = tuple(_bare(part.strip()) for part in given[SERVERS].split(",") if part.strip())
    if not servers:
        raise InvalidOption(
            f"option {SERVERS!r} (or 'servers') is empty; set it to host:port of a node"
        )
    for server in servers:
        try:
            parse_address(server)
        except InvalidArgument as error:
            raise InvalidOption(f"option {SERVERS!r}: {error}") from None
    return servers


def _bare(server: str) -> str:
    """Without what our own URLs and Kafka's listeners have before an address."""
    scheme, separator, rest = server.partition("://")
    known = (URL_SCHEME.removesuffix("://"), "plaintext")
    return rest.rstrip("/") if separator and scheme.lower() in known else server


def _servers_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes that every client takes that is not told others."""
    try:
        check_environment(environment)
    except InvalidArgument as error:
        raise InvalidOption(str(error)) from None
    url = environment.get(URL_VARIABLE, "")
    if not url:
        raise InvalidOption(
            f"option {SERVERS!r} (or 'servers') is missing; set it to host:port of a node, or "
            f"set {URL_VARIABLE}"
        )
    found = [address for scheme, address in addresses_in(url) if scheme == URL_SCHEME]
    if not found:
        raise InvalidOption(
            f"{URL_VARIABLE} is {url}, and Spark speaks Kafka's protocol: set option {SERVERS!r} "
            f"(or 'servers') to that door, as in host:{PORT_DEFAULT}, or add it to the URL, as in "
            f"{url},{URL_SCHEME}host:{PORT_DEFAULT}"
        )
    servers = tuple(each if ":" in each else f"{each}:{PORT_DEFAULT}" for each in found)
    try:
        for server in servers:
            parse_address(server)
    except InvalidArgument as error:
        raise InvalidOption(f"{URL_VARIABLE}: {error}") from None
    return servers


def _topics(given: Mapping[str, str]) -> Topics:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        raise InvalidOption(
            "options 'subscribe', 'subscribePattern' and 'assign' say which topics are read: "
            f"set one of them, not {' and '.join(map(repr, ways)) if ways else 'none'}"
        )
    [way] = ways
    text = given[way]
    if way == "assign":
        return Topics(assigned=parse_assign(way, text))
    if way == "subscribePattern":
        topic_pattern(text)
        return Topics(pattern=text)
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidOption(f"option {way!r} is empty; name one or more topics, with commas")
    return Topics(names=names)


def _check_view(given: Mapping[str, str], view: str, kind: Kind, topics: Topics) -> None:
    if kind == "stream":
        raise InvalidOption(
            f"option 'view': {view!r} is a picture of this moment and can be read in a batch "
            "only; use spark.read"
        )
    if topics.names is None or len(topics.names) != 1:
        raise InvalidOption(f"option 'view': {view!r} is of one topic; name it by 'subscribe'")
    for name in ("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
                 "valueFormat", "columns", "progressGroup", "minPartitions"):  # fmt: skip
        if name in given:
            raise InvalidOption(f"option {name!r} has no meaning with view {view!r}; leave it out")


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    include_headers = flag(given, "includeHeaders", False)
    if "columns" not in given:
        return (*COLUMNS, HEADERS) if include_headers else COLUMNS
    known = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    names = [part.strip() for part in given["columns"].split(",") if part.strip()]
    for name in names:
        if name.lower() not in known:
            raise InvalidOption(
                f"option 'columns': there is no column {name!r}; choose from "
                f"{', '.join(known.values())}"
            )
    chosen = tuple(dict.fromkeys(known[name.lower()] for name in names))
    if not chosen:
        raise InvalidOption("option 'columns' is empty; name one or more columns, or leave it out")
    if include_headers and HEADERS not in chosen:
        raise InvalidOption(
            "options 'includeHeaders' and 'columns' contradict each other; add headers to 'columns'"
        )
    return chosen


def _starting(given: Mapping[str, str], kind: Kind) -> Bound:
    names = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    ways = _at_most_one(given, names)
    is_stream = kind == "stream"
    if ways is None:
        return Bound("startingOffsets", False, LATEST if is_stream else EARLIEST, {})
    if ways == "startingOffsets":
        return parse_offsets(ways, given[ways], is_start=True, is_stream=is_stream)
    if ways == "startingTimestamp":
        return parse_time(ways, given[ways])
    return parse_times(ways, given[ways], is_start=True)


def _ending(given: Mapping[str, str]) -> Bound:
    ways = _at_most_one(given, ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"))
    if ways is None:
        return Bound("endingOffsets", False, LATEST, {})
    if ways == "endingOffsets":
        return parse_offsets(ways, given[ways], is_start=False, is_stream=False)
    if ways == "endingTimestamp":
        return parse_time(ways, given[ways])
    return parse_times(ways, given[ways], is_start=False)


def _at_most_one(given: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    ways = [name for name in names if name in given]
    if len(ways) > 1:
        raise InvalidOption(
            f"options {' and '.join(map(repr, ways))} contradict each other; keep one of them"
        )
    return ways[0] if ways else None


def _check_together(given: Mapping[str, str], parsed: ReadOptions) -> None:
    low, high = parsed.min_offsets_per_trigger, parsed.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise InvalidOption(
            f"option 'minOffsetsPerTrigger' ({low}) is above 'maxOffsetsPerTrigger' ({high}); "
            "lower it, or raise the other"
        )
    if "maxTriggerDelay" in given and low is None:
        raise InvalidOption(
            "option 'maxTriggerDelay' says how long 'minOffsetsPerTrigger' may wait; set that "
            "too, or leave it out"
        )
    if parsed.path is not None and parsed.progress_group is not None:
        raise InvalidOption("option 'progressGroup' needs a server; leave it out with 'path'")
    if parsed.decoding and parsed.decoding.to_dead_letters:
        _check_no_letters(parsed.topics)
    if parsed.path is not None and parsed.decoding and parsed.decoding.to_dead_letters:
        raise InvalidOption(
            "option 'badRecords': dead letters need a server to write to; use 'column' with 'path'"
        )
    _check_times(parsed.starting, parsed.ending)
    for bound in (parsed.starting, parsed.ending):
        if bound.places and parsed.topics.names is not None:
            for topic, _ in bound.places:
                if topic not in parsed.topics.names:
                    raise InvalidOption(
                        f"option {bound.option!r} names topic {topic!r}, which 'subscribe' does "
                        "not; add it there or remove it here"
                    )


def _check_times(starting: Bound, ending: Bound) -> None:
    if not (starting.by_time and ending.by_time):
        return
    pairs = [(starting.places[each], ending.places.get(each, -1)) for each in starting.places]
    if not starting.is_list and not ending.is_list:
        pairs = [(starting.everywhere, ending.everywhere)]
    for start_ms, end_ms in pairs:
        if start_ms > end_ms >= 0:
            raise InvalidOption(
                f"option {starting.option!r} ({start_ms}) is behind {ending.option!r} ({end_ms}); "
                "begin at or before the end"
            )


def _check_no_letters(topics: Topics) -> None:
    for name in topics.named() or ():
        if name.endswith(DEAD_LETTER_SUFFIX):
            raise InvalidOption(
                f"option 'badRecords': {name!r} holds dead letters, and those that are bad would "
                "become dead letters of dead letters; use 'column'"
            )


def _isolation(given: Mapping[str, str]) -> int:
    chosen = choice(given, "kafka.isolation.level", ("read_committed", "read_uncommitted"))
    return READ_COMMITTED if chosen == "read_committed" else READ_UNCOMMITTED
