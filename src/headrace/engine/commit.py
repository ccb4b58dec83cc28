"""What has to be on disk before a call may be answered."""

from __future__ import annotations

from collections.abc import Collection

from headrace.engine.metadata import Metadata
from headrace.engine.move import Move
from headrace.engine.partition import Partition
from headrace.engine.transactions import Ending


class Commit:
    """Collected while a call is carried out; done when all of it is safe."""

    __slots__ = ("_metadata", "_metadata_end", "data", "endings", "moves", "published", "state")

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._metadata_end = 0
        self.data: list[tuple[Partition, int]] = []
        self.state: list[tuple[Partition, int]] = []
        self.moves: list[Move] = []
        # What was published: where, how many messages, how many bytes.
        self.published: list[tuple[Partition, int, int]] = []
        # Transactions whose markers are awaited.
        self.endings: list[Ending] = []

    def partitions(self) -> Collection[Partition]:
        """Each once."""
        if len(self.data) == 1 and not self.state:
            return (self.data[0][0],)
        found = set()
        for partition, _ in self.data:
            found.add(partition)
        for partition, _ in self.state:
            found.add(partition)
        return found

    def seal(self) -> None:
        """Whatever the catalog said while the call ran has to last as well."""
        self._metadata_end = self._metadata.log.end_offset

    def is_done(self) -> bool:
        # In plain loops: it is asked several times for each call, and most have one entry.
        # Of a partition without a leader nothing more will come: its topic is gone.
        for partition, end in self.data:
            if partition.high_watermark < end and partition.is_leader:
                return False
        for partition, end in self.state:
            if partition.state_end < end and partition.is_leader:
                return False
        for move in self.moves:
            if not move.is_done and not move.is_blocked:
                return False
        for ending in self.endings:
            if not ending.is_done and not ending.is_blocked:
                return False
        return self._metadata.log.synced_end >= self._metadata_end
