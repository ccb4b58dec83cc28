"""The SDK's own ways to publish and to work, on a node that runs: who pays for what.

    python -m benchmarks.doors.sdk 127.0.0.1:9092
    python -m benchmarks.doors.sdk grpc://127.0.0.1:9081

Each function takes an address, does one kind of work and returns a row. On a machine that
has other things to do, the CPU of the client says more than the clock.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import headrace

MESSAGES = 200_000
BODY = b"x" * 100


class SdkRow(NamedTuple):
    title: str
    messages: int
    seconds: float
    client_cpu_seconds: float

    def __str__(self) -> str:
        rate = self.messages / self.seconds
        per_cpu = self.messages / self.client_cpu_seconds
        return (
            f"{self.title:<44} {rate:>10,.0f} msg/s   {per_cpu:>10,.0f} msg per client CPU-second"
        )


def _measured(title: str, messages: int, work: Callable[[], None]) -> SdkRow:
    began, cpu_began = time.perf_counter(), time.process_time()
    work()
    return SdkRow(title, messages, time.perf_counter() - began, time.process_time() - cpu_began)


def _topic(handle: headrace.Headrace) -> str:
    name = f"sdk-{os.getpid()}-{secrets.token_hex(4)}"
    handle.create_topic(name, 1)
    return name


def publish_each(address: str, messages: int = MESSAGES) -> SdkRow:
    """One call of a producer for each message, all of them on disk at the end."""
    with headrace.connect(address) as handle:
        topic = _topic(handle)

        def work() -> None:
            with handle.producer() as producer:
                for _ in range(messages):
                    producer.publish(topic, BODY)

        return _measured("producer.publish, one by one", messages, work)


def publish_batches(address: str, messages: int = MESSAGES) -> SdkRow:
    """Many in each call of a producer."""
    with headrace.connect(address) as handle:
        topic = _topic(handle)
        bodies = [BODY] * 1_000

        def work() -> None:
            with handle.producer() as producer:
                for _ in range(messages // 1_000):
                    producer.publish_many(topic, bodies)

        return _measured("producer.publish_many, 1,000 a call", messages, work)


def publish_calls(address: str, messages: int = MESSAGES) -> SdkRow:
    """Many in each call of the handle, each of which waits for the disk."""
    with headrace.connect(address) as handle:
        topic = _topic(handle)
        bodies = [BODY] * 1_000

        def work() -> None:
            for _ in range(messages // 1_000):
                handle.publish_many(topic, bodies)

        return _measured("handle.publish_many, 1,000 a call", messages, work)


def lease_and_ack(address: str, messages: int = MESSAGES, batch: int = 1_000) -> SdkRow:
    """One consumer; an ack waits for the disk."""
    with headrace.connect(address) as handle:
        topic = _topic(handle)
        for _ in range(messages // 1_000):
            handle.publish_many(topic, [BODY] * 1_000)

        def work() -> None:
            with handle.queue(topic) as queue:
                left = messages
                while left > 0:
                    leased = queue.receive(batch, wait=60)
                    queue.ack(leased)
                    left -= len(leased)

        return _measured(f"lease and ack, {batch:,} a call", messages, work)


def rows(address: str) -> list[SdkRow]:
    return [
        publish_each(address),
        publish_batches(address),
        publish_calls(address),
        lease_and_ack(address),
        lease_and_ack(address, batch=100),
    ]


if __name__ == "__main__":
    for row in rows(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"):
        print(row, flush=True)
