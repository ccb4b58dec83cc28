"""Ending: a decided transaction, on its way to every partition that it names.

owed --written--> there --both logs are safe--> settled
  '----the lead is lost----'                       a deleted topic is owed nothing
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.engine.coordinator.transaction import Transaction
from headrace.engine.partition import Partition


class Written(NamedTuple):
    """A marker in a partition, and the ends of its data and of its state behind it."""

    partition: Partition
    # In which it was written: in a later one nothing is known of it.
    reign: int
    end: int
    state_end: int

    @property
    def is_safe(self) -> bool:
        partition = self.partition
        return (
            partition.high_watermark >= self.end
            and partition.state_high_watermark >= self.state_end
        )


class Ending:
    __slots__ = ("is_blocked", "is_done", "is_lost", "left", "name", "transaction", "written")

    def __init__(self, name: str, transaction: Transaction) -> None:
        self.name = name
        self.transaction = transaction
        # Where a marker is owed, in the same order each time.
        self.left = sorted(transaction.partitions)
        # Markers that are not known to be safe yet.
        self.written: list[Written] = []
        self.is_done = False
        # The disk is full, a partition has rotted or another node leads it: it is tried
        # again later.
        self.is_blocked = False
        # Another node is the coordinator now, and goes on with it if it was decided.
        self.is_lost = False

    def look_again(self) -> None:
        """At markers that were written. Where the lead was lost before one was safe, it is
        not known to last, and owed again."""
        waiting = []
        for written in self.written:
            partition = written.partition
            if partition.is_deleted:
                continue
            if partition.reign != written.reign:
                self.left.append((partition.topic.id, partition.index))
            elif not written.is_safe:
                waiting.append(written)
        self.written = waiting
        self.left.sort()
