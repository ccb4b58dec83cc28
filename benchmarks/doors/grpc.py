"""gRPC through grpc.aio: one channel, as many calls at once as there are workers."""

from __future__ import annotations

from typing import Any

import grpc

from benchmarks.doors.clients import BODY, Client
from headrace.wire.grpc.generated import headrace_pb2 as pb
from headrace.wire.grpc.generated import headrace_pb2_grpc as stubs

GROUP = "bench"


class Grpc(Client):
    async def open(self, workers: int) -> None:
        self._channel = grpc.aio.insecure_channel(self.address)
        made: Any = stubs
        self._topics = made.TopicsStub(self._channel)
        self._messages = made.MessagesStub(self._channel)
        self._queues = made.QueuesStub(self._channel)

    async def make(self) -> None:
        await self._topics.Create(pb.CreateTopicRequest(name=self.topic, partitions=1))

    async def publish(self, worker: int, count: int) -> None:
        messages = [pb.NewMessage(value=BODY)] * count
        await self._messages.Publish(pb.PublishRequest(topic=self.topic, messages=messages))

    async def work(self, worker: int, count: int) -> int:
        wanted = pb.LeaseRequest(
            group=GROUP, topics=[self.topic], count=count, consumer=f"worker-{worker}"
        )
        leased = (await self._queues.Lease(wanted)).messages
        if leased:
            await self._queues.Ack(pb.AckRequest(receipts=[each.receipt for each in leased]))
        return len(leased)

    async def close(self) -> None:
        await self._channel.close()
