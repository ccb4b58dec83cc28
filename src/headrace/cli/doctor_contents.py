"""What `headrace doctor` asks of batches: whether they can be opened.

A batch may be as it was written, by its checksum, and still hold nonsense, or more than
is opened here. Its producer wrote it so; a version of before may have taken it. A node
says which it has met; of a directory they are looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from headrace.cli.findings import Finding, Outcome, shortened
from headrace.core.errors import CorruptBatch, HeadraceError
from headrace.core.overview_values import UnreadableBatch
from headrace.engine.catalog import Catalog
from headrace.inspect import WHOLE_BYTES
from headrace.log import Log, LogSettings
from headrace.platform.disk import RealDisk
from headrace.record import split_batches
from headrace.record.reader import read_parts

CHUNK_BYTES = 1024 * 1024
# Of each segment of a log that is not read as a whole.
SAMPLE_BYTES = 64 * 1024


def check_contents(found: Sequence[UnreadableBatch], looked_at: str) -> Outcome:
    return looked_at, shortened(
        [
            Finding(
                "warn",
                f"{each.topic}:{each.partition}",
                f"the batch of {_offsets(each)} cannot be opened: {each.why}",
                "queues, streams and searches skip it; only Kafka's own clients get it, as it is",
                "let its producer send smaller batches, or mend it; read it with a Kafka consumer "
                "and publish it again",
            )
            for each in found
        ]
    )


def _offsets(batch: UnreadableBatch) -> str:
    if batch.end == batch.start + 1:
        return f"offset {batch.start}"
    return f"offsets {batch.start} to {batch.end - 1}"


def unreadable_in(
    root: str, catalog: Catalog | None, now_ms: int, *, full: bool
) -> Iterator[UnreadableBatch]:
    """All of them; or, where a log is large, those at the beginning of each segment."""
    for topic in catalog.topics.values() if catalog is not None else ():
        for partition in range(topic.partitions):
            try:
                log = Log.open(
                    RealDisk(root), f"{topic.folder}/{partition}", LogSettings(), now_ms,
                    read_only=True,
                )  # fmt: skip
                with closing(log):
                    for start, end, why in _unopened(log, full=full):
                        yield UnreadableBatch(topic.name, partition, start, end, why)
            except (HeadraceError, OSError):
                # Damaged, which is for the check of segments to say, or deleted meanwhile.
                continue


def _unopened(log: Log, *, full: bool) -> Iterator[tuple[int, int, str]]:
    for data in _chunks(log, full=full):
        for position, header in split_batches(data):
            try:
                for _ in read_parts(data[position : position + header.size_bytes], header):
                    pass
            except CorruptBatch as error:
                yield header.base_offset, header.next_offset, str(error)


def _chunks(log: Log, *, full: bool) -> Iterable[memoryview]:
    offset = log.start_offset
    if full or log.size_bytes <= WHOLE_BYTES:
        while offset < log.end_offset:
            data, offset = log.read_to(offset, CHUNK_BYTES)
            if not data:
                return
            yield memoryview(data)
        return
    for segment in log.segment_list:
        begin = max(segment.base_offset, offset)
        if begin < log.end_offset:
            yield memoryview(log.read(begin, SAMPLE_BYTES))
