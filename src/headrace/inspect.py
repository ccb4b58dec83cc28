"""Looking at a directory's files from outside, without opening it as a node.

    headrace.json             the format's version and the directory's id
    metadata/                 a log of catalog changes
    topics/<id>/<partition>/  a log of records, and
        producers             a note of who published up to where
        state/                a log of queue outcomes
        attributes/           what the queues know of the records, in checksummed blocks

Works beside a process that writes, and on a directory that no node can open any
more. Damage is an answer here and never an exception: whoever asks wants to know
all of it, and where it is. What a crash left unsynced at the end of a log is not
damage; recovery cuts it, and so does reading it from here.

Every folder with segments in it is a log, whoever it belongs to.

Rejected: finding the logs through the catalog. It is one of the files that may be
damaged, and then nothing else could be checked.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core import limits
from headrace.core.errors import CorruptBatch, CorruptLog, HeadraceError
from headrace.core.ports import Disk
from headrace.engine.catalog import Catalog
from headrace.engine.metadata import Metadata
from headrace.engine.state import decode_event
from headrace.log import Log, LogSettings, Problem, Progress
from headrace.log.checkpoint import SYNCED_NAME, SyncedFile, read_cleaned, read_start
from headrace.log.epochs import EPOCHS_NAME, Epochs
from headrace.log.index import OffsetIndex
from headrace.log.segment import LOG_SUFFIX, Segment, parse_base_offset
from headrace.log.segment_index import INDEX_SUFFIX, read_index
from headrace.platform.directory import FORMAT_FILE, check_format
from headrace.platform.disk import RealDisk
from headrace.record import BatchHeader, Record, check_batch, read_header, read_records
from headrace.record.batch import HEADER_BYTES

METADATA_FOLDER: Final = "metadata"
STATE_FOLDER: Final = "state"
ATTRIBUTES_FOLDER: Final = "attributes"
PRODUCERS_FILE: Final = "producers"

LOOKS: Final = 3
# A quick look reads so many batches of each segment, and a small log as a whole.
SAMPLES: Final = 8
WHOLE_BYTES: Final = 256 * 1024
# As docs/formats/segment.md has it.
EPOCH_ENTRY_BYTES: Final = 16
# Length and CRC32C of the body that follows.
BLOCK_FRAME: Final = struct.Struct(">II")

# How errors of a log begin.
_PLACED: Final = re.compile(r"(?P<file>\S+) at byte (?P<position>\d+): (?P<reason>.*)")
_BATCH_PLACE: Final = re.compile(r"^(batch(?: header)?) at byte \d+")
_CHUNK_BYTES: Final = 1024 * 1024


class Damage(NamedTuple):
    """Something that is not as it was written."""

    file: str
    # None when the whole file or folder is meant.
    position: int | None
    reason: str
    # Whether anything is lost. False for what is rebuilt when it is met.
    is_data: bool


class Checked(NamedTuple):
    """So much more of the log's files was read and is as it was written."""

    folder: str
    size_bytes: int
    batches: int


class Batch(NamedTuple):
    """A batch where it lies in its file, or why there is none."""

    file: str
    position: int
    header: BatchHeader | None
    records: list[Record]
    fault: str | None


def read_catalog(root: str, now_ms: int) -> Catalog:
    """The topics and groups as of now; CorruptLog when it cannot be read."""
    metadata = Metadata(RealDisk(root), now_ms, read_only=True)
    try:
        return metadata.catalog
    finally:
        metadata.log.close()


def verify_format(root: str) -> Damage | None:
    """Whether the directory says that it is ours, in a version that we know."""
    try:
        check_format(RealDisk(root))
    except (HeadraceError, OSError) as error:
        return _damage(error, FORMAT_FILE)
    return None


def missing_partitions(root: str, catalog: Catalog) -> Iterator[Damage]:
    """A partition has a folder from the day on which its topic was made."""
    for topic in catalog.topics.values():
        for partition in range(topic.partitions):
            folder = f"{topic.folder}/{partition}"
            if not os.path.isdir(os.path.join(root, folder)):
                yield Damage(folder, None, "the partition's folder is missing", True)


