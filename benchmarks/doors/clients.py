"""What every client can do, and how much of it at once.

A client is given the address of its system, and a topic, queue or stream of its own.
Each call is answered when its system has promised to keep what it was given; a client
that can only hope says so in `promise`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

BODY = b"x" * 100


class Client(ABC):
    """One load generator's view of a system; its calls run side by side, one for each
    worker."""

    # What an answer means, in a few words for the report.
    promise = "on disk"
    # Calls at once where each is one message, and where each is a batch.
    workers_one = 32
    workers_many = 2

    def __init__(self, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic

    async def open(self, workers: int) -> None:  # noqa: B027
        """Connect; `workers` calls will be made at once."""

    @abstractmethod
    async def make(self) -> None:
        """The topic, queue or stream, and the group that works on it."""

    @abstractmethod
    async def publish(self, worker: int, count: int) -> None:
        """So many messages of 100 bytes in one call, or in as many as the system needs."""

    @abstractmethod
    async def work(self, worker: int, count: int) -> int:
        """Take up to so many messages and acknowledge them; how many there were."""

    async def close(self) -> None:  # noqa: B027
        """Disconnect."""
