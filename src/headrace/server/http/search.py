"""Looking for messages in a topic: by key, value, header and time, newest first.

    partition 0   . . . . . . x . . x |      read backwards, a chunk at a time,
    partition 1   . . . x . . . . . . |      and what fits is merged by its time
                                  <-- |

There is no index but that of offsets and times, so a search reads. One request reads
so much and no more, gives way between chunks, and says where the next goes on; what
was found may be nothing yet.

Rejected: a stream of results that goes on until the client hangs up. A forgotten tab
would read the whole log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.calls import Face
from headrace.core import limits
from headrace.core.errors import InvalidArgument
from headrace.core.values import StreamRecord
from headrace.core.wording import counted
from headrace.server.http.route import Call
from headrace.server.http.shown import milliseconds_at, shown_record
from headrace.server.slices import Slices
from headrace.server.times import offset_at
from headrace.wire.http import bodies
from headrace.wire.http import overview_bodies as o

# What is read of a partition at a time: few, until it is known how large they are.
FIRST_RECORDS = 8
CHUNK_RECORDS = 100
CHUNK_BYTES = 256 * 1024

Matches = Callable[[StreamRecord], bool]


class _Lane:
    """One partition on its way: what is left to read, and what was found there and
    is not given out yet."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        self.partition = partition
        self.start = start
        self.end = end
        self.found: deque[StreamRecord] = deque()
        self.chunk_records = FIRST_RECORDS

    @property
    def is_over(self) -> bool:
        return not self.found and self.start >= self.end

    def on_read(self, records: int, size_bytes: int) -> None:
        """The last ones say how large the next ones are, but not for sure."""
        fitting = CHUNK_BYTES * max(1, records) // max(1, size_bytes)
        self.chunk_records = max(1, min(CHUNK_RECORDS, 4 * self.chunk_records, fitting))


class _Left:
    """What one request may still look at."""

    def __init__(self) -> None:
        self.records = limits.SEARCH_RECORDS_MAX
        self.size_bytes = limits.SEARCH_BYTES_MAX

    @property
    def is_spent(self) -> bool:
        return self.records <= 0 or self.size_bytes <= 0


async def search(call: Call) -> o.SearchPage:
    query: o.SearchQuery = call.query
    topic = call.path["topic"]
    lanes = await _lanes(call, topic, query)
    matches = _matcher(query)
    left, slices = _Left(), Slices()
    # What was found and waits in all partitions has a bound together.
    found_bytes_max = limits.SEARCH_BYTES_MAX // max(1, len(lanes))
    page: list[StreamRecord] = []
    page_bytes = 0
    while len(page) < query.limit and page_bytes < limits.SEARCH_BYTES_MAX:
        for lane in lanes:
            while not lane.found and lane.start < lane.end and not left.is_spent:
                await _advance(
                    call, topic, lane, matches, left, slices, found_bytes_max,
                    newest=query.newest_first,
                )  # fmt: skip
        ready = [lane for lane in lanes if lane.found]
        if not ready:
            break
        latest = (max if query.newest_first else min)(
            ready, key=lambda lane: (lane.found[0].timestamp_ms, lane.partition)
        )
        page.append(latest.found.popleft())
        page_bytes += _size_of(page[-1])
    is_over = all(lane.is_over for lane in lanes)
    return o.SearchPage(
        messages=list(map(shown_record, page)),
        scanned=limits.SEARCH_RECORDS_MAX - left.records,
        next=None if is_over else _written(lanes, newest=query.newest_first),
    )