def log_folders(root: str) -> list[str]:
    """Every folder that holds a log, relative to `root`."""
    found = []
    for folder, folders, names in os.walk(root):
        # What a repair put aside is known to be damaged.
        folders[:] = [each for each in folders if not each.startswith(f"{STATE_FOLDER}.")]
        if any(parse_base_offset(name) is not None for name in names):
            found.append(os.path.relpath(folder, root).replace(os.sep, "/"))
    return sorted(found)


def size_of_logs(root: str, folders: list[str]) -> int:
    """What `verify_log` will read of these, for a progress bar."""
    total = 0
    for folder in folders:
        for name in RealDisk(root).list(folder):
            if name.endswith(LOG_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    total += os.path.getsize(os.path.join(root, folder, name))
    return total


def verify_log(
    root: str, folder: str, now_ms: int, *, quick: bool = False
) -> Iterator[Damage | Checked]:
    """Read all of one log, and say what is wrong with it; `quick`: some batches of each
    segment, and what its index says of them.

    A writer may roll, delete or compact segments under our eyes, and what is
    read then does not fit together. Damage stays where it is, so only what is
    found again by another look is reported.
    """
    look = _glance_at if quick else _look_at
    found: list[Damage] = []
    for result in look(root, folder, now_ms):
        if isinstance(result, Damage):
            found.append(result)
        else:
            yield result
    for _ in range(LOOKS - 1):
        if found:
            again = {
                (result.file, result.position)
                for result in look(root, folder, now_ms)
                if isinstance(result, Damage)
            }
            found = [one for one in found if (one.file, one.position) in again]
    yield from found


def _look_at(root: str, folder: str, now_ms: int) -> Iterator[Damage | Checked]:
    disk = RealDisk(root)
    try:
        log = Log.open(disk, folder, LogSettings(), now_ms, read_only=True)
    except (HeadraceError, OSError) as error:
        yield _damage(error, folder)
        return
    try:
        yield from _verify_start(disk, folder)
        yield from _verify_batches(log)
        yield from _verify_small_files(disk, folder)
        if folder == METADATA_FOLDER:
            yield from _verify_catalog(root, now_ms)
        elif folder.endswith(f"/{STATE_FOLDER}"):
            yield from _verify_events(root, folder, log.end_offset)
        else:
            yield from _verify_producers(disk, folder)
            yield from _verify_attributes(disk, f"{folder}/{ATTRIBUTES_FOLDER}")
    except (HeadraceError, OSError) as error:
        # Such as a file that went away, or a sector that cannot be read.
        yield _damage(error, folder)
    finally:
        log.close()


def _glance_at(root: str, folder: str, now_ms: int) -> Iterator[Damage | Checked]:
    disk = RealDisk(root)
    try:
        log = Log.open(disk, folder, LogSettings(), now_ms, read_only=True)
    except (HeadraceError, OSError) as error:
        yield _damage(error, folder)
        return
    if folder == METADATA_FOLDER or log.size_bytes <= WHOLE_BYTES:
        log.close()
        yield from _look_at(root, folder, now_ms)
        return
    try:
        yield from _verify_start(disk, folder)
        for segment in log.segment_list:
            yield from _sample(disk, folder, segment)
        yield from _verify_small_files(disk, folder)
    except (HeadraceError, OSError) as error:
        yield _damage(error, folder)
    finally:
        log.close()


def _sample(disk: Disk, folder: str, segment: Segment) -> Iterator[Damage | Checked]:
    """The first batch, the last that the index names, and some between them."""
    index_path = segment.path + INDEX_SUFFIX
    index = OffsetIndex.decode(read_index(disk, index_path))
    if index is None:
        yield Damage(index_path, 0, "is not an index", False)
        index = OffsetIndex()
    size = batches = 0
    for position, last_offset in _places(segment, index):
        try:
            header = _batch_at(segment, position)
        except CorruptBatch as error:
            if last_offset is None or _is_boundary(segment, position):
                yield Damage(segment.log_path, position, _without_place(str(error)), True)
            else:
                yield Damage(index_path, None, f"names no batch at byte {position}", False)
            continue
        if last_offset is not None and header.last_offset != last_offset:
            reason = f"names offset {last_offset} at byte {position}, where {header.last_offset} is"
            yield Damage(index_path, None, reason, False)
        size += header.size_bytes
        batches += 1
    yield Checked(folder, size, batches)


def _places(segment: Segment, index: OffsetIndex) -> Iterator[tuple[int, int | None]]:
    """Where to look: a position, and the last offset of the batch there if the index
    says it. What it says of bytes behind the end was never synced, as they were not."""
    if segment.size_bytes:
        yield 0, None
    named = [number for number in range(len(index)) if index.positions[number] < segment.size_bytes]
    chosen = named[:: max(1, len(named) // SAMPLES)][: SAMPLES - 1]
    for number in dict.fromkeys([*chosen, *named[-1:]] if SAMPLES > 1 else ()):
        yield index.positions[number], segment.base_offset + index.offsets[number]


def _batch_at(segment: Segment, position: int) -> BatchHeader:
    """Checked; CorruptBatch when there is none."""
    needed = read_header(segment.file().read(HEADER_BYTES, position)).size_bytes
    if needed > segment.size_bytes - position:
        raise CorruptBatch(f"batch has {needed} bytes, more than are left")
    return check_batch(segment.file().read(needed, position))


def _is_boundary(segment: Segment, wanted: int) -> bool:
    """Whether a batch begins there, by walking from the front: an index that is wrong
    must not make the log look so."""
    position = 0
    while position < wanted:
        try:
            position += read_header(segment.file().read(HEADER_BYTES, position)).size_bytes
        except CorruptBatch:
            return True
    return position == wanted


def dump_log(root: str, folder: str) -> Iterator[Batch]:
    """Every batch of a log, in order, by the bytes of its files alone. At a bad
    one the file is left: nothing says where the next one starts."""
    names = sorted(
        name
        for name in os.listdir(os.path.join(root, folder))
        if parse_base_offset(name) is not None
    )
    for name in names:
        yield from dump_file(os.path.join(root, folder, name))


def dump_file(path: str) -> Iterator[Batch]:
    """Every batch of one `.log` file."""
    size = os.path.getsize(path)
    position = 0
    with open(path, "rb") as file:
        while position < size:
            file.seek(position)
            data = file.read(_CHUNK_BYTES)
            needed = _size_of_first(data)
            if len(data) < needed <= size - position:
                data += file.read(needed - len(data))
            batches, used = _batches_in(path, data, position)
            yield from batches
            if batches[-1].fault is not None:
                return
            position += used


def _batches_in(path: str, data: bytes, start: int) -> tuple[list[Batch], int]:
    """At least one batch, good or bad, and how many bytes the good ones fill.
    One that is cut off behind others is left for the next look."""
    batches: list[Batch] = []
    at = 0
    while at < len(data):
        try:
            header = check_batch(data, at)
            batch = data[at : at + header.size_bytes]
            records = read_records(batch, header, limits.DECOMPRESSED_BYTES_ALONE_MAX)
        except CorruptBatch as error:
            if not batches:
                batches.append(Batch(path, start, None, [], _without_place(str(error))))
            break
        batches.append(Batch(path, start + at, header, records, None))
        at += header.size_bytes
    return batches, at


def _size_of_first(data: bytes) -> int:
    try:
        return read_header(data).size_bytes
    except CorruptBatch:
        return 0


def _verify_start(disk: Disk, folder: str) -> Iterator[Damage]:
    """Where a log starts is written down before anything in front is removed."""
    start = read_start(disk, folder)
    for name in disk.list(folder):
        base_offset = parse_base_offset(name)
        if base_offset is None:
            continue
        if base_offset > start:
            reason = f"offsets from {start} on are missing: a file in front of it is gone"
            yield Damage(f"{folder}/{name}", 0, reason, True)
        # Names are sorted, and the first segment is the one that counts.
        return


def _verify_batches(log: Log) -> Iterator[Damage | Checked]:
    file, position, batches = "", 0, 0
    try:
        for found in log.verify():
            match found:
                case Problem():
                    yield Damage(
                        found.file, found.position, _without_place(found.reason), found.is_data
                    )
                case Progress():
                    if found.file != file:
                        file, position, batches = found.file, 0, 0
                    yield Checked(log.path, found.position - position, found.batches - batches)
                    position, batches = found.position, found.batches
    except (HeadraceError, OSError) as error:
        # Such as a sector that the disk cannot read any more.
        yield _damage(error, file or log.path, position)


def _verify_small_files(disk: Disk, folder: str) -> Iterator[Damage]:
    for name, read in (("start", read_start), ("cleaned", read_cleaned)):
        try:
            read(disk, folder)
        except (HeadraceError, OSError) as error:
            yield _damage(error, f"{folder}/{name}")
    if disk.exists(f"{folder}/{SYNCED_NAME}") and SyncedFile(disk, folder).read() is None:
        yield Damage(f"{folder}/{SYNCED_NAME}", None, "neither slot can be believed", False)
    if disk.exists(f"{folder}/{EPOCHS_NAME}"):
        epochs = Epochs(disk, folder, read_only=True)
        epochs.load()
        size = len(_content(disk, f"{folder}/{EPOCHS_NAME}"))
        good = len(epochs.entries) * EPOCH_ENTRY_BYTES
        if good < size:
            yield Damage(f"{folder}/{EPOCHS_NAME}", good, "an entry is damaged", False)


def _verify_events(root: str, folder: str, end_offset: int) -> Iterator[Damage]:
    """A state record that cannot be read stops its partition as rot does."""
    for batch in dump_log(root, folder):
        if batch.header is None or batch.header.base_offset >= end_offset:
            # Bad batches are reported by the log itself, and what lies behind
            # its end was never acknowledged.
            return
        for record in () if batch.header.is_control else batch.records:
            try:
                decode_event(record.value or b"")
            except CorruptLog as error:
                reason = f"offset {record.offset}: {error}"
                yield Damage(os.path.relpath(batch.file, root), batch.position, reason, True)


def _verify_catalog(root: str, now_ms: int) -> Iterator[Damage]:
    try:
        read_catalog(root, now_ms)
    except (HeadraceError, OSError, LookupError) as error:
        yield _damage(error, METADATA_FOLDER)


def _verify_producers(disk: Disk, folder: str) -> Iterator[Damage]:
    path = f"{folder}/{PRODUCERS_FILE}"
    if not disk.exists(path):
        return
    content = _content(disk, path)
    # An empty one is just being written, or was when the process ended.
    if content and crc32c(content[4:]) != int.from_bytes(content[:4], "big"):
        yield Damage(path, 0, "its checksum is wrong", False)


def _verify_attributes(disk: Disk, folder: str) -> Iterator[Damage]:
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        data = _content(disk, path)
        position = 0
        while position < len(data):
            body = position + BLOCK_FRAME.size
            if body > len(data):
                yield Damage(path, position, "a block is cut off", False)
                break
            length, crc = BLOCK_FRAME.unpack_from(data, position)
            if body + length > len(data) or crc32c(data[body : body + length]) != crc:
                yield Damage(path, position, "a block is cut off or its checksum is wrong", False)
                break
            position = body + length


def _content(disk: Disk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def _damage(error: Exception, file: str, position: int | None = None) -> Damage:
    """Where the error itself says it is, or else in `file` at `position`."""
    text = " ".join(str(error).split()) or type(error).__name__
    placed = _PLACED.fullmatch(text)
    if placed is None:
        return Damage(file, position, text, True)
    return Damage(placed["file"], int(placed["position"]), _without_place(placed["reason"]), True)


def _without_place(text: str) -> str:
    """A batch's own position counts from where reading began, not from the
    start of the file."""
    return _BATCH_PLACE.sub(r"\1", " ".join(text.split()))
