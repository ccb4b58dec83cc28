"""What a node keeps for Kafka clients between their requests, in one budget.

    groups           what members say of themselves     refused: come again
    share sessions   the partitions of each             refused: come again
    waiting          fetches that wait for data         answered at once, with nothing
    fetch sessions   the partitions of each             forgotten, the longest idle first

When the budget is full, fetch sessions go before anything is refused: a client whose
session is forgotten says everything once more, and loses nothing. Fetches that wait have
a quarter of it beyond what the others may fill: clients that are answered at once ask
again at once, and nobody should be able to make all of them do so.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.coordinator.budget import GroupBudget
from headrace.server.kafka.fetch_session import FetchSessions

# About what one takes in memory, and what each partition in it takes.
SHARE_SESSION_BYTES = 1_024
SHARE_PLACE_BYTES = 256
WAITING_BYTES = 4_096
WAITING_PARTITION_BYTES = 1_024


class Held:
    def __init__(self, groups: GroupBudget, new_id: Callable[[], int]) -> None:
        self._groups = groups
        self.fetch_sessions = FetchSessions(new_id, has_room=self.has_room)
        self.share_sessions_bytes = 0
        self.waiting_bytes = 0

    @property
    def size_bytes(self) -> int:
        return (
            self._groups.size_bytes
            + self.fetch_sessions.size_bytes
            + self.share_sessions_bytes
            + max(0, self.waiting_bytes - self._own_bytes)
        )

    @property
    def _own_bytes(self) -> int:
        """What fetches that wait have for themselves."""
        return self._groups.bytes_max // 4

    def has_room(self, more: int) -> bool:
        """Whether so much more may be kept, once fetch sessions have made room."""
        while self.size_bytes + more > self._groups.bytes_max:
            if not self.fetch_sessions.forget_oldest():
                return False
        return True

    def wait(self, partitions: int) -> int:
        """What a fetch of so many partitions takes while it waits, to be given back by
        `end_wait`; 0 when it may not."""
        size = WAITING_BYTES + partitions * WAITING_PARTITION_BYTES
        if self.waiting_bytes + size > self._own_bytes and not self.has_room(size):
            return 0
        self.waiting_bytes += size
        return size

    def end_wait(self, size: int) -> None:
        self.waiting_bytes -= size

    def measure(self) -> dict[str, Callable[[], int]]:
        """What is kept, by the name that it has in the metrics."""
        return {
            "groups": lambda: self._groups.size_bytes,
            "fetch_sessions": lambda: self.fetch_sessions.size_bytes,
            "share_sessions": lambda: self.share_sessions_bytes,
            "waiting": lambda: self.waiting_bytes,
        }
