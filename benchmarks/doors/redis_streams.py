"""Redis Streams through redis-py: one group, a connection a worker.

XADD, XREADGROUP and XACK; many are one pipeline. How safe an answer is depends on
`appendfsync`: with `always` it is on disk, with `everysec` a second's worth can be lost.
"""

from __future__ import annotations

from benchmarks.doors.clients import BODY, Client

GROUP = "bench"


class RedisAlways(Client):
    async def open(self, workers: int) -> None:
        import redis.asyncio

        host, _, port = self.address.rpartition(":")
        self._connections = [
            redis.asyncio.Redis(host=host, port=int(port), single_connection_client=True)
            for _ in range(workers)
        ]

    async def make(self) -> None:
        await self._connections[0].xgroup_create(self.topic, GROUP, id="0", mkstream=True)

    async def publish(self, worker: int, count: int) -> None:
        connection = self._connections[worker]
        if count == 1:
            await connection.xadd(self.topic, {"v": BODY})
            return
        pipeline = connection.pipeline(transaction=False)
        for _ in range(count):
            pipeline.xadd(self.topic, {"v": BODY})
        await pipeline.execute()

    async def work(self, worker: int, count: int) -> int:
        connection = self._connections[worker]
        found = await connection.xreadgroup(
            GROUP, f"worker-{worker}", {self.topic: ">"}, count=count
        )
        if not found:
            return 0
        ids = [id for _, entries in _entries(found) for id, _ in entries]
        await connection.xack(self.topic, GROUP, *ids)
        return len(ids)

    async def close(self) -> None:
        for connection in self._connections:
            await connection.aclose()


class RedisEverySecond(RedisAlways):
    promise = "within a second"


def _entries(found: object) -> list[tuple[object, list[tuple[bytes, object]]]]:
    """The same whichever version of the protocol was spoken."""
    if isinstance(found, dict):
        return [(name, [pair for each in lists for pair in each]) for name, lists in found.items()]
    return list(found)  # type: ignore[call-overload]
