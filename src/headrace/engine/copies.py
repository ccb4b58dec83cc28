"""Copies: what moves that a crash cut short have in their target already.

    target    | ... | copies of move 1, of move 2 | others' records | copies of move 3 | ...
              ^ where it ended when the moves were intended                            ^ now

Moves that were intended together begin at one place, so the log is gone through once for all
of them, a part at a time. What is not found is copied by the moves themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from headrace.core.errors import CorruptBatch
from headrace.core.ports import Buffer
from headrace.engine import dead_letter
from headrace.engine.partition import Partition
from headrace.engine.records import PART_BYTES, iterate_batches
from headrace.engine.runs import Runs, merged, pairs
from headrace.record import BatchHeader, BatchParts, read_header
from headrace.record.attribute_headers import ORIGIN

_ORIGIN = ORIGIN.encode()
# By the topic, partition and group that a message was moved from, and the move's number.
MoveKey = tuple[bytes, int, int, int]


class Copies:
    def __init__(self, target: Partition, start: int, moves: Sequence[MoveKey]) -> None:
        self.target = target
        self._next = start
        # What is copied from now on is not of these moves.
        self._end = target.log.end_offset
        # The messages of each move whose copies were met, in the order of the log.
        self.found: dict[MoveKey, Runs] = {move: [] for move in moves}
        self._work = self._run()
        self.is_over = False

    def step(self, most_bytes: int) -> int:
        """Go through about so many bytes of the log, and how many it were. CorruptLog where
        they cannot be read."""
        gone_over = 0
        for size in self._work:
            gone_over += size
            if gone_over >= most_bytes:
                return gone_over
        self.is_over = True
        return gone_over

    def _run(self) -> Iterator[int]:
        log = self.target.log
        while (start := max(self._next, log.start_offset)) < self._end:
            for data, position in iterate_batches(log, start, self._end):
                header = read_header(data, position)
                batch = data[position : position + header.size_bytes]
                yield from self._look_into(batch, header)
                self._next = header.next_offset
                if self._next < log.start_offset:
                    # Meanwhile the log was cut at its start.
                    break
            else:
                return

    def _look_into(self, batch: Buffer, header: BatchHeader) -> Iterator[int]:
        yield header.size_bytes
        # Copies are written as they are, by nobody's producer.
        if header.codec or header.is_control or header.producer_id >= 0:
            return
        if _ORIGIN not in bytes(batch):
            return
        # Behind a good checksum nonsense is its producer's, and no copy.
        with contextlib.suppress(CorruptBatch):
            parts = BatchParts(batch, header)
            while not parts.is_over:
                for record in parts.read(cost_max=PART_BYTES):
                    origin = dead_letter.read_origin(record)
                    if origin is not None and origin[:4] in self.found:
                        _add(self.found[origin[:4]], origin.offset)
                yield parts.cost


def ascending(found: Runs) -> Runs:
    """What was found, as runs: after several crashes it may not be in order."""
    return merged([place for pair in sorted(set(pairs(found))) for place in pair])


def _add(runs: Runs, offset: int) -> None:
    if runs and runs[-1] == offset:
        runs[-1] += 1
    else:
        runs += (offset, offset + 1)
