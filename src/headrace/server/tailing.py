"""A tail: a topic as it grows, one reader for every door that offers it.

    partition 0   ..........|->        from a position of its own
    partition 1   ....|->
    partition 2   |->                  made later: from its first record on

A position that is gone, because what was there was deleted, becomes the next that is
there. Partitions that are added while it runs are followed from their start, since all
of it came after the tail began. A topic that was deleted and made again is another one,
and ends the tail.

Rejected: a tail of its own for each door. What deletion and growth mean is the same for
all of them, and was forgotten in one or the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.calls import Face
from headrace.core.errors import OffsetOutOfRange
from headrace.core.values import StreamRecord
from headrace.server.loop_calls import Calls


class Tail:
    def __init__(
        self,
        calls: Calls,
        topic: str,
        topic_id: str,
        positions: Mapping[int, int],
        *,
        is_whole: bool = True,
    ) -> None:
        """Of some partitions alone where it is not whole: then it stays with them."""
        self._calls = calls
        self._topic = topic
        self._topic_id = topic_id
        self._is_whole = is_whole
        # The offset to go on from, by partition; whose turn is next is first.
        self.positions = dict(positions)

    async def read(self, count: int, bytes_max: int) -> list[StreamRecord]:
        """What is there now, from one partition; the next time from another. Empty
        when no partition has anything."""
        self._follow_growth()
        for partition in list(self.positions):
            records, after = await self._read(partition, count, bytes_max)
            # Behind the others, so that each has its turn.
            del self.positions[partition]
            self.positions[partition] = after
            if records:
                return records
        return []

    def _follow_growth(self) -> None:
        topic = self._calls.service.broker.topics.catalog.topics.get(self._topic)
        if self._is_whole and topic is not None and topic.id.hex() == self._topic_id:
            for index in range(len(self.positions), topic.partitions):
                self.positions[index] = 0

    async def _read(
        self, partition: int, count: int, bytes_max: int
    ) -> tuple[list[StreamRecord], int]:
        try:
            return await self._read_at(partition, self.positions[partition], count, bytes_max)
        except OffsetOutOfRange:
            info = await self._calls.run(Face.partition_info, self._topic, partition)
            at = min(self.positions[partition], info.high_watermark)
            return await self._read_at(partition, max(info.start_offset, at), count, bytes_max)

    async def _read_at(
        self, partition: int, offset: int, count: int, bytes_max: int
    ) -> tuple[list[StreamRecord], int]:
        return await self._calls.run(
            Face.read, self._topic, partition, offset,
            count_max=count, bytes_max=bytes_max, topic_id=self._topic_id,
        )  # fmt: skip
