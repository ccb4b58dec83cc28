"""An application of Celery whose tasks go through topics: kombu's transport `confluentkafka`.

python program.py FIRST LAST    sends these tasks, waits for them, and prints their results
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache

from celery import Celery, group
from confluent_kafka import Producer

BOOTSTRAP = os.environ["BOOTSTRAP"]
RESULT_SECONDS = 150

app = Celery(
    "program",
    broker=f"confluentkafka://{BOOTSTRAP}",
    backend=f"file://{os.environ['STATE']}",
)
app.conf.update(
    broker_transport_options={
        "num_partitions": 2,
        "wait_time_seconds": 1,
        # A killed worker is missed soon.
        "kafka_consumer_config": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    },
    # One at a time, acknowledged when it is done.
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    # It goes by fanout, which the transport does not have.
    worker_enable_remote_control=False,
)


@cache
def producer() -> Producer:
    return Producer({"bootstrap.servers": BOOTSTRAP})


@app.task
def square(number: int) -> int:
    producer().produce("done", str(number))
    producer().flush()
    return number * number


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:])
    sent = group(square.s(number) for number in range(first, last)).apply_async()
    print(json.dumps(sent.get(timeout=RESULT_SECONDS)))
