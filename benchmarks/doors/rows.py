"""What is measured: the same four kinds of work for every door and every peer."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.doors import systems


class Contender(NamedTuple):
    """One way to reach one system."""

    name: str
    system: type[systems.System]
    client: str
    # Which of the system's ports, where it has several.
    port: str = "main"
    is_ours: bool = False


CONTENDERS = (
    Contender("headrace SDK", systems.Headrace, "sdk_client.Sdk", "kafka", True),
    Contender("headrace HTTP", systems.Headrace, "http.Http", "http", True),
    Contender("headrace WebSocket", systems.Headrace, "websocket.WebSocket", "http", True),
    Contender("headrace gRPC", systems.Headrace, "grpc.Grpc", "grpc", True),
    Contender("NATS JetStream", systems.NatsServer, "nats.Nats"),
    Contender("RabbitMQ quorum", systems.RabbitServer, "rabbit.Rabbit"),
    Contender("Redis always", systems.RedisServer, "redis_streams.RedisAlways"),
    Contender("Redis everysec", systems.RedisServerEverySecond, "redis_streams.RedisEverySecond"),
)


class Row(NamedTuple):
    name: str
    title: str
    act: str
    batch: int
    # What our doors have to reach, in messages a second.
    targets: dict[str, int]


ROWS = (
    Row("publish-one", "Publish one message a call, 32 calls at once", "publish", 1,
        {"headrace HTTP": 4_000}),
    Row("publish-many", "Publish 1,000 messages a call, 2 calls at once", "publish", 1_000,
        {"headrace HTTP": 150_000, "headrace SDK": 200_000}),
    Row("work-one", "Lease and ack one message, 32 workers", "work", 1, {}),
    Row("work-many", "Lease and ack 100 messages, 2 workers", "work", 100,
        {"headrace SDK": 100_000}),
)  # fmt: skip
