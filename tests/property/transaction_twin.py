"""The naive twin of transactions: lists of batches, and a coordinator that forgets nothing.

It knows what was written in which order and what was decided, and finds out by loops
over all of it what a reader of committed records has to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PLAIN = -1


@dataclass
class Entry:
    """One batch of one partition, as it was handed to the log."""

    offset: int
    producer: int
    values: tuple[bytes, ...]
    # None for records; for a marker, what it decides.
    commit: bool | None = None

    @property
    def end(self) -> int:
        return self.offset + (len(self.values) or 1)


@dataclass
class Transaction:
    """What the coordinator knows of a producer's transaction."""

    epoch: int
    partitions: set[int] = field(default_factory=set)
    state: Literal["open", "prepared", "complete"] = "complete"
    commit: bool = False
    # The epoch that the markers have.
    marker_epoch: int = 0
    # Partitions whose markers are still to be sent.
    unsent: set[int] = field(default_factory=set)
    # Something of it was lost: nobody may commit it any more.
    is_doomed: bool = False
    # Values of the messages that it acks, with the partition and the end of its state
    # log behind the ack.
    acks: dict[bytes, tuple[int, int]] = field(default_factory=dict)


class Twin:
    def __init__(self, partitions: int, producers: int) -> None:
        self.entries: list[list[Entry]] = [[] for _ in range(partitions)]
        self.transactions = [Transaction(0) for _ in range(producers)]

    def lose(self, partition: int, end: int) -> None:
        """A crash took everything from `end` on."""
        entries = self.entries[partition]
        while entries and entries[-1].offset >= end:
            lost = entries.pop()
            if lost.producer != PLAIN and lost.commit is None:
                self.transactions[lost.producer].is_doomed = True
        # A batch is there whole or not at all.
        assert not entries or entries[-1].end <= end

    def lose_acks(self, safe: list[int]) -> None:
        """A crash took, or may have taken, acks that were not safe."""
        for transaction in self.transactions:
            lost = [value for value, (index, end) in transaction.acks.items() if end > safe[index]]
            if lost and transaction.state == "open":
                transaction.is_doomed = True
            for value in lost:
                del transaction.acks[value]

    def is_held(self, value: bytes) -> bool:
        """Whether a transaction that is open, or will be committed, acks it."""
        return any(
            value in transaction.acks
            and (transaction.state == "open" or transaction.commit)
            and transaction.state != "complete"
            for transaction in self.transactions
        )

    def stable_end(self, partition: int, high_watermark: int) -> int:
        first: dict[int, int] = {}
        for entry in self.entries[partition]:
            if entry.producer == PLAIN:
                continue
            if entry.commit is None:
                first.setdefault(entry.producer, entry.offset)
            elif entry.offset < high_watermark:
                first.pop(entry.producer, None)
        return min([high_watermark, *first.values()])

    def committed(self, partition: int, start: int, end: int) -> list[tuple[int, bytes]]:
        """Offsets and values of what a reader has to see in this range."""
        found = []
        entries = self.entries[partition]
        for number, entry in enumerate(entries):
            if entry.commit is not None or not self._is_committed(entries, number):
                continue
            for index, value in enumerate(entry.values):
                if start <= entry.offset + index < end:
                    found.append((entry.offset + index, value))
        return found

    @staticmethod
    def _is_committed(entries: list[Entry], number: int) -> bool:
        """The next marker of its producer decides."""
        producer = entries[number].producer
        if producer == PLAIN:
            return True
        for entry in entries[number:]:
            if entry.producer == producer and entry.commit is not None:
                return entry.commit
        return False
