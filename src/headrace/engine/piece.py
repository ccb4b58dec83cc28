"""A piece: what one step reads of the messages that are moved.

A million messages may expire at once, or few messages be a gigabyte. They are read, copied
and let go of in pieces, so that memory is bounded and others have their turn.
"""

from __future__ import annotations

from headrace.core import limits
from headrace.engine.partition import Partition
from headrace.engine.records import Allowance
from headrace.engine.runs import Runs, count_of, first_of
from headrace.record import Record


class Piece:
    def __init__(self) -> None:
        self._allowance = Allowance(limits.MOVE_BYTES_MAX, limits.LEASE_OPENED_BYTES_MAX)
        self._messages = limits.MOVE_MESSAGES_MAX

    @property
    def is_spent(self) -> bool:
        return self._allowance.is_spent or self._messages <= 0

    def read(self, partition: Partition, runs: Runs) -> tuple[list[Record], Runs]:
        """The first records of these runs, as far as the piece goes, and the runs that were
        gone over. Of a piece that nothing was read of, it is one record at least."""
        wanted = first_of(runs, self._messages)
        # Scattered: nobody reads them again soon, so no block of them is kept.
        records, gone = partition.records.read_some(
            wanted, partition.high_watermark, self._allowance, is_scattered=True
        )
        self._messages -= count_of(gone)
        return records, gone
