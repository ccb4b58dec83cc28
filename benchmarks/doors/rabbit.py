"""RabbitMQ through aio-pika: a quorum queue, publisher confirms, a channel a worker.

A quorum queue writes to its log and syncs before it confirms. Publishing many is many
publishes at once: there is no call for a batch. Taking is a consumer with a prefetch of
one batch, and one ack for all of it (`multiple`); AMQP does not confirm acks.
"""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.doors.clients import BODY, Client

WAIT_SECONDS = 1.0


class Rabbit(Client):
    async def open(self, workers: int) -> None:
        import aio_pika

        self._message = aio_pika.Message
        self._connection = await aio_pika.connect(f"amqp://guest:guest@{self.address}/")
        self._channels = [await self._connection.channel() for _ in range(workers)]
        self._arrived: dict[int, asyncio.Queue[Any]] = {}

    async def make(self) -> None:
        await self._declare(0)

    async def _declare(self, worker: int) -> Any:
        arguments = {"x-queue-type": "quorum"}
        return await self._channels[worker].declare_queue(
            self.topic, durable=True, arguments=arguments
        )

    async def publish(self, worker: int, count: int) -> None:
        exchange = self._channels[worker].default_exchange
        message = self._message(BODY, delivery_mode=2)
        if count == 1:
            await exchange.publish(message, self.topic)
            return
        await asyncio.gather(*(exchange.publish(message, self.topic) for _ in range(count)))

    async def work(self, worker: int, count: int) -> int:
        arrived = self._arrived.get(worker)
        if arrived is None:
            arrived = self._arrived[worker] = asyncio.Queue()
            await self._channels[worker].set_qos(prefetch_count=count)
            queue = await self._declare(worker)
            await queue.consume(arrived.put)
        message = None
        for taken in range(count):
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    message = await arrived.get()
            except TimeoutError:
                if message is not None:
                    await message.ack(multiple=True)
                return taken
        assert message is not None
        await message.ack(multiple=True)
        return count

    async def close(self) -> None:
        await self._connection.close()