async def _advance(
    call: Call, topic: str, lane: _Lane, matches: Matches, left: _Left, slices: Slices,
    found_bytes_max: int, *, newest: bool,
) -> None:  # fmt: skip
    """Read the next chunk of a partition, and keep what fits: of what would be too much
    together the part that is given out first."""
    first = max(lane.start, lane.end - lane.chunk_records) if newest else lane.start
    stop = lane.end if newest else min(lane.end, lane.start + lane.chunk_records)
    before = left.records, left.size_bytes
    found_bytes = 0
    position = first
    while position < stop:
        records, next_offset = await call.run(
            Face.read, topic, lane.partition, position, count_max=stop - position
        )
        await slices.rest()
        for record in records:
            if record.offset >= stop:
                break
            left.records -= 1
            left.size_bytes -= _size_of(record)
            if matches(record):
                lane.found.append(record)
                found_bytes += _size_of(record)
        position = next_offset if next_offset > position else stop
        if newest:
            while found_bytes > found_bytes_max and len(lane.found) > 1:
                dropped = lane.found.popleft()
                found_bytes -= _size_of(dropped)
                first = dropped.offset + 1
        elif found_bytes > found_bytes_max or left.is_spent:
            break
    if newest:
        lane.end = first
        lane.found.reverse()
    else:
        lane.start = min(position, stop)
    lane.on_read(before[0] - left.records, before[1] - left.size_bytes)
    if left.records == before[0]:
        # A chunk without records, as compaction leaves, was looked at too.
        left.records -= 1


def _size_of(record: StreamRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")


# Where it begins, and where it goes on.


async def _lanes(call: Call, topic: str, query: o.SearchQuery) -> list[_Lane]:
    known = call.calls.run_nowait(Face.topic_named, topic)
    if query.partition is not None:
        chosen = [query.partition]
    elif known.partitions <= limits.SEARCH_PARTITIONS_MAX:
        chosen = list(range(known.partitions))
    else:
        raise InvalidArgument(
            f"{topic} has {counted(known.partitions, 'partition')}, and at most "
            f"{limits.SEARCH_PARTITIONS_MAX} are looked through at once; name one of them"
        )
    went_on = _parse(query.after)
    lanes = []
    for index in chosen:
        info = await call.run(Face.partition_info, topic, index)
        start, end = info.start_offset, info.last_stable_offset
        if query.since is not None:
            since_ms = milliseconds_at("since", query.since)
            start = max(start, await offset_at(call.calls, topic, index, since_ms))
        if query.until is not None:
            until_ms = milliseconds_at("until", query.until)
            end = min(end, await offset_at(call.calls, topic, index, until_ms + 1))
        if went_on is not None:
            position = went_on.get(index)
            if position is None:
                continue
            if query.newest_first:
                end = min(end, position)
            else:
                start = max(start, position)
        lanes.append(_Lane(index, start, end))
    return lanes


def _written(lanes: list[_Lane], *, newest: bool) -> str:
    """Where each partition goes on: behind what was given out, not what was read."""
    places = []
    for lane in lanes:
        if lane.is_over:
            continue
        if lane.found:
            place = lane.found[0].offset + 1 if newest else lane.found[0].offset
        else:
            place = lane.end if newest else lane.start
        places.append(f"{lane.partition}:{place}")
    return ",".join(places)


def _parse(after: str | None) -> dict[int, int] | None:
    if after is None:
        return None
    try:
        pairs = [pair.split(":") for pair in after.split(",")]
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError as error:
        raise InvalidArgument("`after` is the `next` of another page") from error


# What fits.


def has_texts(query: o.SearchQuery | bodies.EventsQuery) -> Matches:
    """Whether a record has in its key, its value and its headers what is asked for."""
    key = None if query.key is None else query.key.encode()
    value = None if query.value is None else query.value.encode()
    name, _, text = (query.header or "").partition("=")
    header = text.encode()

    def matches(record: StreamRecord) -> bool:
        if key is not None and key not in (record.key or b""):
            return False
        if value is not None and value not in (record.value or b""):
            return False
        return not name or any(
            each == name and header in (content or b"") for each, content in record.headers
        )

    return matches


def _matcher(query: o.SearchQuery) -> Matches:
    has = has_texts(query)
    since = None if query.since is None else milliseconds_at("since", query.since)
    until = None if query.until is None else milliseconds_at("until", query.until)

    def matches(record: StreamRecord) -> bool:
        # Times of records need not grow with their offsets.
        if since is not None and record.timestamp_ms < since:
            return False
        if until is not None and record.timestamp_ms > until:
            return False
        return has(record)

    return matches
