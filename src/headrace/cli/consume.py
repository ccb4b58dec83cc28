"""`headrace consume`: a topic as a stream, on stdout.

Without a group nothing moves: the records are read where they lie, read-only,
beside whatever else uses the directory or the node. Partitions are merged by the records'
time, each keeping its own order.

With a group its cursors move. They are committed after the records were handed
to stdout, so a crash in between prints some of them again and loses none.

    without --follow   ends at what was the end when it began
    with --follow      waits for more, until Ctrl-C or --count
"""

from __future__ import annotations

import contextlib
import heapq
import os
import threading
import time
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.arguments import START
from headrace.cli.command import (
    BLOCK_SECONDS_MAX,
    EXIT_NOTHING_FOUND,
    Place,
    command,
    json_option,
    open_backend,
    open_handle,
    retry_option,
    stay_looking,
    wait_in_slices,
)
from headrace.cli.completing import stream_names, topic_names, words
from headrace.cli.output import (
    flush_lines,
    iso_time,
    json_bytes,
    json_headers,
    say,
    shown_text,
    stdout_is_terminal,
    write_json_line,
    write_line,
)
from headrace.core.errors import TopicReplaced, UnknownPartition
from headrace.core.values import MessageId, PartitionInfo, StreamRecord

if TYPE_CHECKING:
    from headrace.client.backend import Backend
    from headrace.client.views import Record

FOLLOW_PAUSE_SECONDS = 0.2
# Looking costs more in a large directory; at most one part in this is spent on it.
FOLLOW_SHARE = 5
PAGE_RECORDS = 500

Start = str | tuple[str, int]


@command(
    None,
    "consume",
    examples="""
    headrace consume orders
    headrace consume orders --follow --from latest
    headrace consume orders --from 2027-01-31T09:00 --count 10 --json
    headrace consume orders --partition 0 --from 4096
    headrace consume orders --group audit --follow
    """,
)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "--group",
    shell_complete=stream_names,
    help="Read as a member of this stream group, and move its cursors.",
)
@click.option(
    "--from",
    "start",
    type=START,
    shell_complete=words("earliest", "latest"),
    help="earliest, latest, an offset, or a moment.  [default: earliest, or the group's cursors]",
)
@click.option("--partition", type=int, help="This one alone.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many.")
@click.option("--follow", is_flag=True, help="Wait for more at the end.")
@click.option(
    "--format",
    "shape",
    type=click.Choice(["text", "json", "hex"]),
    default="text",
    show_default=True,
)
@click.option("--key-separator", metavar="TEXT", help="Put the key and this text before the value.")
@retry_option
@json_option
def consume(
    topic: str,
    group: str | None,
    start: Start | None,
    partition: int | None,
    count: int | None,
    follow: bool,
    shape: str,
    key_separator: str | None,
    retry_ms: int | None,
    as_json: bool,
    place: Place,
) -> int | None:
    """Print a topic's records. Exit code 3 when there was none.

    With --follow a node that is away is waited for.
    """
    if retry_ms is not None and not follow:
        raise click.UsageError("--retry is for --follow")
    connection = stay_looking(place, retry_ms) if follow else {}
    if group is not None and partition is not None:
        raise click.UsageError("a group assigns its partitions itself: leave --partition out")
    printer = Printer("json" if as_json else shape, key_separator, count)
    if group is None:
        _print_topic(place, topic, partition, start or "earliest", follow, printer, connection)
    else:
        _print_as_group(place, topic, group, start, follow, printer, connection)
    return None if printer.printed else EXIT_NOTHING_FOUND


