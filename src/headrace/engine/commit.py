"""What has to be on disk before a call may be answered."""

from __future__ import annotations

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

    def partitions(self) -> set[Partition]:
        return {partition for partition, _ in self.data} | {
            partition for partition, _ in self.state
        }

    def seal(self) -> None:
        """Whatever the catalog said while the call ran has to last as well."""
        self._metadata_end = self._metadata.log.end_offset

    def is_done(self) -> bool:
        # Of a partition without a leader nothing more will come: its topic is gone.
        return (
            all(p.high_watermark >= end or not p.is_leader for p, end in self.data)
            and all(p.state_end >= end or not p.is_leader for p, end in self.state)
            and all(move.is_done or move.is_blocked for move in self.moves)
            and all(ending.is_done or ending.is_blocked for ending in self.endings)
            and self._metadata.log.synced_end >= self._metadata_end
        )
