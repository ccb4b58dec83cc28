"""An application of FastStream on one of its two Kafka brokers, `confluent` or `aiokafka`: a
handler in a group that publishes, one of batches, and one that answers whom it is asked by."""

from __future__ import annotations

import asyncio
import os

from faststream import AckPolicy, FastStream, Logger
from pydantic import BaseModel

if os.environ["CLIENT"] == "confluent":
    from faststream.confluent import KafkaBroker
else:
    from faststream.kafka import KafkaBroker

# What is handled is committed, and a killed instance is missed soon.
READING = {
    "auto_offset_reset": "earliest",
    "ack_policy": AckPolicy.NACK_ON_ERROR,
    "session_timeout_ms": 6_000,
}


class Order(BaseModel):
    number: int
    prices: list[int]


class Bill(BaseModel):
    number: int
    total: int


broker = KafkaBroker(os.environ["BOOTSTRAP"])
app = FastStream(broker)


@broker.subscriber("orders", group_id="billing", **READING)
@broker.publisher("bills")
async def make_bill(order: Order) -> Bill:
    return Bill(number=order.number, total=sum(order.prices))


# More would not fit into the one batch that its answers are.
@broker.subscriber("readings", batch=True, max_records=100, group_id="doubling", **READING)
@broker.publisher("doubled", batch=True)
async def double(readings: list[int], logger: Logger) -> tuple[int, ...]:
    logger.info("a batch of %d", len(readings))
    return tuple(2 * reading for reading in readings)


@broker.subscriber("questions", group_id="answering", **READING)
async def answer(question: str) -> str:
    return question.upper()


if __name__ == "__main__":
    asyncio.run(app.run())
