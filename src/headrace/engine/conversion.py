"""What a topic makes of the batches that are published to it.

    timestamp_type            LogAppendTime: the batch gets the time of appending
    timestamp_after_max_ms    CreateTime: no record is of a later time than that from now;
                              the header says the latest
    timestamp_before_max_ms   CreateTime: nor of an earlier one; only the records say that
    compression               a batch of another codec is opened and compressed anew

Almost every topic takes any past time and leaves compression to its producers. There a
batch is appended as it came, after a look at its header.

To open a batch and compress it anew takes milliseconds for each megabyte, with gzip tens
of them. What is little is done on the spot; the rest is for a thread (`Unconverted`). What
the node makes of messages that come one by one, or over HTTP, is compressed on the spot, and
the rest of a call that brings very much stays plain.

Rejected: compressing when segments are rewritten, off the way of the publish. What is
asked for is the space, and until then there would be none saved.
"""

from __future__ import annotations

from typing import Final

from headrace.core import limits
from headrace.core.errors import CorruptBatch, InvalidArgument, RecordTooLarge
from headrace.core.ports import Buffer
from headrace.core.settings import TopicSettings
from headrace.engine.contents import Found, Heavy
from headrace.record.batch import HEADER_BYTES, BatchHeader, correct_latest
from headrace.record.bounds import may_hold_more
from headrace.record.builder import recompress_batch
from headrace.record.compression import Codec, HoldsTooMuch
from headrace.record.reader import read_block, read_raw_block
from headrace.record.record import NO_TIMESTAMP_MS
from headrace.record.record_limits import UnsoundRecords, check_block

# What one call converts on the spot, a millisecond or two: bytes as they are uncompressed,
# times what a codec costs beside the fastest, and records that are looked at.
SPOT_BYTES: Final = 512 * 1024
SPOT_RECORDS: Final = 2_000
_WEIGHTS: Final = {"gzip": 8, "zstd": 2}
# Of what the node itself makes of messages: there is no thread for that.
OWN_SPOT_BYTES: Final = 4 * SPOT_BYTES

CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class InvalidTimestamp(InvalidArgument):
    """A record is older or younger than its topic takes."""

    def __init__(self, why: str, settings: TopicSettings, now_ms: int) -> None:
        super().__init__(why)
        self._settings = settings
        self._now_ms = now_ms

    def is_about(self, timestamp_ms: int) -> bool:
        """Whether a record of this time is one that it is refused for."""
        try:
            check_time(self._settings, timestamp_ms, self._now_ms)
        except InvalidTimestamp:
            return True
        return False


def is_as_it_came(settings: TopicSettings) -> bool:
    """Whether batches are appended as they are, after a look at their headers."""
    return (
        settings.compression == "producer"
        and settings.timestamp_type == "CreateTime"
        and settings.timestamp_before_max_ms is None
    )


def latest_time_ms(settings: TopicSettings, now_ms: int) -> int:
    """The latest that a record may have."""
    if settings.timestamp_type != "CreateTime" or settings.timestamp_after_max_ms is None:
        return limits.TIMESTAMP_MS_MAX * 2 - 1
    return now_ms + settings.timestamp_after_max_ms


def check_time(settings: TopicSettings, timestamp_ms: int, now_ms: int) -> None:
    """InvalidTimestamp when a topic does not take a record of this time."""
    if settings.timestamp_type != "CreateTime" or timestamp_ms == NO_TIMESTAMP_MS:
        return
    after_ms, before_ms = settings.timestamp_after_max_ms, settings.timestamp_before_max_ms
    if after_ms is not None and timestamp_ms - now_ms > after_ms:
        raise InvalidTimestamp(
            f"a record is of {timestamp_ms}, {timestamp_ms - now_ms} ms from now, and this topic "
            f"takes {after_ms} at most (timestamp_after_max_ms, message.timestamp.after.max.ms)",
            settings,
            now_ms,
        )
    if before_ms is not None and now_ms - timestamp_ms > before_ms:
        raise InvalidTimestamp(
            f"a record is of {timestamp_ms}, {now_ms - timestamp_ms} ms ago, and this topic takes "
            f"{before_ms} at most (timestamp_before_max_ms, message.timestamp.before.max.ms)",
            settings,
            now_ms,
        )


def check_times(settings: TopicSettings, header: BatchHeader, now_ms: int) -> None:
    """InvalidTimestamp for a batch whose header says so already."""
    check_time(settings, header.max_timestamp_ms, now_ms)
    check_time(settings, header.base_timestamp_ms, now_ms)


def is_to_open(settings: TopicSettings, header: BatchHeader) -> bool:
    """Whether the batch has to be converted."""
    if settings.compression != "producer" and header.codec != CODECS[settings.compression]:
        return True
    is_time_of_client = settings.timestamp_type == "CreateTime"
    return is_time_of_client and settings.timestamp_before_max_ms is not None and header.count > 1


def convert(
    batch: bytearray | memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> bytearray | memoryview:
    """The batch as the topic wants it, in bytes of its own if it changed. InvalidTimestamp,
    RecordTooLarge; UnsoundRecords when it cannot be read."""
    try:
        block = read_block(batch, header)
    except HoldsTooMuch as error:
        raise RecordTooLarge(f"the batch cannot be opened: {error}") from error
    except CorruptBatch as error:
        raise UnsoundRecords(str(error)) from error
    # Those who looked into it before may have seen its beginning alone.
    latest_ms = check_block(block, header.count, 0, header.base_timestamp_ms)
    if latest_ms != header.max_timestamp_ms:
        correct_latest(batch, latest_ms)
        header = header._replace(max_timestamp_ms=latest_ms)
        check_times(settings, header, now_ms)
    if settings.timestamp_before_max_ms is not None and settings.timestamp_type == "CreateTime":
        for part in read_raw_block(block, header):
            for record in part:
                check_time(settings, record.timestamp_ms, now_ms)
    codec = CODECS.get(settings.compression)
    if codec is None or codec == header.codec:
        return batch
    return recompress_batch(block, header, codec)


class Spot:
    """What one call may still convert on the spot."""

    def __init__(self, most_bytes: int | None = None) -> None:
        """`most_bytes` is for batches that the node made: of those no record is looked at."""
        self._bytes = SPOT_BYTES if most_bytes is None else most_bytes
        self._records = SPOT_RECORDS if most_bytes is None else limits.BATCH_RECORDS_MAX

    def takes(self, batch: Buffer, header: BatchHeader, compression: str) -> bool:
        weight = _WEIGHTS.get(compression, 1)
        if header.size_bytes * weight > self._bytes or header.count > self._records:
            return False
        self._records -= header.count
        if not header.codec:
            self._bytes -= header.size_bytes * weight
            return True
        with memoryview(batch) as view, view[HEADER_BYTES : header.size_bytes] as records:
            if may_hold_more(header.codec, records, self._bytes // weight):
                return False
        # How much it is, only opening it tells.
        self._bytes = 0
        return True


class Unconverted(Heavy):
    """A batch whose conversion would take long, and what is known of it besides. `look`
    leaves it in `converted`."""

    def __init__(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        settings: TopicSettings,
        now_ms: int,
        found: Found,
    ) -> None:
        self._batch = batch
        self._header = header
        self._settings = settings
        self._now_ms = now_ms
        self._found = found

    def look(self) -> Found:
        self.converted = convert(self._batch, self._header, self._settings, self._now_ms)
        return self._found
