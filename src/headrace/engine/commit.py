"""What has to be on disk before a call may be answered.

    done       all of it is safe
    failed     part of it never will be, as far as this node knows: its topic was deleted, or
               it was written in a reign that is over (`leadership`), so another node decides
               what becomes of it
    neither    the disk is still at work

Whoever drives it asks `is_done`, and where that is not so `failure`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headrace.core.errors import FencedLeader, HeadraceError, UnknownTopic
from headrace.engine.ending import Ending
from headrace.engine.metadata import Metadata
from headrace.engine.move import Move
from headrace.engine.partition import Partition


class Commit:
    """Collected while a call is carried out; done when all of it is safe."""

    __slots__ = (
        "_metadata", "_metadata_end", "_reign", "data", "endings", "moves", "published", "state",
    )  # fmt: skip

    def __init__(self, metadata: Metadata) -> None:
        """To be made before anything is written that it waits for."""
        self._metadata = metadata
        self._metadata_end = 0
        # What is written from now on is written in this reign or an earlier one.
        self._reign = metadata.reign
        # Ends of logs and of state logs that the call wrote.
        self.data: list[tuple[Partition, int]] = []
        self.state: list[tuple[Partition, int]] = []
        self.moves: list[Move] = []
        # What was published: where, how many messages, how many bytes.
        self.published: list[tuple[Partition, int, int]] = []
        # Transactions whose markers are awaited.
        self.endings: list[Ending] = []

    def partitions(self) -> Collection[Partition]:
        """Each once."""
        if len(self.data) == 1 and not self.state and not self.moves:
            return (self.data[0][0],)
        found = set()
        for partition, _ in self.data:
            found.add(partition)
        for partition, _ in self.state:
            found.add(partition)
        for move in self.moves:
            found.add(move.source)
        return found

    def wait_for_moves(self, moves: Iterable[Move]) -> None:
        """Also for those that others began. Where their topic is deleted they are over, and
        once another node leads their source it goes on with them: no failure of this call."""
        self.moves += moves

    def seal(self) -> None:
        """Whatever the catalog said while the call ran has to last as well."""
        self._metadata_end = self._metadata.log.end_offset

    def is_done(self) -> bool:
        # In plain loops: it is asked several times for each call, and most have one entry.
        # In a later reign than ours the offset may be that of something else; a deleted
        # partition is in none.
        reign = self._reign
        for partition, end in self.data:
            if partition.high_watermark < end or (
                partition.reign > reign and not partition.is_deleted
            ):
                return False
        for partition, end in self.state:
            if partition.state_high_watermark < end or (
                partition.reign > reign and not partition.is_deleted
            ):
                return False
        for move in self.moves:
            if move.is_done or move.is_lost:
                continue
            if not move.is_blocked or move.source.state_high_watermark < move.intent_end:
                return False
        for ending in self.endings:
            if ending.is_lost or not (ending.is_done or ending.is_blocked):
                return False
        return self._metadata.log.synced_end >= self._metadata_end

    def failure(self) -> HeadraceError | None:
        """Why this will never be done, of one that is not done; None while it can be."""
        for partition, end in self.data:
            if partition.reign > self._reign:
                if not partition.is_deleted:
                    return _fenced(partition)
                if partition.high_watermark < end:
                    return _deleted(partition)
        for partition, end in self.state:
            if partition.reign > self._reign:
                if not partition.is_deleted:
                    return _fenced(partition)
                if partition.state_high_watermark < end:
                    return _deleted(partition)
        if any(ending.is_lost for ending in self.endings):
            return FencedLeader(
                "this node lost the lead of the transaction's coordinator before its end was "
                "known to be safe; whether it was decided is not known, so try again"
            )
        return None

    def forget(self, partitions: Collection[Partition]) -> None:
        """What was written there need not last: the call itself deletes their topic."""
        self.data = [each for each in self.data if each[0] not in partitions]
        self.state = [each for each in self.state if each[0] not in partitions]


def _fenced(partition: Partition) -> FencedLeader:
    return FencedLeader(
        f"this node lost the lead of {partition.topic.name}:{partition.index} before "
        "the call was safe there; whether it took effect is not known, so try again"
    )


def _deleted(partition: Partition) -> UnknownTopic:
    return UnknownTopic(f"topic {partition.topic.name!r} was deleted before this was on disk")
