"""Scanning a partition for its first queue group, anywhere but where the broker is.

    owner       plan .                 . open the scanner with it
    anywhere           read the log

A topic that was only streamed was never opened, and holds whatever its producers sent.
What is found is of use while the log has only grown; else the scanner looks for itself.
"""

from __future__ import annotations

from headrace.core.errors import CorruptLog
from headrace.engine.partition import Partition
from headrace.engine.scan import Scan, scan_batch
from headrace.engine.state_reading import SegmentTwins
from headrace.engine.unreadable import Unreadable
from headrace.record import read_header


class Prescan:
    """Of what a log has now. `run` may be called anywhere, once."""

    def __init__(self, partition: Partition) -> None:
        log = partition.log
        self._partition = partition
        self._start = log.start_offset
        self._changes = log.segment_list.changes
        self._twins = SegmentTwins(log, log.start_offset, log.end_offset)
        self._is_by_key = partition.topic.settings.ordering == "key"
        self._has_attributes = partition.topic.source_id is None
        self._unreadable = Unreadable()
        self._scans: list[Scan] = []
        self._rot: CorruptLog | None = None

    def run(self) -> None:
        end = self._start
        try:
            for data in self._twins.pieces():
                position = 0
                while position < len(data):
                    header = read_header(data, position)
                    stop = position + header.size_bytes
                    if header.next_offset > end:
                        scan = scan_batch(
                            data[position:stop], header, end, attributes=self._has_attributes,
                            keys=self._is_by_key, unreadable=self._unreadable,
                        )  # fmt: skip
                        self._scans.append(scan)
                        end = scan.end
                    position = stop
        except CorruptLog as error:
            self._rot = error
        finally:
            self._twins.close()

    def keep(self) -> None:
        """Open the partition's scanner with what was found, unless it is open by now."""
        partition = self._partition
        log = partition.log
        if partition.scanner is not None or not partition.is_leader:
            return
        if self._rot is not None:
            # The group reads the other partitions.
            partition.stop(self._rot)
            return
        is_good = (log.start_offset, log.segment_list.changes) == (self._start, self._changes)
        partition.open_scanner(self._scans if is_good else ())
        if is_good:
            for noted in self._unreadable.take_untold():
                partition.records.unreadable.note(*noted)
