"""One publish, read as a queue by a worker and as a stream by an audit.

    python examples/one_publish_two_readers.py [directory]

The worker takes urgent orders first; the audit sees all of them in their order.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import headrace


@dataclass
class Order:
    id: int
    urgent: bool


def main(directory: str) -> None:
    with headrace.open(directory) as handle:
        handle.create_topic("orders", partitions=1, exist_ok=True)
        for number in range(6):
            order = Order(number, urgent=number % 3 == 2)
            priority = "critical" if order.urgent else "normal"
            handle.publish("orders", order, key=f"customer-{number % 2}", priority=priority)

        with handle.queue("orders", group="workers", type=Order) as queue:
            while messages := queue.receive(max=1, wait=0):
                for message in messages:
                    with message:
                        print(f"worker: {message.value} ({message.priority})")

        with handle.stream("orders", group="audit", type=Order) as stream:
            for record in stream.poll(wait=0):
                print(f"audit:  {record.offset} {record.value}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