class Printer:
    """Writes records in one of the shapes and counts them."""

    def __init__(self, shape: str, key_separator: str | None, count: int | None) -> None:
        self.printed = 0
        self._shape = shape
        self._separator = None if key_separator is None else key_separator.encode()
        self._count = count
        # Bytes go to a pipe as they are; see `output` for why not to a terminal.
        self._for_eyes = stdout_is_terminal()

    @property
    def is_done(self) -> bool:
        return self._count is not None and self.printed >= self._count

    def room(self) -> int:
        """How many more may be asked for at once."""
        if self._count is None:
            return PAGE_RECORDS
        return min(PAGE_RECORDS, self._count - self.printed)

    def write(self, record: StreamRecord) -> None:
        self.printed += 1
        if self._shape == "json":
            write_json_line(record_document(record))
        else:
            write_line(self._line(record))
        if self.printed % PAGE_RECORDS == 0:
            flush_lines()

    def _line(self, record: StreamRecord) -> bytes:
        value = self._shown(record.value)
        if self._separator is None:
            return value
        return self._shown(record.key) + self._separator + value

    def _shown(self, data: bytes | None) -> bytes:
        if self._shape == "hex":
            return (data or b"").hex().encode()
        if self._for_eyes:
            return shown_text(data or b"").encode()
        return data or b""


def record_document(record: StreamRecord) -> dict[str, Any]:
    return {
        "id": str(MessageId(record.topic, record.partition, record.offset)),
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": iso_time(record.timestamp_ms),
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": json_headers(record.headers),
    }


# Without a group.


def _print_topic(
    place: Place,
    topic: str,
    partition: int | None,
    start: Start,
    follow: bool,
    printer: Printer,
    connection: dict[str, Any],
) -> None:
    looks = _node_looks(place, topic, connection) if place.server else _directory_looks(place)
    followed: Followed | None = None
    with contextlib.closing(looks):
        for backend in looks:
            if followed is None:
                followed = Followed(backend, topic, partition, start)
            else:
                followed.catch_up(backend)
            followed.print_what_is_there(backend, printer)
            if printer.is_done or not follow:
                return


def _directory_looks(place: Place) -> Generator[Backend]:
    """The directory, now and whenever something in it changed."""
    while True:
        # Taken before the look: what changes during it is seen by the next one.
        seen = _newest_change(place.directory)
        began = time.monotonic()
        # Opened anew for each look: a read-only node shows the moment at which
        # it was opened, while another process goes on publishing.
        with open_backend(place, read_only=True) as backend:
            yield backend
        time.sleep(max(FOLLOW_PAUSE_SECONDS, (time.monotonic() - began) * (FOLLOW_SHARE - 1)))
        while _newest_change(place.directory) == seen:
            time.sleep(FOLLOW_PAUSE_SECONDS)


def _node_looks(place: Place, topic: str, connection: dict[str, Any]) -> Generator[Backend]:
    """The node, now and whenever something may have come to the topic."""
    news = threading.Event()
    with open_backend(place, **connection) as backend:
        backend.add_listener(news.set, [topic])
        while True:
            # Cleared before the look: what comes during it is seen by the next one.
            news.clear()
            yield backend
            while not news.wait(BLOCK_SECONDS_MAX):
                # A signal is noticed between two of these.
                continue


class Followed:
    """A topic that is printed as it grows, and how far that came."""

    def __init__(self, backend: Backend, topic: str, partition: int | None, start: Start) -> None:
        self._topic = topic
        self._partition = partition
        # Before the positions: whoever makes the topic again between the two looks is
        # noticed by the first read.
        self._topic_id = backend.topic(topic).id
        self._positions = start_positions(backend, topic, partition, start)

    def print_what_is_there(self, backend: Backend, printer: Printer) -> None:
        try:
            for record in self._merged(backend):
                printer.write(record)
                self._positions[record.partition] = record.offset + 1
                if printer.is_done:
                    break
        except TopicReplaced:
            flush_lines()
            self._begin_anew(backend)
            self.print_what_is_there(backend, printer)
        flush_lines()

    def catch_up(self, backend: Backend) -> None:
        """A topic may grow, retention may pass by, and another may take its name."""
        info = backend.topic(self._topic)
        if info.id != self._topic_id:
            self._begin_anew(backend)
        for one in info.partitions:
            if self._partition is None or one.partition == self._partition:
                known = self._positions.get(one.partition, one.start_offset)
                self._positions[one.partition] = max(known, one.start_offset)

    def _begin_anew(self, backend: Backend) -> None:
        say(f"topic {self._topic} was deleted and made again; printing the new one")
        self._topic_id = backend.topic(self._topic).id
        self._positions = start_positions(backend, self._topic, self._partition, "earliest")

    def _merged(self, backend: Backend) -> Iterator[StreamRecord]:
        streams = [
            partition_records(backend, self._topic, partition, offset, self._topic_id)
            for partition, offset in sorted(self._positions.items())
        ]
        return heapq.merge(*streams, key=lambda record: record.timestamp_ms)


def _newest_change(directory: str) -> tuple[int, int]:
    """Changes whenever a file does; many times cheaper than opening a node."""
    newest = total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(os.path.join(folder, name))
                newest = max(newest, found.st_mtime_ns)
                total += found.st_size
    return newest, total


def start_positions(
    backend: Backend, topic: str, partition: int | None, start: Start
) -> dict[int, int]:
    info = backend.topic(topic)
    if partition is not None and not 0 <= partition < len(info.partitions):
        raise UnknownPartition(
            f"topic {topic} has partitions 0 to {len(info.partitions) - 1}, not {partition}"
        )
    positions = {}
    for one in info.partitions:
        if partition is not None and one.partition != partition:
            continue
        if start == "earliest":
            offset = one.start_offset
        elif start == "latest":
            offset = one.last_stable_offset
        elif start[0] == "offset":
            offset = _clamped(int(start[1]), one)
        else:
            offset = backend.offset_at(topic, one.partition, int(start[1]))
        positions[one.partition] = offset
    return positions


def partition_records(
    backend: Backend, topic: str, partition: int, offset: int, topic_id: str | None = None
) -> Iterator[StreamRecord]:
    while True:
        records, next_offset = backend.read(
            topic, partition, offset, count_max=PAGE_RECORDS, topic_id=topic_id
        )
        yield from records
        # A page without records that moves on was all control batches or gaps.
        if not records and next_offset <= offset:
            return
        offset = next_offset


# As a member of a group.


def _print_as_group(
    place: Place,
    topic: str,
    group: str,
    start: Start | None,
    follow: bool,
    printer: Printer,
    connection: dict[str, Any],
) -> None:
    with (
        open_handle(place, **connection) as handle,
        handle.stream(topic, group=group, start=_reset_of(start), auto_commit=None) as stream,
    ):
        if start is not None:
            for one in handle.topic(topic).partitions:
                stream.seek(_position(start, one), partition=one.partition)
        while not printer.is_done:
            records = wait_in_slices(
                lambda wait: stream.poll(max=printer.room(), wait=wait), None if follow else 0
            )
            if not records:
                break
            for record in records:
                printer.write(_stored(record))
            flush_lines()
            stream.commit()


def _reset_of(start: Start | None) -> str:
    """Where a partition without a cursor begins."""
    return "latest" if start == "latest" else "earliest"


def _position(start: Start, one: PartitionInfo) -> str | int | datetime:
    if isinstance(start, str):
        return start
    kind, number = start
    if kind == "time":
        return datetime.fromtimestamp(number / 1000, UTC)
    return _clamped(number, one)


def _clamped(offset: int, one: PartitionInfo) -> int:
    """Several partitions share one number, which need not lie in all of them."""
    return min(max(offset, one.start_offset), one.high_watermark)


def _stored(record: Record[Any]) -> StreamRecord:
    return StreamRecord(
        record.topic,
        record.partition,
        record.offset,
        _timestamp_ms(record),
        record.key,
        record.raw,
        record.all_headers,
    )


def _timestamp_ms(record: Record[Any]) -> int:
    try:
        return round(record.timestamp.timestamp() * 1000)
    except OverflowError:
        # A foreign producer may write a time that no calendar holds.
        return -1
